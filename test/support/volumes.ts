/** The positions of files on tape. */
import type { TestApp } from './app.js';

/** The result of a mutation of a volume. */
export interface Told {
  __typename: string;
  files?: number;
  bytes?: string;
  requests?: number;
  elsewhere?: number;
  withdrawn?: number;
  message?: string;
}

/** Returns for each file below a prefix: its path, its position, that of its copy, and the error of the copy. */
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
