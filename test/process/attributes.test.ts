/** What restored files have of their originals beside the bytes. */
import { chmodSync, chownSync, lstatSync, mkdirSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { archiveTree } from '../../src/engine/archive.js';
import { removeUnheld } from '../../src/engine/disk/removal.js';
import { startEngine } from '../../src/engine/runner.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import { readRows } from '../../src/operations/catalogue/import-rows.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { readRestored } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { cancel } from '../support/mutations.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';

let app: TestApp;
const backend = createMemoryBackend();
const never = new AbortController().signal;
const isRoot = process.getuid?.() === 0;
const umask = process.umask();

beforeAll(async () => {
  app = await startApp();
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(() => process.umask(umask));
afterAll(() => app.close());

const place = (file: string) => path.join(app.restoreDir, file);

/** Restores files with an engine of this configuration. */
async function restore(files: string[], config: Partial<TestApp['ctx']['config']> = {}): Promise<number> {
  const id = await makeRequest(app, { quota: 'alice', files, retention: '2099-01-01' });
  const ctx = { ...app.ctx, config: { ...app.ctx.config, ...config } };
  const engine = await startEngine(ctx, backend, { drainMs: 1000 });
  try {
    await waitForState(app, id, 'COMPLETED');
  } finally {
    await engine.stop();
  }
  return id;
}

const look = (file: string) => {
  const { mode, uid, gid, mtimeNs } = lstatSync(place(file), { bigint: true });
  return { mode: (Number(mode) & 0o7777).toString(8), uid: Number(uid), gid: Number(gid), micros: mtimeNs / 1000n };
};

const OWNER = isRoot ? { uid: 12_001, gid: 12_002 } : { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };

let trees = 0;
async function archive(mode: number, seconds: number): Promise<string> {
  const dir = path.join(app.dataDir, `tree-${++trees}`);
  mkdirSync(dir);
  const file = path.join(dir, 'file');
  writeFileSync(file, 'original');
  chownSync(file, OWNER.uid, OWNER.gid);
  chmodSync(file, mode);
  utimesSync(file, seconds, seconds);
  const prefix = `/tree-${trees}/deep`;
  const result = await archiveTree(app.ctx, backend, { dir, prefix, volumeSize: 10n ** 9n }, { signal: never });
  expect(result.failed).toEqual([]);
  rmSync(dir, { recursive: true });
  return `${prefix}/file`;
}

test.each([0o022, 0o077])(
  'a file comes back with mode, owner and time of its original, with the umask %o',
  async (mask) => {
    const file = await archive(0o640, 1_234_567_890.123456);
    process.umask(mask);
    const id = await restore([file]);
    expect(look(file)).toEqual({ mode: '640', ...OWNER, micros: 1_234_567_890_123_456n });
    expect(statSync(path.dirname(place(file))).mode & 0o7777).toBe(0o755);
    await cancel(app, id); // it is known by that time
    expect(await removeUnheld(app.ctx, never)).toBe(1);
    expect(readRestored(app, file)).toBeUndefined();
  },
);

test('the configuration goes before the original, and no file gets a set-id bit', async () => {
  const files = [await archive(0o6755, 1_000_000_000), await archive(0o600, 1_000_000_000)];
  const [first = '', second = ''] = files;
  await restore([first]);
  expect(look(first).mode).toBe('755');
  const group = isRoot ? 12_003 : OWNER.gid;
  await restore([second], { restoreMode: 0o660, restoreGroup: group });
  expect(look(second)).toEqual({ mode: '660', uid: OWNER.uid, gid: group, micros: 1_000_000_000_000_000n });
});

test('a file of which the catalogue knows nothing more is readable for all, whatever the umask', async () => {
  await addTaped(app.ctx, backend, [{ path: '/plain/file', volume: 'PLAIN' }]);
  process.umask(0o077);
  await restore(['/plain/file']);
  expect(look('/plain/file').mode).toBe('644');
});

const importText = (text: string) => importRows(app.ctx, readRows(Readable.from([Buffer.from(text)])));

async function readAttributes(file: string) {
  const { rows } = await app.ctx.db.pool.query('SELECT mode, mtime, uid, gid FROM tape_file WHERE path = $1', [file]);
  return rows[0];
}

test('an import has columns for mode, time, owner and group; what it leaves out stays, and what is empty goes', async () => {
  await importText('path,size,mode,mtime,uid,gid\n/i/a,1,0640,2020-01-02T03:04:05.678901,1001,4294967294\n');
  const known = { mode: 0o640, mtime: '2020-01-02T03:04:05.678901', uid: 1001n, gid: 4_294_967_294n };
  expect(await readAttributes('/i/a')).toEqual(known);
  expect(await importText('path,size\n/i/a,1\n')).toMatchObject({ added: 0, updated: 0 });
  expect(await readAttributes('/i/a')).toEqual(known);
  expect(await importText('{"path":"/i/a","size":1,"mode":"4755","mtime":"-1.5"}\n')).toMatchObject({
    added: 0,
    updated: 1,
  });
  expect(await readAttributes('/i/a')).toEqual({ ...known, mode: 0o4755, mtime: '1969-12-31T23:59:58.500000' });
  await importText('path,size,mode,mtime,uid,gid\n/i/a,1,,1700000000.1234567890,,\n');
  expect(await readAttributes('/i/a')).toEqual({
    mode: null,
    mtime: '2023-11-14T22:13:20.123456',
    uid: null,
    gid: null,
  });
});

test.each([
  ['mode', '0o640', 'up to four octal digits such as 0640'],
  ['mode', '100644', 'up to four octal digits such as 0640'],
  ['mtime', 'yesterday', 'a UTC date-time YYYY-MM-DDTHH:MM:SS[.ffffff], or seconds since 1970'],
  ['mtime', '999999999999', 'a UTC date-time YYYY-MM-DDTHH:MM:SS[.ffffff], or seconds since 1970'],
  ['uid', '4294967295', 'a number from 0 to 4294967294'],
  ['gid', 'staff', 'a number from 0 to 4294967294'],
])('an import refuses the %s %s', async (column, value, expected) => {
  const fault = `line 2: ${column} must be ${expected}, not "${value}"`;
  await expect(importText(`path,size,${column}\n/i/b,1,${value}\n`)).rejects.toThrow(fault);
});

test('a mode that is a number in JSON is refused, since nobody can tell whether it is octal', async () => {
  await expect(importText('{"path":"/i/b","size":1,"mode":416}\n')).rejects.toThrow('mode must be text');
});
