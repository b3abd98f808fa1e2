/**
 * A file may be on tape twice. What cannot be read at its first place is read at the second: the two change places, and why is noted
 * with the one that was left. Only when both have failed has the file.
 */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import type { ErrorClass } from '../../errors.js';
import { hasOther } from '../conditions.js';
import { placeOfFile } from './versions.js';

/** A recall that has failed for good. */
export interface Failed {
  fileId: bigint;
  errorClass: ErrorClass;
  error: string;
  /** The tape has thrown it, and not a restore disk: of POLICY nothing else tells. */
  isOfTape?: boolean | undefined;
}

/** The part of an update of the file `f` that has its copies change places. */
export const changePlaces = sql`volume_id = f.copy_volume_id, "position" = f.copy_position, copy_volume_id = f.volume_id, copy_position = f.position`;

/** What was wrong is at the place: neither room on a disk nor a rule of the site. */
const isOfPlace = ({ errorClass, isOfTape }: Failed) =>
  errorClass !== 'SPACE' && (errorClass !== 'POLICY' || isOfTape === true);

/**
 * Has files read at their second places from now on, where they have one. The files are locked, and lie where their recalls have failed.
 * @returns of those that are, nothing else is to be done than to put their recalls back into the queue; of the others what is to be told, by the file
 */
export async function turnToCopies(
  ctx: Context,
  tx: Transaction,
  failed: readonly Failed[],
): Promise<{ turned: Set<bigint>; told: Map<bigint, string> }> {
  const ofPlace = failed.filter(isOfPlace);
  if (ofPlace.length === 0) return { turned: new Set(), told: new Map() };
  const given = sql`unnest(${ofPlace.map(({ fileId }) => fileId)}::bigint[], ${ofPlace.map(({ error }) => error)}::text[]) AS n (file_id, error)`;
  const turned = await tx.query<{ id: bigint }>(
    sql`UPDATE tape_file f SET ${changePlaces}, copy_error = n.error, copy_failed_at = ${ctx.now()}::timestamp FROM ${given} WHERE f.id = n.file_id AND ${hasOther} RETURNING f.id`,
  );
  const ids = new Set(turned.map(({ id }) => id));
  const both = await tx.query<{ id: bigint; text: string }>(
    sql`SELECT f.id, n.error || '; its other copy, on volume ' || v.name || ', failed before: ' || f.copy_error AS text
        FROM ${given} JOIN tape_file f ON f.id = n.file_id JOIN volume v ON v.id = f.copy_volume_id
        WHERE f.copy_error IS NOT NULL AND f.id <> ALL(${[...ids]}::bigint[])`,
  );
  return { turned: ids, told: new Map(both.map(({ id, text }) => [id, text])) };
}

/** The part of an update of the recall `c` of a file `f` that was turned to its other copy: nobody has tried that one. */
export const triedNowhere = sql`${placeOfFile}, attempts = 0, earlier_tries = 0, not_before = NULL, error_class = NULL, error = NULL`;
