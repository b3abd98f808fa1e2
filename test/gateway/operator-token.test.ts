/** The operator's token that a start leaves in DATA_DIR: for nobody else, and one at a time. */
import { execFileSync } from 'node:child_process';
import { chmodSync, readFileSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ensureOperatorToken } from '../../src/access/operator-token.js';
import { readOperatorToken } from '../../src/access/operator-token-file.js';
import { findNoted, findToken } from '../../src/operations/access/tokens.js';
import { addSeconds } from '../../src/time.js';
import { startApp, type TestApp } from '../support/app.js';

let app: TestApp;
let file: string;

beforeAll(async () => {
  app = await startApp();
  file = path.join(app.dataDir, 'operator.token');
});
afterAll(() => app.close());

const read = () => readFileSync(file, 'utf8').trim();
const goodIn = () => findNoted(app.ctx, `made at a start, in ${file} of ${hostname()}`);

test('it is for this user alone, and stays while it is good', async () => {
  await ensureOperatorToken(app.ctx);
  expect(statSync(file).mode & 0o777).toBe(0o600);
  const first = read();
  expect(await findToken(app.ctx, first)).toMatchObject({ name: 'operator', role: 'OPERATOR' });
  await ensureOperatorToken(app.ctx);
  expect([read(), (await goodIn()).length]).toEqual([first, 1]);
});

test.each<[string, () => void]>([
  ['others could read', () => chmodSync(file, 0o644)],
  ['has gone', () => rmSync(file)],
  ['is no token', () => writeFileSync(file, 'nothing')],
])('one that %s is made anew, and the old one is good no longer', async (_name, spoil) => {
  await ensureOperatorToken(app.ctx);
  const old = read();
  spoil();
  await ensureOperatorToken(app.ctx);
  expect(read()).not.toBe(old);
  expect([await findToken(app.ctx, old), (await goodIn()).length]).toEqual([undefined, 1]);
  expect((await readOperatorToken(app.dataDir))?.secret).toBe(read());
});

test('it is good for thirty days, from the last time that a gateway ran there', async () => {
  const at = (days: number) => ({ ...app.ctx, now: () => addSeconds(app.ctx.now(), days * 86_400) });
  await ensureOperatorToken(app.ctx);
  const first = read();
  const isGood = async (days: number) => (await findToken(at(days), first)) !== undefined;
  expect([await isGood(29), await isGood(31)]).toEqual([true, false]);
  await ensureOperatorToken(at(10));
  expect([read(), await isGood(39), await isGood(41)]).toEqual([first, true, false]);
  await ensureOperatorToken(at(50));
  expect(read()).not.toBe(first);
});

test('starts at the same time leave one that is good', async () => {
  rmSync(file);
  await Promise.all([1, 2, 3].map(() => ensureOperatorToken(app.ctx)));
  expect(await findToken(app.ctx, read())).toBeDefined();
});

test('a command takes neither a pipe nor a link in its place', async () => {
  rmSync(file);
  execFileSync('mkfifo', [file]);
  expect(await readOperatorToken(app.dataDir)).toBeUndefined();
  rmSync(file);
  writeFileSync(file, 'tapegate_x', { mode: 0o600 });
  expect((await readOperatorToken(app.dataDir))?.secret).toBe('tapegate_x');
  renameSync(file, `${file}.real`);
  symlinkSync(`${file}.real`, file);
  expect(await readOperatorToken(app.dataDir)).toBeUndefined();
});
