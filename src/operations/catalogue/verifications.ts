/**
 * Confirming tape copies: a file at UNVERIFIED that was never confirmed is read back from tape, and goes to ONDISK when
 * its bytes have the catalogue's size and checksum. What does not agree is kept, and shown, until it does or until an
 * import says something else of the file.
 */
import type { Context } from '../../context.js';
import { transaction } from '../../database/transaction.js';
import type { ErrorClass } from '../../errors.js';
import type { Prisma } from '../../generated/prisma/client.js';
import { moveFiles } from '../../stages.js';
import { checkPattern } from '../input.js';
import { escapeLike, likeSubstring } from '../match.js';

/** `f` is the file. One that has been confirmed before was changed on disk since: reading its tape copy proves nothing. */
const IS_UNCONFIRMED = `f.stage = 'UNVERIFIED' AND f.verified IS NULL AND f.checksum IS NOT NULL AND f.position IS NOT NULL`;

/** `$1` is the present time. */
const IS_DUE = `NOT EXISTS (SELECT FROM verification w
  WHERE w.file_id = f.id AND (w.not_before IS NULL OR w.not_before > $1))`;

export interface UnconfirmedVolume {
  volumeId: number;
  volume: string;
}

/** A volume with copies to be confirmed that is in service and in no drive. */
export async function findUnconfirmed(ctx: Context): Promise<UnconfirmedVolume | undefined> {
  const { rows } = await ctx.db.pool.query<UnconfirmedVolume>(
    `SELECT v.id AS "volumeId", v.name AS volume FROM volume v
     WHERE EXISTS (SELECT FROM tape_file f WHERE f.volume_id = v.id AND ${IS_UNCONFIRMED} AND ${IS_DUE})
       AND NOT EXISTS (SELECT FROM drive d WHERE d.volume_id = v.id)
       AND NOT EXISTS (SELECT FROM suspension s WHERE s.kind = 'VOLUME' AND s.name = v.name)
     ORDER BY v.id LIMIT 1`,
    [ctx.now()],
  );
  return rows[0];
}

/** A tape copy, and what the catalogue says of it. */
export interface UnconfirmedCopy {
  fileId: bigint;
  path: string;
  size: bigint;
  position: bigint;
  checksum: string;
  /** Tries so far. */
  attempts: number;
}

/** The next copies of a volume to be confirmed, in order of their positions. */
export async function readUnconfirmed(
  ctx: Context,
  page: { volumeId: number; after: bigint; limit: number },
): Promise<UnconfirmedCopy[]> {
  const { rows } = await ctx.db.pool.query<UnconfirmedCopy>(
    `SELECT f.id AS "fileId", f.path, f.size, f.position, f.checksum,
       coalesce((SELECT w.attempts FROM verification w WHERE w.file_id = f.id), 0) AS attempts
     FROM tape_file f WHERE f.volume_id = $2 AND f.position > $3 AND ${IS_UNCONFIRMED} AND ${IS_DUE}
     ORDER BY f.position, f.id LIMIT $4`,
    [ctx.now(), page.volumeId, page.after, page.limit],
  );
  return rows;
}

export interface VerificationFailure {
  errorClass: ErrorClass;
  error: string;
  /** Undefined: it is not tried again by itself. */
  notBefore: string | undefined;
}

/**
 * Writes down what came of reading a copy. It counts only where the catalogue still says of the file what it was
 * compared with.
 * @param failure undefined when the copy was as it should be
 */
export async function endVerification(
  ctx: Context,
  copy: UnconfirmedCopy & { volumeId: number },
  failure: VerificationFailure | undefined,
): Promise<void> {
  await transaction(ctx.db.pool, async (tx) => {
    const same = await tx.query(
      `SELECT FROM tape_file f WHERE f.id = $1 AND ${IS_UNCONFIRMED}
         AND f.size = $2 AND f.volume_id = $3 AND f.position = $4 AND f.checksum = $5 FOR NO KEY UPDATE`,
      [copy.fileId, copy.size, copy.volumeId, copy.position, copy.checksum],
    );
    if (same.length === 0) return;
    if (failure) {
      await tx.query(
        `INSERT INTO verification (file_id, attempts, error_class, error, at, not_before) VALUES ($1, 1, $2, $3, $4, $5)
         ON CONFLICT (file_id) DO UPDATE SET attempts = verification.attempts + 1, error_class = excluded.error_class,
           error = excluded.error, at = excluded.at, not_before = excluded.not_before`,
        [copy.fileId, failure.errorClass, failure.error, ctx.now(), failure.notBefore ?? null],
      );
      return;
    }
    await tx.query('UPDATE tape_file SET verified = $2 WHERE id = $1', [copy.fileId, ctx.now()]);
    await tx.query('DELETE FROM verification WHERE file_id = $1', [copy.fileId]);
    await moveFiles(tx, [copy.fileId], { from: 'UNVERIFIED', to: 'ONDISK' });
  });
}

/** Copies that could not be confirmed, in order of the files' ids: counted, or by the page. */
export function listVerifications(ctx: Context, input: { match?: string | null | undefined }) {
  const match = input.match ? checkPattern('match', input.match) : undefined;
  const where: Prisma.VerificationWhereInput =
    match === undefined ? {} : { file: { path: { contains: escapeLike(match) } } };
  return {
    count: () => ctx.db.prisma.verification.count({ where }),
    page: (query: Pick<Prisma.VerificationFindManyArgs, 'include' | 'select'>) =>
      ctx.db.prisma.verification.findMany({ ...(query as object), where, orderBy: { fileId: 'asc' } }),
  };
}

/**
 * Has copies that could not be confirmed tried again at once.
 * @returns how many
 */
export async function verifyAgain(ctx: Context, input: { match: string }): Promise<number> {
  const match = checkPattern('match', input.match);
  const { rowCount } = await ctx.db.pool.query(
    `DELETE FROM verification w USING tape_file f
     WHERE f.id = w.file_id AND f.path LIKE $1 AND f.stage = 'UNVERIFIED' AND f.verified IS NULL`,
    [likeSubstring(match)],
  );
  return rowCount ?? 0;
}
