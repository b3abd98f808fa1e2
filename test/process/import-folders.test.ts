/** Paths that are folders of other files' paths are refused where they enter. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { importRows } from '../../src/operations/catalogue/import.js';
import { readRows } from '../../src/operations/catalogue/import-rows.js';
import { startApp, type TestApp } from '../support/app.js';
import { cleanUp, runCli } from '../support/process.js';

let app: TestApp;

beforeAll(async () => {
  app = await startApp();
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

const importPaths = (...paths: string[]) =>
  importRows(
    app.ctx,
    readRows(Readable.from([Buffer.from(`path,size\n${paths.map((file) => `${file},1\n`).join('')}`)])),
  );

const refusal = (...faults: string[]) => `nothing was imported:\n${faults.map((fault) => `  ${fault}`).join('\n')}`;

test('a file and a folder of the same path are refused in one import, with their lines', async () => {
  await expect(importPaths('/one/p/q/r', '/one/x', '/one/p')).rejects.toThrow(
    refusal('lines 2 and 4: "/one/p" cannot be a file and a folder, of "/one/p/q/r"'),
  );
});

test('a path in, or around, one that the catalogue has is refused with its line; a like one is not', async () => {
  expect(await importPaths('/two/p', '/two/d/e/f')).toMatchObject({ added: 2 });
  await expect(importPaths('/two/new', '/two/p/q', '/two/d')).rejects.toThrow(
    refusal(
      'line 3: "/two/p" cannot be a file and a folder, of "/two/p/q"',
      'line 4: "/two/d" cannot be a file and a folder, of "/two/d/e/f"',
    ),
  );
  expect(await importPaths('/two/p-q', '/two/p.q', '/two/p0', '/two/d/e/f0', '/two/D')).toMatchObject({ added: 5 });
  expect(await importPaths('/two/p', '/two/d/e/f')).toMatchObject({ added: 0 });
});

test('of two imports that race, one is refused', async () => {
  for (let n = 0; n < 10; n++) {
    const results = await Promise.allSettled([importPaths(`/race/${n}`), importPaths(`/race/${n}/inner`)]);
    expect(results.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
  }
});

test('archive names the source whose path clashes, writes no byte of it to tape, and goes on with the others', async () => {
  await importPaths('/arc/sub', '/arc/a.nc/deep');
  const dir = path.join(app.dataDir, 'tree');
  mkdirSync(path.join(dir, 'sub'), { recursive: true });
  for (const name of ['a.nc', 'b.nc', 'sub/c.nc']) writeFileSync(path.join(dir, name), name);
  const env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir };
  const { code, stderr } = await runCli(['archive', dir, '--prefix', '/arc'], { env });
  expect(code).toBe(1);
  expect(stderr).toContain(`${dir}/a.nc: "/arc/a.nc" cannot be a file and a folder, of "/arc/a.nc/deep"`);
  expect(stderr).toContain(`${dir}/sub/c.nc: "/arc/sub" cannot be a file and a folder, of "/arc/sub/c.nc"`);
  const { rows } = await app.ctx.db.pool.query(
    `SELECT f.path, (SELECT sum(used)::int FROM volume) AS bytes FROM tape_file f WHERE volume_id IS NOT NULL`,
  );
  expect(rows).toEqual([{ path: '/arc/b.nc', bytes: 4 }]);
});
