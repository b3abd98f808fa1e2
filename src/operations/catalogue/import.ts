/**
 * Adds rows to the catalogue and updates known ones, all or nothing. A row replaces what the catalogue says of its
 * file. Files that live requests wait for join them in the same transaction.
 *
 * The rows go into a temporary table first, so that the transaction can be run again after a deadlock.
 */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { runTransaction } from '../../database/transaction.js';
import { codeOf } from '../../errors.js';
import { applyIncoming } from './import-apply.js';
import { type ImportResult, loadIncoming, type RowSource } from './import-incoming.js';

/** @throws ImportError */
export async function importRows(ctx: Context, rows: RowSource): Promise<ImportResult> {
  const client = await ctx.db.pool.connect();
  try {
    await client.query(sql`SET statement_timeout = 0`); // what it adds may be anything, and its source slow
    await loadIncoming(client, rows);
    return await applyAgain(() => runTransaction(client, 'importRows', (tx) => applyIncoming(ctx, tx)));
  } finally {
    const isWhole = await client.query(sql`DROP TABLE IF EXISTS pg_temp.incoming`).then(
      () => client.query(sql`RESET statement_timeout`).then(() => true),
      () => false,
    );
    client.release(!isWhole);
  }
}

/** Of two imports that add the same file, the later one finds it known when it tries again. */
async function applyAgain(attempt: () => Promise<ImportResult>): Promise<ImportResult> {
  for (let left = MAX_ATTEMPTS; ; left--) {
    try {
      return await attempt();
    } catch (error) {
      if (codeOf(error) !== UNIQUE_VIOLATION || left === 1) throw error;
    }
  }
}

const UNIQUE_VIOLATION = '23505';
const MAX_ATTEMPTS = 5;
