/** Reads and adds positions of files on tape. */
import type { TestApp } from './app.js';
import { addFiles } from './factories.js';

/** Result of a mutation of a volume. */
export interface Told {
  __typename: string;
  fileCount?: number;
  bytes?: string;
  requestCount?: number;
  filesElsewhere?: number;
  filesWithdrawn?: number;
  message?: string;
}

/** Returns a line for each file below a prefix: path, first position, second position, and error of the second copy. */
export async function placesBelow(app: TestApp, prefix: string): Promise<string[]> {
  const { rows } = await app.ctx.db.pool.query<{ text: string }>(
    `SELECT f.path || ' ' || coalesce(v.name || ':' || coalesce(f.position::text, '-'), '-') || ' '
       || coalesce(o.name || ':' || coalesce(f.copy_position::text, '-'), '-') || coalesce(' ' || f.copy_error, '') AS text
     FROM tape_file f LEFT JOIN volume v ON v.id = f.volume_id LEFT JOIN volume o ON o.id = f.copy_volume_id
     WHERE starts_with(f.path, $1) ORDER BY f.path`,
    [prefix],
  );
  return rows.map(({ text }) => text);
}

/** Makes updates of a file fail, as if the process were killed there. @returns a function that ends the failures */
export async function failAt(app: TestApp, path: string): Promise<() => Promise<unknown>> {
  await app.ctx.db.pool.query(
    `CREATE FUNCTION fail_here() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken off'; END $$;
     CREATE TRIGGER fail_here BEFORE UPDATE ON tape_file FOR EACH ROW WHEN (NEW.path = '${path}') EXECUTE FUNCTION fail_here()`,
  );
  return () => app.ctx.db.pool.query('DROP TRIGGER fail_here ON tape_file; DROP FUNCTION fail_here');
}

/** Returns the number of files below a prefix on each volume. */
export async function countByVolume(app: TestApp, prefix: string): Promise<Record<string, number>> {
  const { rows } = await app.ctx.db.pool.query<{ name: string; files: number }>(
    `SELECT coalesce(v.name, '-') AS name, count(*)::int AS files FROM tape_file f LEFT JOIN volume v ON v.id = f.volume_id
     WHERE starts_with(f.path, $1) GROUP BY 1`,
    [prefix],
  );
  return Object.fromEntries(rows.map(({ name, files }) => [name, files]));
}

/** Adds files from texts such as `/a V1:1 V2:7`: a path, a first position, and an optional second position. */
export async function addPlaced(app: TestApp, ...places: string[]): Promise<void> {
  const rows = places.map((place) => {
    const [path = '', first = '', second = ''] = place.split(' ');
    const [volume = '', position = ''] = first.split(':');
    const [copyVolume = '', copyPosition = ''] = second.split(':');
    const copy = copyVolume ? { copyVolume, copyPosition: copyPosition === '-' ? null : BigInt(copyPosition) } : {};
    return { path, volume, position: BigInt(position), ...copy };
  });
  await addFiles(app.ctx, rows);
}
