/** What an operator has done with more files than one step takes, while one of them gets a path where earlier steps have been. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Context } from '../../src/context.js';
import { stepSize } from '../../src/operations/catalogue/chosen-files.js';
import { forgetFiles } from '../../src/operations/catalogue/forgetting.js';
import { renameFiles } from '../../src/operations/catalogue/renames.js';
import { retireVolume } from '../../src/operations/catalogue/retirements.js';
import { moveVolume } from '../../src/operations/catalogue/volume-moves.js';
import { reinstateFiles, withdrawFiles } from '../../src/operations/catalogue/withdrawals.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles } from '../support/factories.js';
import { findFaults } from '../support/faults.js';
import { whileLocked } from '../support/locks.js';

/** Files that an operation takes at a time here. */
const STEP = 100;

const FILES = STEP + 2;

let app: TestApp;
beforeAll(async () => {
  stepSize.files = STEP;
  app = await startApp();
});
afterAll(() => {
  stepSize.files = 10_000;
});
afterAll(async () => {
  expect(await findFaults(app)).toEqual([]);
  await app.close();
});

async function add(name: string): Promise<void> {
  const fileOf = (n: number) => ({ path: `/${name}/f${n}`, size: 1n, volume: name, position: BigInt(n) });
  await addFiles(
    app.ctx,
    Array.from({ length: FILES }, (_, n) => fileOf(100_000 + n)),
  );
}

/** As a rename of one file does it, which takes the turn of a step otherwise. */
const renameLast = (name: string) =>
  app.ctx.db.pool.query(`UPDATE tape_file SET path = '/${name}/a' WHERE path = '/${name}/f${99_999 + FILES}'`);

interface Case {
  name: string;
  /** What there is of its folder before. */
  prepare?: (ctx: Context) => Promise<unknown>;
  run: (ctx: Context) => Promise<{ files: number }>;
  /** A condition on the file `f`: it was passed over. */
  isLeft: string;
}

const withdrawn = (name: string) => (ctx: Context) => withdrawFiles(ctx, { path: `/${name}/` });
const cases: Case[] = [
  { name: 'withdraw', run: withdrawn('withdraw'), isLeft: 'f.withdrawn_at IS NULL' },
  {
    name: 'reinstate',
    prepare: withdrawn('reinstate'),
    run: (ctx) => reinstateFiles(ctx, { path: '/reinstate/' }),
    isLeft: 'f.withdrawn_at IS NOT NULL',
  },
  {
    name: 'forget',
    prepare: withdrawn('forget'),
    run: (ctx) => forgetFiles(ctx, { path: '/forget/' }),
    isLeft: 'true',
  },
  { name: 'rename', run: (ctx) => renameFiles(ctx, { from: '/rename/', to: '/renamed/' }), isLeft: 'true' },
  {
    name: 'move',
    run: (ctx) => moveVolume(ctx, { from: 'move', to: 'moved' }),
    isLeft: `f.volume_id = (SELECT id FROM volume WHERE name = 'move')`,
  },
  {
    name: 'retire',
    run: (ctx) => retireVolume(ctx, { name: 'retire', withdraw: true }),
    isLeft: 'f.volume_id IS NOT NULL',
  },
];

test.each(cases)('$name passes over no file', async ({ name, prepare, run, isLeft }) => {
  await add(name);
  await prepare?.(app.ctx);
  const { running } = await whileLocked(
    app,
    `SELECT FROM tape_file WHERE path = '/${name}/f100000' FOR UPDATE`,
    async (waiters) => {
      const done = run(app.ctx);
      await waiters(1); // the first step has chosen its files
      await renameLast(name);
      return { running: done };
    },
  );
  expect(await running).toMatchObject({ files: FILES });
  const { rows } = await app.ctx.db.pool.query(
    `SELECT f.path FROM tape_file f WHERE starts_with(f.path, '/${name}/') AND ${isLeft}`,
  );
  expect(rows).toEqual([]);
});
