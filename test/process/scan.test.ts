/** `scan` registers the files of cartridges that another program has written, and an engine restores these files. */
import { readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { addQuota } from '../support/factories.js';
import { LIBRARY_ENV } from '../support/library-dir.js';
import { createLtfsBench, type LtfsBench } from '../support/ltfs/bench.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cleanUp, type Result, runCli } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { useApp } from '../support/use-app.js';

let bench: LtfsBench;
let env: Record<string, string>;

const engine = { env: LIBRARY_ENV };

const app = useApp({ library: createMemoryLibrary(), config: { drives: 1 }, engine }, async () => {
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, ...LIBRARY_ENV };
  bench = createLtfsBench({ name: 'lto' });
  await bench.put('V1', 9n, Buffer.from('first by name'), '/a/one');
  await bench.put('V1', 4n, Buffer.from('second'), '/a/two words');
  await bench.put('V1', null, Buffer.alloc(0), '/b/empty');
  // later in the test an engine may move cartridges at the same time
  await bench.put('V2', 1n, Buffer.from('good'), '/c/good');
  await bench.put('V2', null, Buffer.from('no block'), '/c/lost');
  symlinkSync('/etc/passwd', path.join(bench.state, 'cartridges/V1/b/link'));
  const latin = Buffer.from(path.join(bench.state, 'cartridges/V1/b/caf\xe9'), 'latin1');
  writeFileSync(latin, 'no name in UTF-8');
  const settings = { ...bench.settings, prefix: '/tape' };
  const sets = Object.entries(settings).map(([name, value]) => {
    return `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`;
  });
  const added = await runCli(['library', 'add', 'lto', '--type', 'ltfs', '--drives', '2', '--set', ...sets], { env });
  expect(added).toMatchObject({ code: 0, stderr: '' });
});
afterAll(async () => {
  await cleanUp();
  await bench.close();
});

const scan = async (...args: string[]): Promise<Result> => await runCli(['scan', ...args], { env });

async function readStored() {
  const { rows } = await app.ctx.db.pool.query(
    `SELECT f.path, f.size, f.stage, f.spot_name AS spot, v.name AS volume, f.position, f.mtime IS NOT NULL AS "hasTime", b.name AS library
     FROM tape_file f JOIN volume v ON v.id = f.volume_id JOIN library b ON b.id = v.library_id ORDER BY f.path`,
  );
  return rows;
}

const file = (name: string, size: bigint, position: bigint) => {
  const place = { volume: 'V1', position, library: 'lto' };
  return { path: `/tape/${name}`, size, stage: 'ONTAPE', spot: 'spot-1', ...place, hasTime: true };
};

test('a scan registers files with their positions once, and changes at the next scan', async () => {
  const first = await scan('V1', '--spot', 'spot-1', '--json');
  expect(first).toMatchObject({
    code: 0,
    stdout: `${JSON.stringify({ files: 3, unchanged: 0, skipped: 2, added: 3, updated: 0 })}\n`,
  });
  expect(first.stderr.split('\n').sort()).toEqual([
    '',
    'skipped: /tape/b/caf\\xe9 has a name that is not UTF-8',
    'skipped: /tape/b/link is neither a file nor a directory',
  ]);
  const all = [file('a/one', 13n, 9n), file('a/two words', 6n, 4n), file('b/empty', 0n, 0n)];
  expect(await readStored()).toEqual(all);
  await bench.put('V1', 11n, Buffer.from('written anew'), '/a/one');
  const directory = await scan('V1', '--prefix', '/tape/b');
  expect(directory).toMatchObject({ code: 0, stdout: '1 file on V1: 0 added, 0 updated, 1 unchanged\n' });
  const again = await scan('V1', '--library', 'lto', '--drive', 'lto-2');
  expect(again).toMatchObject({ code: 0, stdout: '3 files on V1: 0 added, 1 updated, 2 unchanged\n' });
  expect(await readStored()).toEqual([file('a/one', 12n, 11n), ...all.slice(1)]);
  expect(bench.readChanger().drives).toEqual(Array.from({ length: 2 }, () => ({ volume: null, source: null })));
});

test('registered files are restored', async () => {
  const id = await makeRequest(app, { quota: 'alice', patterns: '/tape/', retention: '2099-01-01' });
  await waitForState(app, id, 'COMPLETED');
  const { rows } = await app.ctx.db.pool.query(
    `SELECT f.path, d.mountpoint FROM tape_file f JOIN restore_disk d ON d.id = f.disk_id ORDER BY f.path`,
  );
  const contents = rows.map((row) => readFileSync(path.join(row.mountpoint, row.path), 'utf8'));
  expect(contents).toEqual(['written anew', 'second', '']);
});

test('a scan that fails registers nothing and leaves the drive empty', async () => {
  const before = await readStored();
  expect(await scan('V2')).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/start block of .*lost.*No such attribute/),
  });
  expect(await readStored()).toEqual(before);
  // an engine may still have a cartridge of the previous test in the other drive
  expect(bench.readChanger().drives.map(({ volume }) => volume)).not.toContain('V2');
});

test('a scan of an unknown cartridge, drive or library, or of another library type, is refused with the reason', async () => {
  const first = 'directory';
  const refusals: [string[], number, string][] = [
    [['V9'], 1, 'the changer has no cartridge V9'],
    [['V1', '--library', 'tapes'], 2, 'there is no library "tapes"; libraries of type ltfs: lto'],
    [['NEW', '--library', first], 1, 'scan needs a library of type ltfs'],
    [['V1', '--library', first], 1, `volume "V1" is in library "lto", not in "${first}"`],
    [['V1', '--drive', 'lto-7'], 1, 'no drive lto-7'],
  ];
  for (const [args, code, reason] of refusals)
    expect([args, await scan(...args)]).toMatchObject([args, { code, stderr: expect.stringContaining(reason) }]);
  bench.behave('status', { fail: 'mtx: not ready' });
  expect(await scan('V1')).toMatchObject({ code: 1, stderr: expect.stringContaining('mtx: not ready') });
  bench.goOn('status');
});
