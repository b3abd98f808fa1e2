/** Rows of files that have two copies on tape. */
import { sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { quote } from '../../errors.js';
import { ImportError, MAX_FAULTS } from './import-faults.js';
import { isSamePlace, isSameVersion } from './versions.js';

const isLeftOut = (name: string) => sql`${name} = ANY (i.kept)`;

/** The row says nothing by which its bytes would be others than those of the file `f`, wherever they lie. */
const saysSameBytes = sql`(i.size = f.size AND (${isLeftOut('checksum')} OR coalesce(i.checksum = f.checksum, true)))`;

/**
 * A file is read from its second copy once the first could not be read: the two change places here, and not in the list of who has archived
 * them. So a row that names both the other way round, or the second as the only one, says nothing new of its place, unless it is another
 * version, which may lie where the earlier one lay.
 */
export async function alignCopies(tx: Transaction): Promise<void> {
  const isNamedFirst = sql`o.line = i.line AND f.id = o.id AND s.id = f.copy_volume_id AND NOT ${isLeftOut('volume')} AND i.volume = s.name
    AND (${isLeftOut('position')} OR f.copy_position IS NULL OR i.position = f.copy_position)`;
  const saysOther = sql`(${isLeftOut('copyVolume')} OR i.copy_volume IS NOT DISTINCT FROM v.name)
    AND (${isLeftOut('copyPosition')} OR i.copy_position IS NOT DISTINCT FROM f.position)`;
  await tx.query(
    sql`UPDATE incoming i SET volume = v.name, position = f.position, copy_volume = s.name,
          copy_position = coalesce(f.copy_position, CASE WHEN NOT ${isLeftOut('position')} THEN i.position END),
          kept = array_remove(i.kept, 'copyPosition')
        FROM old o, tape_file f JOIN volume v ON v.id = f.volume_id, volume s WHERE ${isNamedFirst} AND ${saysOther} AND ${saysSameBytes}`,
  );
  const ofFile = sql`o.line = i.line AND f.id = o.id`;
  // a list of second copies alone, which have become the first ones
  await tx.query(
    sql`UPDATE incoming i SET copy_volume = s.name, copy_position = f.copy_position
        FROM old o, tape_file f JOIN volume v ON v.id = f.volume_id JOIN volume s ON s.id = f.copy_volume_id
        WHERE ${ofFile} AND ${isLeftOut('volume')} AND i.copy_volume = v.name
          AND (${isLeftOut('copyPosition')} OR i.copy_position IS NOT DISTINCT FROM f.position)`,
  );
  const namedCopy = sql`kept = array_remove(array_remove(i.kept, 'copyPosition'), 'copyVolume')`;
  // a list of first copies alone: a new place is that of the one that could not be read, and the other one stays, if it has the same bytes
  await tx.query(
    sql`UPDATE incoming i SET copy_volume = v.name, copy_position = f.position, is_copy_known = true, ${namedCopy}
        FROM old o, tape_file f JOIN volume v ON v.id = f.volume_id
        WHERE ${ofFile} AND f.copy_error IS NOT NULL AND ${isLeftOut('copyVolume')} AND NOT ${isLeftOut('volume')} AND i.volume <> v.name`,
  );
  // other bytes on the volume that had the second copy of the earlier ones
  await tx.query(
    sql`UPDATE incoming i SET copy_volume = NULL, copy_position = NULL, ${namedCopy} FROM old o, tape_file f JOIN volume s ON s.id = f.copy_volume_id
        WHERE ${ofFile} AND ${isLeftOut('copyVolume')} AND NOT ${isLeftOut('volume')} AND i.volume = s.name AND NOT ${saysSameBytes}`,
  );
}

/** @throws ImportError where both copies would be on one volume, or there is a second one and no first */
export async function refuseCopies(tx: Transaction): Promise<void> {
  const rows = await tx.query<{ line: bigint; copy: string; volume: string | null }>(
    sql`SELECT i.line, i.copy_volume AS copy, i.volume FROM incoming i LEFT JOIN old o ON o.line = i.line
        WHERE (o.id IS NULL OR EXISTS (SELECT FROM known k WHERE k.line = i.line))
          AND i.copy_volume IS NOT NULL AND (i.volume IS NULL OR i.volume = i.copy_volume) ORDER BY i.line LIMIT ${MAX_FAULTS + 1}`,
  );
  if (rows.length === 0) return;
  throw new ImportError(
    rows.map(({ line, copy, volume }) =>
      volume === null
        ? `line ${line}: copy_volume must be left out where the file has no volume, not ${quote(copy)}`
        : `line ${line}: copy_volume must be another volume than that of the file, not ${quote(copy)}`,
    ),
  );
}

/** Of a file with other bytes the second copy is one of before, unless the row says where it is. */
export async function dropSecondCopies(tx: Transaction): Promise<void> {
  await tx.query(
    sql`UPDATE tape_file f SET copy_volume_id = NULL, copy_position = NULL, copy_error = NULL FROM known k JOIN incoming i ON i.line = k.line
        WHERE f.id = k.id AND f.copy_volume_id IS NOT NULL AND (${isLeftOut('copyVolume')} OR i.is_copy_known) AND NOT ${isSameVersion('k', 'f')}
          AND NOT (k.checksum IS NULL AND f.checksum IS NOT NULL AND k.size = f.size AND ${isSamePlace('k', 'f')})`,
  );
}

/** The file `f` of `known` has a second copy that it did not have, and that nobody has tried. */
export const hasNewCopy = sql`(f.copy_volume_id IS NOT NULL AND f.copy_error IS NULL
  AND (k.copy_volume_id, k.copy_position) IS DISTINCT FROM (f.copy_volume_id, f.copy_position))`;
