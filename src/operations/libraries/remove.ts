/** Libraries are taken out of use for good. */

import type { Context } from '../../context.js';
import { locking, lockLibraries } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { InUseError, InvalidInputError, NotFoundError, quote } from '../../errors.js';
import { plural } from '../../plural.js';
import { audited } from '../audit/audited.js';
import { checkText } from '../input.js';
import { allow } from '../policy.js';
import { FIRST_LIBRARY } from './libraries.js';

export interface RemovedLibrary {
  id: number;
  name: string;
  /** That went with it: its drives, and volumes of which the catalogue had nothing. */
  drives: number;
  volumes: number;
  /** What the system was asked for, and was not told that nobody needs it: it may stay there. None unless it was forced. */
  leftFiles: number;
  /** Bytes. */
  leftBytes: bigint;
  /** Of these the first ones, by their demands and paths. */
  left: LeftFile[];
}

export interface LeftFile {
  path: string;
  /** As the system called the demand; null where it gives no names, or none has arrived. */
  demand: string | null;
  /** When it leaves the disk of the system by itself; null where it has not said. */
  until: string | null;
}

/** An answer has so many of what is left at most. */
const MOST_LEFT = 1000;

/**
 * Removes a library of which the catalogue has no files. Nothing is done to the tape system itself.
 * @param options.force also where it was asked for files and cannot be told that nobody needs them, such as one that is gone for good
 * @throws NotFoundError; InvalidInputError for the first one; InUseError with the figures, while files are on its volumes or drives read
 */
export async function removeLibrary(
  ctx: Context,
  given: string,
  { force = false }: { force?: boolean | null | undefined } = {},
): Promise<RemovedLibrary> {
  const deed = {
    operation: 'removeLibrary',
    kind: 'BACKEND',
    object: given,
    given: { ...(force && { force }) },
  } as const;
  return await audited(ctx, deed, async (note) => {
    allow(ctx, 'removeLibrary');
    const name = checkText('name', given);
    return await transaction(ctx.db.pool, 'removeLibrary', async (tx) => {
      const id = await lockLibrary(ctx, tx, name);
      // locked first and judged in later statements, which see what whoever had them locked before has put there
      await tx.query(sql`SELECT FROM volume v WHERE v.library_id = ${id} ORDER BY v.id ${locking.volume}`);
      await refuseUsed(tx, { id, name });
      const volumes = await tx.query(sql`DELETE FROM volume WHERE library_id = ${id} RETURNING id`);
      await tx.query(sql`SELECT FROM drive d WHERE d.library_id = ${id} ORDER BY d.id ${locking.drive}`);
      await refuseReading(tx, { id, name });
      const drives = await tx.query<{ name: string }>(sql`DELETE FROM drive WHERE library_id = ${id} RETURNING name`);
      await tx.query(
        sql`DELETE FROM suspension WHERE (kind = 'BACKEND' AND name = ${name})
              OR (kind = 'DRIVE' AND name = ANY(${drives.map((drive) => drive.name)}::text[]))`,
      );
      const left = force ? await readLeftFiles(tx, id) : await refuseLeft(tx, { id, name });
      await tx.query(sql`DELETE FROM staging WHERE library_id = ${id}`);
      await tx.query(sql`DELETE FROM library WHERE id = ${id}`);
      await tx.query(note({ given: { ...deed.given, ...describeLeft(left) } }));
      await tx.query(sql`SELECT pg_notify('tapegate', 'library')`);
      return { id, name, drives: drives.length, volumes: volumes.length, ...left };
    });
  });
}

async function lockLibrary(ctx: Context, tx: Transaction, name: string): Promise<number> {
  const isFirst = name === ctx.config.tapeBackend;
  const [id] = isFirst ? [FIRST_LIBRARY] : await lockLibraries(tx, sql`b.name = ${name}`);
  if (id === undefined) throw new NotFoundError(`there is no library ${quote(name)}`);
  if (!isFirst) return id;
  throw new InvalidInputError('name', `must not be ${quote(name)}: it is the first library, which stays`);
}

async function refuseUsed(tx: Transaction, { id, name }: { id: number; name: string }): Promise<void> {
  const [use] = await tx.query<{ volumes: number; files: number; bytes: bigint; recalls: number }>(
    sql`SELECT count(DISTINCT v.id)::int AS volumes, count(f.id)::int AS files, coalesce(sum(f.size), 0) AS bytes,
          (SELECT count(*)::int FROM recall c JOIN volume w ON w.id = c.volume_id WHERE w.library_id = ${id}) AS recalls
        FROM volume v JOIN tape_file f ON f.volume_id = v.id OR f.copy_volume_id = v.id WHERE v.library_id = ${id}`,
  );
  if (!use || (use.files === 0 && use.recalls === 0)) return;
  throw new InUseError(
    `the library ${quote(name)} has ${plural(use.files, 'file')} of ${plural(use.bytes, 'byte')} on ${plural(use.volumes, 'volume')}, and ${plural(use.recalls, 'recall')} from it: import what it has with other places first`,
  );
}

type Left = Pick<RemovedLibrary, 'leftFiles' | 'leftBytes' | 'left'>;

/** What the system keeps by itself it lets go by itself; of what else it may have, it is told first. @throws InUseError */
async function refuseLeft(tx: Transaction, { id, name }: { id: number; name: string }): Promise<Left> {
  const [open] = await tx.query<{ files: number }>(
    sql`SELECT count(*)::int AS files FROM staging s WHERE s.library_id = ${id} AND s.state <> 'KEPT'`,
  );
  if (!open?.files) return { leftFiles: 0, leftBytes: 0n, left: [] };
  throw new InUseError(
    `the library ${quote(name)} was asked for ${plural(open.files, 'file')}, and is still to be told that nobody needs ${open.files === 1 ? 'it' : 'them'}; try again when it was, or force it where it cannot be told any more`,
  );
}

/** Nobody turns to them from here on: they are locked. */
async function readLeftFiles(tx: Transaction, id: number): Promise<Left> {
  await tx.query(sql`SELECT FROM staging g WHERE g.library_id = ${id} ORDER BY g.file_id ${locking.staging}`);
  const [sum] = await tx.query<{ files: number; bytes: bigint }>(
    sql`SELECT count(*)::int AS files, coalesce(sum(s.size), 0) AS bytes FROM staging s WHERE s.library_id = ${id}`,
  );
  const left = await tx.query<LeftFile>(
    sql`SELECT f.path, s.remote_id AS demand, s.ready_until AS until FROM staging s JOIN tape_file f ON f.id = s.file_id
        WHERE s.library_id = ${id} ORDER BY s.remote_id, f.path LIMIT ${MOST_LEFT}`,
  );
  return { leftFiles: sum?.files ?? 0, leftBytes: sum?.bytes ?? 0n, left };
}

function describeLeft({ leftFiles, leftBytes, left }: Left): object {
  if (leftFiles === 0) return {};
  return { leftFiles, leftBytes: String(leftBytes), demands: [...new Set(left.map(({ demand }) => demand))] };
}

/** What is read of a file that an import has just moved elsewhere is stopped within seconds. */
async function refuseReading(tx: Transaction, { id, name }: { id: number; name: string }): Promise<void> {
  const rows = await tx.query<{ drive: string; recalls: number }>(
    sql`SELECT d.name AS drive, count(*)::int AS recalls FROM drive d JOIN recall c ON c.drive_id = d.id
        WHERE d.library_id = ${id} AND c.state = 'RUNNING' GROUP BY d.id ORDER BY d.id`,
  );
  if (!rows[0]) return;
  const { drive, recalls } = rows[0];
  throw new InUseError(
    `the library ${quote(name)} is read: ${plural(recalls, 'recall runs', 'recalls run')} on ${drive}; try again when ${recalls === 1 ? 'it has' : 'they have'} ended`,
  );
}
