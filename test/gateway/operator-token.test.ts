/** The operator's token that a gateway writes to DATA_DIR. */
import { execFileSync } from 'node:child_process';
import { chmodSync, readFileSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { ensureOperatorToken } from '../../src/access/operator-token.js';
import { readOperatorToken } from '../../src/access/operator-token-file.js';
import { findNoted, findToken } from '../../src/operations/access/tokens.js';
import { addSeconds } from '../../src/time.js';
import { useApp } from '../support/use-app.js';

let file: string;
const app = useApp({}, async () => {
  file = path.join(app.dataDir, 'operator.token');
});

const read = () => readFileSync(file, 'utf8').trim();
const goodIn = () => findNoted(app.ctx, `made at a start, in ${file} of ${hostname()}`);

test('its file is private, and stays while the token is valid', async () => {
  await ensureOperatorToken(app.ctx);
  expect(statSync(file).mode & 0o777).toBe(0o600);
  const first = read();
  expect(await findToken(app.ctx, first)).toMatchObject({ name: 'operator', role: 'OPERATOR' });
  await ensureOperatorToken(app.ctx);
  expect([read(), (await goodIn()).length]).toEqual([first, 1]);
});

test.each<[string, () => void]>([
  ['others can read', () => chmodSync(file, 0o644)],
  ['is missing', () => rmSync(file)],
  ['contains no token', () => writeFileSync(file, 'nothing')],
])('a token whose file %s is replaced and revoked', async (_name, spoil) => {
  await ensureOperatorToken(app.ctx);
  const old = read();
  spoil();
  await ensureOperatorToken(app.ctx);
  expect(read()).not.toBe(old);
  expect([await findToken(app.ctx, old), (await goodIn()).length]).toEqual([undefined, 1]);
  expect((await readOperatorToken(app.dataDir))?.secret).toBe(read());
});

test('it is valid for thirty days after the last start of a gateway', async () => {
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

test('concurrent starts leave one valid token', async () => {
  rmSync(file);
  await Promise.all([1, 2, 3].map(() => ensureOperatorToken(app.ctx)));
  expect(await findToken(app.ctx, read())).toBeDefined();
});

test('a command accepts neither a pipe nor a link in its place', async () => {
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
