/** An operation in several steps misses no file that is renamed between two steps. */
import { expect, test } from 'vitest';
import { purgeFiles, reinstateFiles, withdrawFiles } from '../../src/domain/catalogue/withdrawals.js';
import { renameFiles } from '../../src/domain/catalogue-changes/renames.js';
import { retireVolume } from '../../src/domain/catalogue-changes/retirements.js';
import { moveVolume } from '../../src/domain/catalogue-changes/volume-moves.js';
import type { Context } from '../../src/domain/context.js';
import { addFiles } from '../support/factories.js';
import { whileLocked } from '../support/locks.js';
import { STEP, useCatalogue } from '../support/use-app.js';

const FILES = STEP + 2;

const app = useCatalogue();

type Run = (ctx: Context, name: string) => Promise<{ files: number }>;
const withdraw: Run = (ctx, name) => withdrawFiles(ctx, { path: `/${name}/` });

/** `isMissed` is an SQL condition on the file `f`, true if the operation has missed the file. */
const cases: [name: string, run: Run, isMissed: string, prepare?: Run][] = [
  ['withdraw', withdraw, 'f.withdrawn_at IS NULL'],
  ['reinstate', (ctx, name) => reinstateFiles(ctx, { path: `/${name}/` }), 'f.withdrawn_at IS NOT NULL', withdraw],
  ['purge', (ctx, name) => purgeFiles(ctx, { path: `/${name}/` }), 'true', withdraw],
  ['rename', (ctx, name) => renameFiles(ctx, { from: `/${name}/`, to: '/renamed/' }), 'true'],
  [
    'move',
    (ctx, name) => moveVolume(ctx, { from: name, to: 'moved' }),
    `f.volume_id = (SELECT id FROM volume WHERE name = 'move')`,
  ],
  ['retire', (ctx, name) => retireVolume(ctx, { name, withdraw: true }), 'f.volume_id IS NOT NULL'],
];

test.each(cases)('%s misses no file', async (name, run, isMissed, prepare) => {
  const numbers = Array.from({ length: FILES }, (_, n) => 100_000 + n);
  const files = numbers.map((n) => ({ path: `/${name}/f${n}`, volume: name, position: BigInt(n) }));
  await addFiles(app.ctx, files);
  await prepare?.(app.ctx, name);
  const first = `SELECT FROM tape_file WHERE path = '/${name}/f100000' FOR UPDATE`;
  const { running } = await whileLocked(app, first, async (waiters) => {
    const running = run(app.ctx, name);
    await waiters(1); // the first step has selected its files
    const last = `UPDATE tape_file SET path = '/${name}/a' WHERE path = '/${name}/f${99_999 + FILES}'`;
    await app.ctx.db.pool.query(last); // a rename by Tapegate would wait for the step
    return { running };
  });
  expect(await running).toMatchObject({ files: FILES });
  const { rows } = await app.ctx.db.pool.query(
    `SELECT f.path FROM tape_file f WHERE starts_with(f.path, '/${name}/') AND ${isMissed}`,
  );
  expect(rows).toEqual([]);
});
