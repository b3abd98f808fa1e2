/** Lists that are complete: what is below their folder, and not in them, is withdrawn, and comes back with the next list that has it. */

import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { InUseError, InvalidInputError, quote } from '../../errors.js';
import { plural } from '../../plural.js';
import { isOffered, isWithdrawn } from '../conditions.js';
import { chosenFiles } from './chosen-files.js';
import { withdrawLeaving } from './withdrawals.js';

/** What a list says it has all of. */
export interface Complete {
  /** A folder, with a slash at its end. */
  prefix: string;
  /** Of the files below it, in percent: no more are withdrawn. */
  mostPercent: number;
}

/** More than this a list leaves out only when it was cut short, or is not the one that was meant. */
export const MOST_PERCENT = 5;

/** @param given as people give it, `folder` with or without a slash at its end @throws InvalidInputError */
export function readComplete(given: { folder: string; mostPercent?: number | undefined }): Complete {
  const prefix = given.folder.endsWith('/') ? given.folder : `${given.folder}/`;
  chosenFiles(prefix, 'complete');
  const { mostPercent = MOST_PERCENT } = given;
  if (mostPercent >= 0 && mostPercent <= 100) return { prefix, mostPercent };
  throw new InvalidInputError('maxWithdrawn', `must be from 0 to 100, in percent, not ${given.mostPercent}`);
}

/**
 * Makes the temporary table `leaving` of what the list does not have; it is empty where the list is not said to be complete. The catalogue is
 * locked.
 * @throws InUseError where these are more than was said
 */
export async function findUnlisted(
  tx: Transaction,
  complete: Complete | undefined,
): Promise<{ withdrawn: number; known: number } | undefined> {
  const which = complete ? sql`${chosenFiles(complete.prefix, 'complete')} AND ${isOffered}` : sql`false`;
  await tx.query(
    sql`CREATE TEMP TABLE leaving ON COMMIT DROP AS SELECT f.id, f.path FROM tape_file f WHERE ${which}
          AND NOT EXISTS (SELECT FROM old o WHERE o.id = f.id) AND NOT EXISTS (SELECT FROM fresh n WHERE n.id = f.id)`,
  );
  if (!complete) return undefined;
  await tx.query(sql`ANALYZE leaving`);
  const [row] = await tx.query<{ withdrawn: number; known: number }>(
    sql`SELECT (SELECT count(*)::int FROM leaving) AS withdrawn, (SELECT count(*)::int FROM tape_file f WHERE ${which}
          AND NOT EXISTS (SELECT FROM fresh n WHERE n.id = f.id)) AS known`,
  );
  const { withdrawn, known } = row ?? { withdrawn: 0, known: 0 };
  if (withdrawn * 100 > known * complete.mostPercent) {
    throw new InUseError(
      `the list does not have ${withdrawn} of ${plural(known, 'file')} below ${quote(complete.prefix)}, and at most ${complete.mostPercent} % are withdrawn at a time: nothing was imported`,
    );
  }
  return { withdrawn, known };
}

/** The requests that hold or await what leaves are among those given, all locked. */
export async function withdrawUnlisted(ctx: Context, tx: Transaction, requestIds: readonly number[]): Promise<void> {
  await withdrawLeaving(ctx, tx, {
    requestIds,
    why: 'a complete list of the archive does not have it',
    isUnlisted: true,
  });
}

/** What an earlier list did not have is back; what somebody has withdrawn is not. @returns how many of each, where there are any */
export async function reinstateListed(tx: Transaction): Promise<{ reinstated?: number; staysWithdrawn?: number }> {
  const back = await tx.query(
    sql`UPDATE tape_file f SET withdrawn_at = NULL, withdrawn_why = NULL, is_unlisted = false
        FROM known k WHERE f.id = k.id AND f.is_unlisted RETURNING f.id`,
  );
  const [row] = await tx.query<{ files: number }>(
    sql`SELECT count(*)::int AS files FROM old o JOIN tape_file f ON f.id = o.id WHERE ${isWithdrawn}`,
  );
  return {
    ...(back.length > 0 && { reinstated: back.length }),
    ...(row && row.files > 0 && { staysWithdrawn: row.files }),
  };
}
