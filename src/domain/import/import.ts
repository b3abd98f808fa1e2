/**
 * Adds rows to the catalogue and updates known files, all or nothing. Files that live requests await join them in the
 * same transaction. The rows are loaded first, so that the transaction can run again after a deadlock.
 */

import { codeOf } from '../../core/errors.js';
import { sql } from '../../db/sql.js';
import { runTransaction } from '../../db/transaction.js';
import { audited, type Note, noteRefusal } from '../audit/audited.js';
import type { Complete } from '../catalogue/withdrawals.js';
import type { Context } from '../context.js';
import { applyIncoming } from './import-apply.js';
import { type ClashingRow, dropClashes, MAX_REJECTS, type StandingFile } from './import-checks.js';
import { applyFolders, type ImportResult, loadIncoming, type Reject } from './import-incoming.js';
import { ImportError } from './import-lines.js';
import { type RowSource, skipBadNames } from './import-rows.js';

interface Importing {
  wanted?: AbortSignal | undefined;
  complete?: Complete | undefined;
  standing?: readonly StandingFile[] | undefined;
  /** Does everything, and rolls it back. */
  isDryRun?: boolean | undefined;
  /** Leaves out rows with names that cannot be restored, and returns them. */
  skipInvalid?: boolean | undefined;
  /** Leaves out rows whose path is a file and a directory, and gets each. */
  onClash?: ((row: ClashingRow) => void) | undefined;
}

export async function importRows(ctx: Context, rows: RowSource, importing: Importing = {}): Promise<ImportResult> {
  const deed = { operation: 'importRows', kind: 'CATALOGUE', object: '' } as const;
  return await audited(ctx, deed, async (note) => {
    try {
      return await takeIn(ctx, rows, { note, ...importing });
    } catch (error) {
      if (error instanceof ImportError) noteRefusal(ctx, { ...deed, given: { faults: error.faults } }, 'INVALID_INPUT');
      throw error;
    }
  });
}

/**
 * Imports rows for an operation that is audited itself. @param standing files that must be unchanged @throws
 * ImportError
 */
export async function registerRows(
  ctx: Context,
  rows: RowSource,
  standing: readonly StandingFile[] = [],
): Promise<ImportResult> {
  return await takeIn(ctx, rows, { standing });
}

/** As `registerRows`, without the rows whose path is a file and a directory. @returns those rows */
export async function registerWithoutClashes(
  ctx: Context,
  rows: RowSource,
  { isDryRun }: { isDryRun: boolean },
): Promise<ClashingRow[]> {
  const clashing: ClashingRow[] = [];
  await takeIn(ctx, rows, { isDryRun, onClash: (row) => clashing.push(row) });
  return clashing;
}

async function takeIn(
  ctx: Context,
  rows: RowSource,
  { note, wanted, complete, standing, isDryRun, skipInvalid, onClash }: Importing & { note?: Note },
): Promise<ImportResult> {
  const client = await ctx.db.importPool.connect();
  try {
    await client.query(sql`SET statement_timeout = 0`); // the source may be slow
    const rejects: Reject[] = [];
    const reject = (more: readonly Reject[]) => {
      rejects.push(...more);
      if (rejects.length > MAX_REJECTS)
        throw new ImportError([`more than ${MAX_REJECTS} rows have names that cannot be restored`]);
    };
    const kept = skipInvalid ? skipBadNames(rows, ({ line, problem }) => reject([{ line, problem }])) : rows;
    const hasFolders = await loadIncoming(client, kept);
    const clashing = skipInvalid || onClash ? await dropClashes(client) : [];
    if (onClash) clashing.forEach(onClash);
    else reject(clashing.map(({ line, problem }) => ({ line, problem })));
    const canSkip = note !== undefined && !skipInvalid;
    const rejected = skipInvalid && { rejected: rejects.length };
    const result = await applyAgain(() =>
      runTransaction(client, 'importRows', async (tx) => {
        const applied = await applyIncoming(ctx, tx, { complete, standing, canSkip });
        const result = hasFolders ? { ...applied, folders: await applyFolders(tx) } : applied;
        if (note && !isDryRun) await tx.query(note({ given: { ...result, complete: complete?.prefix, ...rejected } }));
        wanted?.throwIfAborted();
        if (isDryRun) throw new DryRunEnd(result);
        return result;
      }),
    ).catch((error: unknown) => {
      if (error instanceof DryRunEnd) return error.result;
      throw error;
    });
    return { ...result, ...(skipInvalid && { rejects }) };
  } finally {
    await client
      .query(
        sql`DROP TABLE IF EXISTS pg_temp.incoming, pg_temp.incoming_folder, pg_temp.namesake; RESET statement_timeout`,
      )
      .then(
        () => client.release(),
        () => client.release(true),
      );
  }
}

class DryRunEnd extends Error {
  readonly result: ImportResult;

  constructor(result: ImportResult) {
    super('a dry run changes nothing');
    this.result = result;
  }
}

/** If two imports add the same file, the later one fails, and finds the file in the catalogue when it runs again. */
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
