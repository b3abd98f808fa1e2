/** What an engine has done: stage moves, and what lies on disk. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { vi } from 'vitest';
import { moves, type Stage, stageLetters } from '../../src/core/stages.js';
import { markerName } from '../../src/restore-area/marker.js';
import type { TestApp } from './app.js';
import './compare-bytes.js';
import { waitFor } from './wait.js';

type Bell = 'event' | 'recall' | 'notification' | 'room';

/** Notifies the engine that there may be work. It looks later: see `ringUntilSeen`. */
export async function ring(app: TestApp, bell: Bell): Promise<void> {
  await app.ctx.db.pool.query(`SELECT pg_notify('tapegate', $1)`, [bell]);
}

/** A part of the first statement of each look for work. */
const LOOKS = {
  drives: 'AS "isQueued"',
  staging: 'DELETE FROM staging',
  removal: 'string_agg(g.disk_id',
  mail: 'FROM mail_sender',
};

/** A look has ended when the next one begins. A failed drive sends its statement twice in a look: before and after it is resumed. */
const STATEMENTS = 3;

/** Notifies the engine, and waits until each of its loops has looked for work. Call it before a test that nothing has happened. */
export async function ringUntilSeen(app: TestApp, bell: Bell, who: keyof typeof LOOKS): Promise<void> {
  const sent = vi.spyOn(app.ctx.db.pool, 'query');
  try {
    await waitFor(`the engine to look for work: ${who}`, async () => {
      await ring(app, bell);
      const counts = new Map<string, number>();
      for (const [{ text, values }] of sent.mock.calls as unknown as [{ text?: string; values?: unknown[] }][]) {
        if (!text?.includes(LOOKS[who])) continue;
        const loop = String(who === 'drives' && values);
        counts.set(loop, (counts.get(loop) ?? 0) + 1);
      }
      return counts.size > 0 && [...counts.values()].every((count) => count >= STATEMENTS);
    });
  } finally {
    sent.mockRestore();
  }
}

/** Returns the moves of the files with this prefix, as letters (`TA`), in the order of the event table. */
export async function readMoves(app: TestApp, prefix: string): Promise<{ path: string; move: string }[]> {
  const { rows } = await app.ctx.db.pool.query<{ path: string; from: Stage; to: Stage }>(
    `SELECT f.path, e.from_stage AS "from", e.to_stage AS "to" FROM event e JOIN tape_file f ON f.id = e.file_id
     WHERE starts_with(f.path, $1) ORDER BY e.id`,
    [prefix],
  );
  return rows.map(({ path, from, to }) => ({ path, move: stageLetters[from] + stageLetters[to] }));
}

/** Returns the moves in the event table that src/core/stages.ts forbids, or that do not begin at the stage of the file. */
export async function findIllegalMoves(app: TestApp): Promise<string[]> {
  const legal = new Set(moves.map(({ from, to }) => stageLetters[from] + stageLetters[to]));
  const at = new Map<string, string>();
  return (await readMoves(app, '/')).flatMap(({ path, move }) => {
    const [from = '', to = ''] = move;
    const isLegal = legal.has(move) && (at.get(path) ?? from) === from;
    at.set(path, to);
    return isLegal ? [] : [`${path}: ${move}`];
  });
}

export async function readStage(app: TestApp, file: string): Promise<string> {
  const { rows } = await app.ctx.db.pool.query<{ stage: Stage }>('SELECT stage FROM tape_file WHERE path = $1', [file]);
  return rows[0] ? stageLetters[rows[0].stage] : 'none';
}

/** Returns the bytes of a file in the restore area, if it exists. */
export function readRestored(app: TestApp, file: string): Buffer | undefined {
  const place = path.join(app.restoreDir, file);
  return existsSync(place) ? readFileSync(place) : undefined;
}

/** Lists all files and directories below a directory, except the marker. Links are not followed. */
export function listTree(dir: string): string[] {
  const entries = readdirSync(dir, { withFileTypes: true }).filter((entry) => !entry.name.startsWith(markerName));
  const names = entries.flatMap((entry) => [
    entry.name,
    ...(entry.isDirectory() ? listTree(path.join(dir, entry.name)).map((name) => `${entry.name}/${name}`) : []),
  ]);
  return names.sort();
}

interface DiskFigures {
  used: bigint;
  reserved: bigint;
}

/** Returns the bytes that are in use and reserved on all restore disks. */
export async function readDisks(app: TestApp): Promise<DiskFigures> {
  const { rows } = await app.ctx.db.pool.query<DiskFigures>(
    'SELECT sum(used)::bigint AS used, sum(reserved)::bigint AS reserved FROM restore_disk',
  );
  return rows[0] ?? { used: 0n, reserved: 0n };
}
