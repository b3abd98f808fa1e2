/** Names by which libraries know files that were renamed here, and not there. */
import { plannedByKeys, plannedFreely } from '../../database/planning.js';
import { sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { quote } from '../../errors.js';
import { isByPath } from '../conditions.js';
import { ImportError, MAX_FAULTS } from './import-faults.js';

/**
 * A library that finds files by their paths has one of each name: a row with the name of before would be another name of the same file, or give its
 * bytes to the file that has this path by now. What says nothing new of that one may stay. New files are in the temporary table `fresh`, and
 * inserted; the catalogue is locked.
 * @throws ImportError
 */
export async function refuseTapeNames(tx: Transaction): Promise<void> {
  tx.send(plannedByKeys()); // there is hardly ever one, and PostgreSQL may believe that each file is
  const [renamed] = await tx.query(sql`SELECT FROM tape_file f WHERE f.tape_path IS NOT NULL LIMIT 1`);
  tx.send(plannedFreely());
  if (!renamed) return;
  const rows = await tx.query<{ line: bigint; path: string; name: string }>(
    sql`SELECT i.line, o.path, f.path AS name FROM incoming i JOIN tape_file o ON o.tape_path = i.path JOIN tape_file f ON f.path = i.path
        WHERE EXISTS (SELECT FROM volume v WHERE v.name IN (i.volume, i.copy_volume) AND ${isByPath(sql`v.id`)}
            AND v.library_id IN (SELECT w.library_id FROM volume w WHERE w.id IN (o.volume_id, o.copy_volume_id))
            AND (f.id IN (SELECT id FROM fresh) OR (v.id IN (f.volume_id, f.copy_volume_id)) IS NOT TRUE OR i.size <> f.size
              OR i.checksum <> f.checksum))
        ORDER BY i.line LIMIT ${MAX_FAULTS + 1}`,
  );
  if (rows.length === 0) return;
  throw new ImportError(
    rows.map(
      ({ line, path, name }) =>
        `line ${line}: the library has one file of the name ${quote(name)}, which was renamed to ${quote(path)} here (\`rename --in-library\` says that it was renamed there as well)`,
    ),
  );
}
