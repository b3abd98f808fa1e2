/** Rows that say what came of files which were looked at before, and not what a list has of their paths. */
import { sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { quote } from '../../errors.js';
import type { KnownFile } from './files.js';
import { ImportError, MAX_FAULTS } from './import-faults.js';

/** A file as the catalogue had it. */
export type StandingFile = Pick<KnownFile, 'id' | 'path' | 'place'>;

/** To be asked with the catalogue locked. @throws ImportError where a file is another one by now, is withdrawn, or has another place */
export async function refuseOvertaken(tx: Transaction, standing: readonly StandingFile[]): Promise<void> {
  if (standing.length === 0) return;
  const [ids, paths] = [standing.map(({ id }) => id), standing.map(({ path }) => path)];
  const volumes = standing.map(({ place }) => place?.volume ?? null);
  const positions = standing.map(({ place }) => place?.position ?? null);
  const rows = await tx.query<{ path: string }>(
    sql`SELECT s.path FROM unnest(${ids}::bigint[], ${paths}::text[], ${volumes}::text[], ${positions}::bigint[]) AS s (id, path, volume, position)
        WHERE NOT EXISTS (
          SELECT FROM tape_file f LEFT JOIN volume v ON v.id = f.volume_id WHERE f.id = s.id AND f.path = s.path AND f.withdrawn_at IS NULL
            AND (s.volume, s.position) IS NOT DISTINCT FROM (CASE WHEN f.position IS NOT NULL THEN v.name END, f.position))
        ORDER BY s.path LIMIT ${MAX_FAULTS + 1}`,
  );
  if (rows.length > 0) {
    throw new ImportError(rows.map(({ path }) => `${quote(path)} was renamed, withdrawn, or is elsewhere by now`));
  }
}
