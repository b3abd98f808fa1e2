/**
 * Adds new files to the catalogue, and updates files that the catalogue already contains, in one transaction. In the
 * same transaction, adds each imported file to the live requests that list the file's path as unresolved or have a
 * matching pattern.
 */

import { codeOf } from '../../core/errors.js';
import { sql } from '../../db/sql.js';
import { runTransaction } from '../../db/transaction.js';
import { type AuditEntry, audited, recordRefusal } from '../audit/audited.js';
import type { Complete } from '../catalogue/withdrawals.js';
import type { Context } from '../context.js';
import { applyIncoming } from './import-apply.js';
import { type ClashingRow, dropClashes, type ExpectedFile, MAX_REJECTS } from './import-checks.js';
import { applyDirectories, type ImportResult, loadIncoming, type Reject } from './import-incoming.js';
import { ImportError } from './import-lines.js';
import { type RowSource, skipBadNames } from './import-rows.js';

interface ImportOptions {
  wanted?: AbortSignal | undefined;
  complete?: Complete | undefined;
  expected?: readonly ExpectedFile[] | undefined;
  isDryRun?: boolean | undefined;
  skipInvalid?: boolean | undefined;
  /**
   * Function that is called with each row whose path would be both a file and a directory. If the function is set, the
   * import skips these rows.
   */
  onClash?: ((row: ClashingRow) => void) | undefined;
}

/** Imports rows, and records the import in the audit log. @throws ImportError, InUseError */
export async function importRows(ctx: Context, rows: RowSource, options: ImportOptions = {}): Promise<ImportResult> {
  const action = { operation: 'importRows', kind: 'CATALOGUE', object: '' } as const;
  return await audited(ctx, action, async (auditEntry) => {
    try {
      return await loadAndApply(ctx, rows, { auditEntry, ...options });
    } catch (error) {
      if (error instanceof ImportError)
        recordRefusal(ctx, { ...action, given: { faults: error.faults } }, 'INVALID_INPUT');
      throw error;
    }
  });
}

/**
 * Imports rows for an operation that writes its own audit record. Fails if a file in `expected` was renamed, withdrawn
 * or moved after the caller read it.
 * @throws ImportError
 */
export async function registerRows(
  ctx: Context,
  rows: RowSource,
  expected: readonly ExpectedFile[] = [],
): Promise<ImportResult> {
  return await loadAndApply(ctx, rows, { expected });
}

/** Imports rows, but skips rows whose path would be both a file and a directory. Returns the skipped rows. */
export async function registerWithoutClashes(
  ctx: Context,
  rows: RowSource,
  { isDryRun }: { isDryRun: boolean },
): Promise<ClashingRow[]> {
  const clashing: ClashingRow[] = [];
  await loadAndApply(ctx, rows, { isDryRun, onClash: (row) => clashing.push(row) });
  return clashing;
}

async function loadAndApply(
  ctx: Context,
  rows: RowSource,
  {
    auditEntry,
    wanted,
    complete,
    expected,
    isDryRun,
    skipInvalid,
    onClash,
  }: ImportOptions & { auditEntry?: AuditEntry },
): Promise<ImportResult> {
  const client = await ctx.db.importPool.connect();
  try {
    await client.query(sql`SET statement_timeout = 0`); // no time limit, because a client might send rows slowly
    const rejects: Reject[] = [];
    const reject = (more: readonly Reject[]) => {
      rejects.push(...more);
      if (rejects.length > MAX_REJECTS)
        throw new ImportError([`more than ${MAX_REJECTS} rows have names that cannot be restored`]);
    };
    const loaded = skipInvalid ? skipBadNames(rows, ({ line, problem }) => reject([{ line, problem }])) : rows;
    const hasDirectories = await loadIncoming(client, loaded);
    const clashing = skipInvalid || onClash ? await dropClashes(client) : [];
    if (onClash) clashing.forEach(onClash);
    else reject(clashing.map(({ line, problem }) => ({ line, problem })));
    const canSkip = auditEntry !== undefined && !skipInvalid;
    const rejected = skipInvalid && { rejected: rejects.length };
    const result = await retryIfDuplicate(() =>
      runTransaction(client, 'importRows', async (tx) => {
        const applied = await applyIncoming(ctx, tx, { complete, expected, canSkip });
        const result = hasDirectories ? { ...applied, directories: await applyDirectories(tx) } : applied;
        if (auditEntry && !isDryRun)
          await tx.query(auditEntry({ given: { ...result, complete: complete?.prefix, ...rejected } }));
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
        sql`DROP TABLE IF EXISTS pg_temp.incoming, pg_temp.incoming_directory, pg_temp.namesake; RESET statement_timeout`,
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

/**
 * Runs an import again if it failed because another import has added the same file at the same time. The second attempt
 * finds the added file in the catalogue.
 */
async function retryIfDuplicate(attempt: () => Promise<ImportResult>): Promise<ImportResult> {
  for (let attemptsLeft = MAX_ATTEMPTS; ; attemptsLeft--) {
    try {
      return await attempt();
    } catch (error) {
      if (codeOf(error) !== UNIQUE_VIOLATION || attemptsLeft === 1) throw error;
    }
  }
}

const UNIQUE_VIOLATION = '23505';
const MAX_ATTEMPTS = 5;
