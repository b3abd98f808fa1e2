import { existsSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { parseSize } from '../../src/bytes.js';
import { startApp, type TestApp } from '../support/app.js';
import { cleanUp, makeDataDir, type Result, runCli } from '../support/process.js';

let app: TestApp;
let env: Record<string, string>;
let dir: string;

beforeAll(async () => {
  app = await startApp();
});
beforeEach(() => {
  dir = makeDataDir();
  env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir };
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

const run = (...args: string[]): Promise<Result> => runCli(args, { env });
/** A path as somebody types it who is elsewhere. */
const below = (name: string) => path.relative('.', path.join(dir, name));
const done = (stdout: string): Result => ({ code: 0, stdout, stderr: '' });
const refused = (code: number, message: string): Result => ({ code, stdout: '', stderr: `tapegate: ${message}\n` });

test('migrate says what it applied', async () => {
  expect(await run('migrate')).toEqual(done('the schema is current\n'));
  expect(await run('migrate', '--json')).toEqual(done('{"migrated":[]}\n'));
});

test('quota set makes a quota and changes what it is given; list and show tell them, exactly', async () => {
  expect(await run('quota', 'set', 'zoë', '--size', '16P', '--email', 'zoe@example.org', '--notes', 'a note')).toEqual(
    done('quota of zoë: 16000000000000000 bytes\n'),
  );
  const { stdout } = await run('quota', 'set', 'zoë', '--size', '16000000000000001', '--json');
  const [, id] = /^\{"id":(\d+),/.exec(stdout) ?? [];
  const zoe = `{"id":${id},"user":"zoë","size":16000000000000001,"used":0,"email":"zoe@example.org","notes":"a note","weight":1}\n`;
  expect(stdout).toBe(zoe);
  await run('quota', 'set', 'ann', '--size', '0');
  expect((await run('quota', 'list')).stdout).toBe(
    `USER  SIZE     USED     WEIGHT  EMAIL            NOTES
ann   0 bytes  0 bytes  1
zoë   16.0 PB  0 bytes  1       zoe@example.org  a note
`,
  );
  expect((await run('quota', 'list', '--json')).stdout.split('\n').slice(1).join('\n')).toBe(zoe);
  expect(await run('quota', 'show', 'zoë')).toEqual(
    done(`USER    zoë
SIZE    16000000000000001 bytes (16.0 PB)
USED    0 bytes (0 bytes)
WEIGHT  1
EMAIL   zoe@example.org
NOTES   a note
`),
  );
  expect(await run('quota', 'show', 'zoë', '--json')).toEqual(done(zoe));
});

test('quota set changes what it is given of a quota that there is, and only a new one needs a size', async () => {
  const show = async () => JSON.parse((await run('quota', 'show', 'kim', '--json')).stdout);
  expect(await run('quota', 'set', 'kim', '--email', 'kim@example.org')).toEqual(
    refused(2, '--size must be given for a new quota, and user "kim" has none yet'),
  );
  await run('quota', 'set', 'kim', '--size', '1T', '--notes', 'kept');
  const before = await show();
  expect(await run('quota', 'set', 'kim', '--email', 'kim@example.org')).toEqual(
    done('quota of kim: 1000000000000 bytes\n'),
  );
  await run('quota', 'set', 'kim', '--weight', '2');
  expect(await show()).toEqual({ ...before, email: 'kim@example.org', weight: 2 });
  expect(await run('quota', 'set', 'kim')).toEqual(
    refused(2, 'give what is to be set: --size, --email, --notes or --weight'),
  );
  await run('quota', 'remove', 'kim');
  expect(await run('quota', 'set', 'kim', '--weight', '3')).toMatchObject({ code: 2, stdout: '' });
  expect(await run('quota', 'show', 'kim')).toMatchObject({ code: 1 });
});

test('quota set --weight changes the part of the drives, and a weight that is none changes nothing', async () => {
  const weightOf = async () => JSON.parse((await run('quota', 'show', 'wei', '--json')).stdout).weight;
  await run('quota', 'set', 'wei', '--size', '1', '--weight', '2.5');
  for (const weight of ['0', '-1', 'much', 'Infinity', '1e-7', '1000001', '']) {
    expect(await run('quota', 'set', 'wei', '--size', '1', `--weight=${weight}`)).toEqual(
      refused(
        2,
        weight === 'much'
          ? '--weight must be a number, not "much"'
          : `--weight must be a number from 0.000001 to 1000000, not ${Number(weight)}`,
      ),
    );
  }
  expect(await weightOf()).toBe(2.5);
  await run('quota', 'set', 'wei', '--size', '2');
  expect(await weightOf()).toBe(2.5);
});

const none = ['', '-1', '1X', 'ten', '1.5', '1e9', '10t', '0x10', ' 1', '1,5G', 'NaN', '1'.repeat(20)];

test.each<[string, bigint | undefined]>([
  ['500000000', 500_000_000n],
  ['500M', 500_000_000n],
  ['1.5G', 1_500_000_000n],
  ['10T', 10n ** 13n],
  ['10TB', 10n ** 13n],
  ['10 T', 10n ** 13n],
  ['1Ki', 1024n],
  ['1.5KiB', 1536n],
  ['8Pi', 8n * 2n ** 50n],
  ['9223372036854775807', 2n ** 63n - 1n],
  ...none.map((text): [string, undefined] => [text, undefined]),
])('a size %j is %s bytes', (text, bytes) => {
  expect(parseSize(text)).toBe(bytes);
});

test('a size that is none is wrong usage, and changes nothing', async () => {
  const message = '--size must be bytes, such as 500000000, 500M or 10T, not "ten"';
  await run('quota', 'set', 'kept', '--size', '1.5G');
  expect(await run('quota', 'set', 'kept', '--size', 'ten')).toEqual(refused(2, message));
  expect(await run('disk', 'add', dir, '--size', 'ten')).toEqual(refused(2, message));
  expect((await run('quota', 'show', 'kept')).stdout).toContain('SIZE    1500000000 bytes (1.50 GB)');
});

test('what a quota cannot be is told in one line', async () => {
  const max = 2n ** 63n - 1n;
  expect(await run('quota', 'set', 'ben', '--size', '10000P')).toEqual(
    refused(2, `--size must be from 0 to ${max} bytes, not 10000000000000000000`),
  );
  expect(await run('quota', 'set', 'ben', '--size', '1', '--email', 'nobody')).toEqual(
    refused(2, '--email must be an e-mail address, not "nobody"'),
  );
  expect(await run('quota', 'set', '', '--size', '1')).toEqual(refused(2, 'user must not be empty'));
  expect(await run('quota', 'set', 'a\nb', '--size', '1')).toEqual(
    refused(2, 'user must not hold control characters: "a\\nb"'),
  );
  expect(await run('quota', 'show', 'ben')).toEqual(refused(1, 'there is no user "ben"'));
});

test('disk add of a mount point that is not there is refused, and makes neither a folder nor a disk', async () => {
  const mountpoint = path.join(dir, 'disks/none');
  expect(await run('disk', 'add', below('disks/none'), '--size', '5G')).toMatchObject({
    stdout: '',
    stderr: expect.stringContaining(`"${mountpoint}" is not there; --create makes it, on the file system above it\n`),
  });
  expect(existsSync(path.join(dir, 'disks'))).toBe(false);
  expect((await run('disk', 'list')).stdout).not.toContain('disks/none');
});

test('disk add of a known mount point that is away changes its size, and makes no folder', async () => {
  const mountpoint = path.join(dir, 'away');
  await run('disk', 'add', mountpoint, '--size', '5G', '--create');
  rmSync(mountpoint, { recursive: true });
  const { code, stdout } = await run('disk', 'add', mountpoint, '--size', '6G');
  expect([code, stdout, existsSync(mountpoint)]).toEqual([1, `restore disk ${mountpoint}: 6000000000 bytes\n`, false]);
  await run('disk', 'remove', mountpoint);
});

test('disk add --create makes the folder and registers it; again, it changes the size', async () => {
  const mountpoint = path.join(dir, 'disks/one');
  expect(await run('disk', 'add', below('disks/one'), '--size', '5G', '--create')).toEqual(
    done(`restore disk ${mountpoint}: 5000000000 bytes\n`),
  );
  expect(existsSync(mountpoint)).toBe(true);
  const { stdout } = await run('disk', 'add', mountpoint, '--size', '6G', '--json');
  expect(JSON.parse(stdout)).toEqual({ id: expect.any(Number), mountpoint, size: 6e9, used: 0, reserved: 0 });
  const listed = JSON.parse((await run('disk', 'list', '--json')).stdout);
  expect(listed).toEqual({ ...JSON.parse(stdout), free: expect.any(Number), problem: null, suspension: null });
  expect(listed.free).toBeGreaterThan(0);
  const [header, line] = (await run('disk', 'list')).stdout.split('\n');
  expect(header).toMatch(/^MOUNTPOINT +SIZE +USED +RESERVED +REALLY FREE +STATE$/);
  expect(line).toMatch(/\/disks\/one {2}6\.00 GB {2}0 bytes {2}0 bytes {3}[\d.]+ [kMGTP]?B +in service$/);
});

test('disk add of a file is refused', async () => {
  writeFileSync(path.join(dir, 'file'), '');
  expect(await run('disk', 'add', below('file'), '--size', '1G')).toEqual(
    refused(2, `mountpoint "${path.join(dir, 'file')}" is no folder`),
  );
});

function makeTree(): void {
  mkdirSync(path.join(dir, 'tree/sub'), { recursive: true });
  writeFileSync(path.join(dir, 'tree/a.nc'), 'aaaa');
  writeFileSync(path.join(dir, 'tree/sub/b.nc'), 'bb');
  symlinkSync('a.nc', path.join(dir, 'tree/link.nc'));
}

async function readCatalogue(prefix: string): Promise<unknown[]> {
  const { rows } = await app.ctx.db.pool.query(
    `SELECT f.path, f.size::int, f.stage, f.spot_name AS spot, v.name AS volume, f.position::int
     FROM tape_file f JOIN volume v ON v.id = f.volume_id WHERE starts_with(path, $1) ORDER BY path`,
    [prefix],
  );
  return rows;
}

test('archive writes a tree to tape, tells what it left out, and leaves the source alone', async () => {
  makeTree();
  const first = await run('archive', below('tree'), '--prefix', '/arch/one', '--spot', 'spot-9');
  const again = await run('archive', below('tree'), '--prefix', '/arch/one/', '--json');
  const stderr = `skipped: ${dir}/tree/link.nc is a link\n`;
  expect(first).toEqual({
    ...done('2 files archived, 6 bytes\n1 skipped: links and other things that are no regular files\n'),
    stderr,
  });
  expect(again).toEqual({ ...done('{"archived":0,"bytes":0,"unchanged":2,"skipped":1,"failed":[]}\n'), stderr });
  expect(await readCatalogue('/arch/one')).toEqual([
    { path: '/arch/one/a.nc', size: 4, stage: 'ONTAPE', spot: 'spot-9', volume: 'TG0001', position: 1 },
    { path: '/arch/one/sub/b.nc', size: 2, stage: 'ONTAPE', spot: 'spot-9', volume: 'TG0001', position: 2 },
  ]);
  expect(readdirSync(path.join(dir, 'tree'), { recursive: true }).sort()).toEqual([
    'a.nc',
    'link.nc',
    'sub',
    'sub/b.nc',
  ]);
});

test('archive --volume-size begins new volumes, and --move removes what is on tape', async () => {
  makeTree();
  expect(await run('archive', below('tree'), '--prefix', '/arch/two', '--volume-size', '4', '--move')).toMatchObject({
    code: 0,
  });
  const volumes = (await readCatalogue('/arch/two')).map((row) => (row as { volume: string }).volume);
  expect(new Set(volumes).size).toBe(2);
  expect(readdirSync(path.join(dir, 'tree'), { recursive: true }).sort()).toEqual(['link.nc', 'sub']);
});

test('archive ends with 1 and tells each file that failed', async () => {
  makeTree();
  await run('archive', below('tree'), '--prefix', '/arch/three');
  writeFileSync(path.join(dir, 'tree/a.nc'), 'other');
  expect(await run('archive', below('tree'), '--prefix', '/arch/three')).toEqual({
    code: 1,
    stdout: `0 files archived, 0 bytes
1 file was on tape already, by the catalogue
1 skipped: links and other things that are no regular files
`,
    stderr: `skipped: ${dir}/tree/link.nc is a link
tapegate: 1 file was not archived:
  ${dir}/tree/a.nc: /arch/three/a.nc is on tape already, with other bytes
what is on tape is not replaced: another --prefix archives the changed files under paths of their own
`,
  });
  expect(await run('archive', below('tree'), '--prefix', '/arch/three/again')).toMatchObject({ code: 0 });
  expect(await readCatalogue('/arch/three/again/a.nc')).toHaveLength(1);
});

test('a name of several lines writes no line of its own where archive tells what failed', async () => {
  const name = 'x\ntapegate: all is well';
  makeTree();
  writeFileSync(path.join(dir, 'tree', name), 'first');
  await run('archive', below('tree'), '--prefix', '/arch/lines');
  writeFileSync(path.join(dir, 'tree', name), 'other');
  const { code, stderr } = await run('archive', below('tree'), '--prefix', '/arch/lines');
  expect(code).toBe(1);
  expect(stderr).toContain(
    `\n  ${dir}/tree/${name.replace('\n', '\uFFFD')}: /arch/lines/x\uFFFDtapegate: all is well is on tape`,
  );
  expect(stderr.split('\n').filter((line) => line.startsWith('tapegate:'))).toHaveLength(1);
});

test('archive of what is no directory, and with a bad size, is refused', async () => {
  writeFileSync(path.join(dir, 'file'), '');
  expect(await run('archive', below('file'))).toEqual(refused(1, `${below('file')} is not a directory`));
  expect(await run('archive', below('none'))).toEqual(refused(1, `${below('none')} is not a directory`));
  expect(await run('archive', '.', '--volume-size', 'much')).toEqual(
    refused(2, '--volume-size must be bytes, such as 500000000, 500M or 10T, not "much"'),
  );
});

test('archive --move is refused where the tape copies would end with the process, and of a tree with tape copies', async () => {
  makeTree();
  const memory = { env: { ...env, TAPE_BACKEND: 'memory' } };
  expect(await runCli(['archive', below('tree'), '--move'], memory)).toEqual(
    refused(2, '--move would remove files whose tape copies end with this process (TAPE_BACKEND=memory)'),
  );
  expect(await run('archive', below('tree'), '--prefix', '/arch/four')).toMatchObject({ code: 0 });
  const library = path.join(app.dataDir, 'library');
  for (const folder of [app.dataDir, library]) {
    expect(await run('archive', folder, '--prefix', '/arch/own', '--move')).toEqual(
      refused(1, `${folder} cannot be archived: Tapegate keeps its own files in ${library}`),
    );
  }
  expect(
    readdirSync(library, { recursive: true, withFileTypes: true }).filter((f) => f.isFile()).length,
  ).toBeGreaterThan(1);
});
