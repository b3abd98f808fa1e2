/** Rows of files that have two copies on tape. */
import { sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { isSameVersion } from './versions.js';

/**
 * A file is read from its second copy once the first could not be read: the two change places here, and not in the list of who has archived
 * them. So a row that names both the other way round, or the second as the only one, says nothing new of its place.
 */
export async function alignCopies(tx: Transaction): Promise<void> {
  const isLeftOut = (name: string) => sql`${name} = ANY (i.kept)`;
  const isNamedFirst = sql`o.line = i.line AND f.id = o.id AND s.id = f.copy_volume_id AND NOT ${isLeftOut('volume')} AND i.volume = s.name
    AND (${isLeftOut('position')} OR i.position IS NOT DISTINCT FROM f.copy_position)`;
  const saysOther = sql`(${isLeftOut('copyVolume')} OR i.copy_volume IS NOT DISTINCT FROM v.name)
    AND (${isLeftOut('copyPosition')} OR i.copy_position IS NOT DISTINCT FROM f.position)`;
  await tx.query(
    sql`UPDATE incoming i SET volume = v.name, position = f.position, copy_volume = s.name, copy_position = f.copy_position
        FROM old o, tape_file f JOIN volume v ON v.id = f.volume_id, volume s WHERE ${isNamedFirst} AND ${saysOther}`,
  );
}

/** Of a file with other bytes the second copy is one of before, unless the row says where it is. */
export async function dropSecondCopies(tx: Transaction): Promise<void> {
  await tx.query(
    sql`UPDATE tape_file f SET copy_volume_id = NULL, copy_position = NULL, copy_error = NULL FROM known k JOIN incoming i ON i.line = k.line
        WHERE f.id = k.id AND f.copy_volume_id IS NOT NULL AND 'copyVolume' = ANY (i.kept) AND NOT ${isSameVersion('k', 'f')}`,
  );
}

/** The file `f` of `known` has a second copy that it did not have, and that nobody has tried. */
export const hasNewCopy = sql`(f.copy_volume_id IS NOT NULL AND f.copy_error IS NULL
  AND (k.copy_volume_id, k.copy_position) IS DISTINCT FROM (f.copy_volume_id, f.copy_position))`;
