/** Which medium a volume is: what the planner's cost model goes by. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { InvalidInputError, NotFoundError, quote } from '../../errors.js';
import { media } from '../../planner/media.js';
import { audited, type Note } from '../audit/audited.js';
import { checkText } from '../input.js';
import { allow } from '../policy.js';

/**
 * Says of which medium volumes are, all of them or none.
 * @param names all volumes unless given
 * @returns how many volumes are of it now
 * @throws InvalidInputError, NotFoundError
 */
export async function setMedium(
  ctx: Context,
  input: { medium: string; names?: readonly string[] | undefined },
): Promise<number> {
  const { medium, names = [] } = input;
  const object = names.length === 1 ? (names[0] ?? '') : '';
  return await audited(ctx, { operation: 'setMedium', kind: 'VOLUME', object, given: { medium, names } }, (note) =>
    changeMedium(ctx, input, note),
  );
}

async function changeMedium(
  ctx: Context,
  input: { medium: string; names?: readonly string[] | undefined },
  note: Note,
): Promise<number> {
  allow(ctx, 'setMedium');
  if (!Object.hasOwn(media, input.medium)) {
    throw new InvalidInputError(
      'medium',
      `must be one of ${Object.keys(media).join(', ')}, not ${quote(input.medium)}`,
    );
  }
  const names = input.names && [...new Set(input.names.map((name) => checkText('names', name)))];
  const isMeant = names ? sql`v.name = ANY(${names}::text[])` : sql`true`;
  const { rows } = await ctx.db.pool.query<{ name: string }>(
    sql`SELECT n.name FROM unnest(${names ?? []}::text[]) WITH ORDINALITY AS n (name, place)
        WHERE NOT EXISTS (SELECT FROM volume v WHERE v.name = n.name) ORDER BY n.place LIMIT 1`,
  );
  if (rows[0]) throw new NotFoundError(`there is no volume ${quote(rows[0].name)}`);
  const { prisma } = ctx.db;
  const changed = prisma.$executeRaw(sql`UPDATE volume v SET medium = ${input.medium} WHERE ${isMeant}`);
  const [count] = await prisma.$transaction([changed, prisma.$executeRaw(note())]);
  return count;
}
