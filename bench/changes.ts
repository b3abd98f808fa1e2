/**
 * FILES (200,000) files of one folder are withdrawn, brought back, renamed, moved to another volume, and forgotten, beside updates of as many rows
 * of the same table alone; and how long a request that somebody makes meanwhile waits, who has the catalogue to wait for. ROUNDS (3), medians.
 *
 *   npm run compile && node dist/bench/changes.js
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../src/context.js';
import { raw, type Sql, sql } from '../src/database/sql.js';
import { forgetFiles } from '../src/operations/catalogue/forgetting.js';
import { renameFiles } from '../src/operations/catalogue/renames.js';
import { moveVolume } from '../src/operations/catalogue/volume-moves.js';
import { reinstateFiles, withdrawFiles } from '../src/operations/catalogue/withdrawals.js';
import { setQuota } from '../src/operations/quotas/quotas.js';
import { createRequest } from '../src/operations/requests/create.js';
import { pathsOf } from './catalogue.js';
import { inTurns, tellFigure } from './figures.js';
import { seconds, withBench } from './kit.js';

const files = Number(process.env.FILES ?? 200_000);
const rounds = Number(process.env.ROUNDS ?? 3);
const FOLDER = '/bench/';

/** Where it gives a number, those are the seconds that count: something else came before. */
const works: Record<string, { ours: (ctx: Context) => Promise<unknown>; bare: Sql }> = {
  withdrawn: {
    ours: (ctx) => withdrawFiles(ctx, { path: FOLDER }),
    bare: sql`UPDATE tape_file SET withdrawn_at = now()`,
  },
  'brought back': {
    ours: async (ctx) => {
      await withdrawFiles(ctx, { path: FOLDER });
      return await seconds(() => reinstateFiles(ctx, { path: FOLDER }));
    },
    bare: sql`UPDATE tape_file SET withdrawn_at = NULL`,
  },
  renamed: {
    ours: (ctx) => renameFiles(ctx, { from: FOLDER, to: '/named/' }),
    bare: sql`UPDATE tape_file SET path = '/named/' || substr(path, ${FOLDER.length + 1}::int)`,
  },
  'moved to another volume': {
    ours: (ctx) => moveVolume(ctx, { from: 'V1', to: 'V2' }),
    bare: sql`UPDATE tape_file SET volume_id = (SELECT id FROM volume WHERE name = 'V2')`,
  },
  forgotten: {
    ours: async (ctx) => {
      await withdrawFiles(ctx, { path: FOLDER });
      return await seconds(() => forgetFiles(ctx, { path: FOLDER }));
    },
    bare: sql`DELETE FROM tape_file`,
  },
};

async function fill({ db }: Context): Promise<void> {
  await db.pool.query('TRUNCATE request, hold, awaited_path, recall, event CASCADE');
  await db.pool.query('UPDATE quota SET used = 0, open_requests = 0, awaited_paths = 0');
  await db.pool.query('DELETE FROM tape_file');
  await db.pool.query('DELETE FROM volume');
  await db.pool.query(`INSERT INTO volume (name) VALUES ('V1'), ('V2')`);
  await db.pool.query(
    sql`INSERT INTO tape_file (path, size, stage, checksum, volume_id, "position")
        SELECT ${'/bench'} || path, size, 'ONTAPE', 'adler32:00000001', (SELECT id FROM volume WHERE name = 'V1'), row_number() OVER ()
        FROM (${pathsOf(0, files - 1, files)}) p`,
  );
  await db.pool.query(raw('VACUUM (ANALYZE) tape_file'));
  await db.pool.query('CHECKPOINT');
}

/** Makes requests one after another until it is over. @returns the longest wait, in seconds */
async function keepAsking(ctx: Context, isOver: () => boolean): Promise<number> {
  let longest = 0;
  for (let n = 0; !isOver(); n++) {
    await sleep(10);
    longest = Math.max(
      longest,
      await seconds(() => createRequest(ctx, { quota: 'alice', files: [`/not/there/${n}`] })),
    );
  }
  return longest;
}

async function measure(ctx: Context, name: string): Promise<void> {
  const work = works[name];
  if (!work) return;
  const waits: number[] = [];
  const result = await inTurns(
    {
      ours: async () => {
        await fill(ctx);
        let isOver = false;
        const asked = keepAsking(ctx, () => isOver);
        let within: unknown;
        const whole = await seconds(async () => {
          within = await work.ours(ctx);
        }).finally(() => {
          isOver = true;
        });
        waits.push(await asked);
        return typeof within === 'number' ? within : whole;
      },
      bare: async () => {
        await fill(ctx);
        return await seconds(() => ctx.db.pool.query(work.bare));
      },
    },
    rounds,
  );
  const figure = { ours: result.ours.median, reference: result.bare.median, beside: 'the bare statement', unit: 's' };
  tellFigure({ work: `${files} files, ${name}`, ...figure, isCost: true });
  console.log(`  a request that was made meanwhile waited ${Math.max(...waits).toFixed(2)} s at most`);
}

await withBench(async (ctx) => {
  await setQuota(ctx, { user: 'alice', size: 10n ** 15n });
  for (const name of Object.keys(works)) await measure(ctx, name);
});
