/** Where files are on tape, and what is told of volumes that change. */
import type { TestApp } from './app.js';

/** What a mutation of a volume answers. */
export interface Told {
  __typename: string;
  files?: number;
  bytes?: string;
  requests?: number;
  elsewhere?: number;
  withdrawn?: number;
  message?: string;
}

/** Of each file below a folder, in order: its path, its first place, its second one, and why that one could not be read. */
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
