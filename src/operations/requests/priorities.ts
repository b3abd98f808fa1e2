/** Which requests go first. */

import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { InvalidInputError, NotFoundError } from '../../errors.js';
import { audited } from '../audit/audited.js';
import { allow } from '../policy.js';

const MAX_PRIORITY = 1000;

/**
 * Files of a request with a greater priority are recalled first, whoever asked for them; 0 is usual.
 * @returns the id of the request
 * @throws InvalidInputError, NotFoundError
 */
export async function setPriority(ctx: Context, input: { id: number; priority: number }): Promise<number> {
  const { id, priority } = input;
  return await audited(
    ctx,
    { operation: 'setPriority', kind: 'REQUEST', object: id, given: { priority } },
    async (note) => {
      allow(ctx, 'setPriority');
      if (!Number.isInteger(priority) || Math.abs(priority) > MAX_PRIORITY) {
        const problem = `must be a whole number from -${MAX_PRIORITY} to ${MAX_PRIORITY}, not ${priority}`;
        throw new InvalidInputError('priority', problem);
      }
      await transaction(ctx.db.pool, 'setPriority', async (tx) => {
        const found = await tx.query(sql`UPDATE request SET priority = ${priority} WHERE id = ${id} RETURNING id`);
        if (found.length === 0) throw new NotFoundError(`there is no request with id ${id}`);
        await tx.query(note());
      });
      return id;
    },
  );
}
