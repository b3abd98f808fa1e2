/**
 * Renamed files keep the copies that they have where these are, so that the path of another file may be taken on disk: its copy is put
 * elsewhere then. Names that begin so are no catalogue's (findPathProblem in input.ts).
 */
import path from 'node:path';
import { sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';

interface Wanted {
  fileId: bigint;
  logicalPath: string;
}

/**
 * Notes where files that are RESTORING since just now are put, as far as that is not at their paths. They are locked: who renames a file that
 * is on disk, or on its way there, has done so before, or does it after this.
 * @returns the places, below any mount point
 */
export async function choosePlaces(tx: Transaction, files: readonly Wanted[]): Promise<Map<bigint, string>> {
  const [hasAny] = await tx.query(sql`SELECT FROM renamed_place LIMIT 1`);
  if (!hasAny || files.length === 0) return new Map();
  const taken = await findTaken(tx, files);
  const others = files.filter(({ fileId }) => taken.has(fileId));
  if (others.length === 0) return new Map();
  const places = others.map(({ fileId, logicalPath }) => `/.tapegate-renamed/${fileId}/${path.basename(logicalPath)}`);
  const ids = others.map(({ fileId }) => fileId);
  await tx.query(
    sql`UPDATE tape_file f SET disk_path = p.path FROM unnest(${ids}::bigint[], ${places}::text[]) AS p (id, path) WHERE f.id = p.id`,
  );
  return new Map(others.map(({ fileId }, index) => [fileId, places[index] ?? '']));
}

/** Copies of other files stand at their paths, at folders of these, or below them. */
async function findTaken(tx: Transaction, files: readonly Wanted[]): Promise<Set<bigint>> {
  const around = files.flatMap(({ fileId, logicalPath }) =>
    [logicalPath, ...foldersAround(logicalPath)].map((name) => ({ fileId, name })),
  );
  const [ids, names] = [around.map(({ fileId }) => fileId), around.map(({ name }) => name)];
  const rows = await tx.query<{ id: bigint }>(
    sql`SELECT w.id FROM unnest(${ids}::bigint[], ${names}::text[]) AS w (id, name)
          WHERE EXISTS (SELECT FROM renamed_place p WHERE p.path = w.name AND p.file_id <> w.id)
        UNION SELECT f.id FROM unnest(${files.map(({ fileId }) => fileId)}::bigint[]) AS w (id) JOIN tape_file f ON f.id = w.id
          WHERE EXISTS (SELECT FROM renamed_place p WHERE p.path ~>=~ (f.path || '/') AND p.path ~<~ (f.path || '0') AND p.file_id <> f.id)`,
  );
  return new Set(rows.map(({ id }) => id));
}

function foldersAround(file: string): string[] {
  const folders: string[] = [];
  for (let folder = path.dirname(file); folder !== '/'; folder = path.dirname(folder)) folders.push(folder);
  return folders;
}
