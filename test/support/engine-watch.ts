/** Reads the effects of an engine: stage moves, restored files, and space on restore disks. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { vi } from 'vitest';
import { moves, type Stage, stageLetters } from '../../src/core/stages.js';
import { markerName } from '../../src/restore-area/marker.js';
import type { TestApp } from './app.js';
import './compare-bytes.js';
import { waitFor } from './wait.js';

type Bell = 'event' | 'recall' | 'notification' | 'room';

/** Notifies the engine that there may be work. Returns before the engine has checked: see `ringUntilSeen`. */
export async function ring(app: TestApp, bell: Bell): Promise<void> {
  await app.ctx.db.pool.query(`SELECT pg_notify('tapegate', $1)`, [bell]);
}

/** Text that identifies the first SQL statement of a check for work, for each engine loop. */
const LOOKS = {
  drives: 'AS "isQueued"',
  staging: 'DELETE FROM staging',
  removal: 'string_agg(g.disk_id',
  mail: 'FROM mail_sender',
};

/**
 * Number of first statements after which a whole check has certainly ended.
 * A failed drive sends the first statement twice in one check, before and after the drive is resumed.
 */
const STATEMENTS = 3;

/**
 * Notifies the engine, and waits until each loop has checked for work.
 * Call the function before an assertion that the engine did nothing.
 */
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

/** Returns the stage moves of files below a prefix in the order of events, as letters such as `TA`. */
export async function readMoves(app: TestApp, prefix: string): Promise<{ path: string; move: string }[]> {
  const { rows } = await app.ctx.db.pool.query<{ path: string; from: Stage; to: Stage }>(
    `SELECT f.path, e.from_stage AS "from", e.to_stage AS "to" FROM event e JOIN tape_file f ON f.id = e.file_id
     WHERE starts_with(f.path, $1) ORDER BY e.id`,
    [prefix],
  );
  return rows.map(({ path, from, to }) => ({ path, move: stageLetters[from] + stageLetters[to] }));
}

/**
 * Returns the stage moves that `src/core/stages.ts` forbids, or that begin at another stage than the previous move's
 * end.
 */
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

/** Returns the bytes of a file in the restore area; undefined if the file does not exist. */
export function readRestored(app: TestApp, file: string): Buffer | undefined {
  const place = path.join(app.restoreDir, file);
  return existsSync(place) ? readFileSync(place) : undefined;
}

/** Lists all files and directories below a directory except markers, without following links. */
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

/** Returns the used and reserved bytes of all restore disks. */
export async function readDisks(app: TestApp): Promise<DiskFigures> {
  const { rows } = await app.ctx.db.pool.query<DiskFigures>(
    'SELECT sum(used)::bigint AS used, sum(reserved)::bigint AS reserved FROM restore_disk',
  );
  return rows[0] ?? { used: 0n, reserved: 0n };
}
