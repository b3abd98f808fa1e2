/**
 * Adds rows to the catalogue and updates known ones, all or nothing. A row replaces what the catalogue says of its
 * file. Files that live requests wait for join them in the same transaction.
 *
 * The rows go into a temporary table first, so that the transaction can be run again after a deadlock.
 */
import type { Deed } from '../../audit.js';
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { runTransaction } from '../../database/transaction.js';
import { codeOf } from '../../errors.js';
import { audited, type Note, noteRefusal } from '../audit/audited.js';
import { allow } from '../policy.js';
import { applyIncoming } from './import-apply.js';
import { ImportError, type RowSource } from './import-faults.js';
import { type ImportResult, loadIncoming } from './import-incoming.js';
import type { TellImport } from './import-progress.js';
import type { StandingFile } from './import-standing.js';
import type { Complete } from './unlisted.js';

interface Importing {
  /** Aborts when nobody wants it any more: nothing is taken over then. */
  wanted?: AbortSignal | undefined;
  /** Is told how far it is. */
  tell?: TellImport | undefined;
  complete?: Complete | undefined;
  standing?: readonly StandingFile[] | undefined;
  /** Only says what would be done: all of it is done, and taken back. */
  isDryRun?: boolean | undefined;
}

/** @throws ImportError */
export async function importRows(ctx: Context, rows: RowSource, importing: Importing = {}): Promise<ImportResult> {
  const deed: Deed = { operation: 'importRows', kind: 'CATALOGUE', object: '' };
  return await audited(ctx, deed, async (note) => {
    allow(ctx, 'importRows');
    try {
      return await takeIn(ctx, rows, { note, ...importing });
    } catch (error) {
      if (error instanceof ImportError) noteRefusal(ctx, { ...deed, given: { faults: error.faults } }, 'INVALID_INPUT');
      throw error;
    }
  });
}

/** The same for what is audited as a whole. @param standing files of the rows, as they are still to be @throws ImportError */
export async function registerRows(
  ctx: Context,
  rows: RowSource,
  standing: readonly StandingFile[] = [],
): Promise<ImportResult> {
  return await takeIn(ctx, rows, { standing });
}

async function takeIn(
  ctx: Context,
  rows: RowSource,
  { note, wanted, tell, complete, standing, isDryRun }: Importing & { note?: Note },
): Promise<ImportResult> {
  const client = await ctx.db.importPool.connect();
  try {
    await client.query(sql`SET statement_timeout = 0`); // what it adds may be anything, and its source slow
    const count = await loadIncoming(client, rows, tell);
    return await applyAgain(() =>
      runTransaction(client, 'importRows', async (tx) => {
        const result = await applyIncoming(ctx, tx, { told: tell && { tell, count }, complete, standing });
        if (note && !isDryRun) await tx.query(note({ given: { ...result, complete: complete?.prefix } }));
        wanted?.throwIfAborted();
        if (isDryRun) throw new TakenBack(result);
        return result;
      }).catch((error: unknown) => {
        if (error instanceof TakenBack) return error.result;
        throw error;
      }),
    );
  } finally {
    const isWhole = await client.query(sql`DROP TABLE IF EXISTS pg_temp.incoming`).then(
      () => client.query(sql`RESET statement_timeout`).then(() => true),
      () => false,
    );
    client.release(!isWhole);
  }
}

/** Ends a dry run, once all of it was found possible. */
class TakenBack extends Error {
  readonly result: ImportResult;

  constructor(result: ImportResult) {
    super('a dry run changes nothing');
    this.result = result;
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
