/** Operators' commands on the host of the database: `quota`, `disk` and `archive`. */
import { existsSync, mkdirSync, readdirSync, rmSync, statfsSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeEach, expect, test } from 'vitest';
import { formatBytes, parseSize } from '../../src/core/text/bytes.js';
import { done, refused } from '../support/command-results.js';
import { cleanUp, makeDataDir, type Result, runCli } from '../support/process.js';
import { useApp } from '../support/use-app.js';

let env: Record<string, string>;
let dir: string;

const app = useApp();
beforeEach(() => {
  dir = makeDataDir();
  env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir };
});
afterAll(cleanUp);

const run = (...args: string[]): Promise<Result> => runCli(args, { env });
/** Returns a path relative to the current directory. */
const below = (name: string) => path.relative('.', path.join(dir, name));

test('quota set creates a quota, and list and show print it exactly', async () => {
  expect(await run('quota', 'set', 'zoë', '--size', '16P', '--email', 'zoe@example.org', '--notes', 'a note')).toEqual(
    done('quota of zoë: 16.0 PB\n'),
  );
  const { stdout } = await run('quota', 'set', 'zoë', '--size', '16000000000000001', '--json');
  const [, id] = /^\{"id":(\d+),/.exec(stdout) ?? [];
  const zoe = `{"id":${id},"user":"zoë","size":16000000000000001,"used":0,"email":"zoe@example.org","notes":"a note","weight":1}\n`;
  expect(stdout).toBe(zoe);
  await run('quota', 'set', 'ann', '--size', '0');
  expect((await run('quota', 'list')).stdout).toBe(
    `USER  SIZE     USED     WEIGHT  EMAIL            NOTES
ann   0 bytes  0 bytes  1       -                -
zoë   16.0 PB  0 bytes  1       zoe@example.org  a note
`,
  );
  expect((await run('quota', 'list', '--json')).stdout.split('\n').slice(1).join('\n')).toBe(zoe);
  expect(await run('quota', 'show', 'zoë')).toEqual(
    done(
      'USER    zoë\nSIZE    16000000000000001 bytes (16.0 PB)\nUSED    0 bytes\n' +
        'FREE    16000000000000001 bytes (16.0 PB)\nWEIGHT  1\nEMAIL   zoe@example.org\nNOTES   a note\n',
    ),
  );
  expect(await run('quota', 'show', 'zoë', '--json')).toEqual(done(zoe));
});

test('quota set changes only what it is given, and a new quota needs a size', async () => {
  const show = async () => JSON.parse((await run('quota', 'show', 'kim', '--json')).stdout);
  const missing = refused(2, '--size is required: user "kim" has no quota yet');
  expect(await run('quota', 'set', 'kim', '--email', 'kim@example.org')).toEqual(missing);
  await run('quota', 'set', 'kim', '--size', '1T', '--notes', 'kept');
  const before = await show();
  expect(await run('quota', 'set', 'kim', '--email', 'kim@example.org')).toEqual(done('quota of kim: 1.00 TB\n'));
  await run('quota', 'set', 'kim', '--weight', '2.5');
  const changed = { ...before, email: 'kim@example.org', weight: 2.5 };
  expect(await show()).toEqual(changed);
  const weight = '--weight must be a number from 0.000001 to 1000000, not';
  for (const [args, message] of [
    [[], 'nothing to set: give --size, --email, --notes or --weight'],
    [['--size', 'ten'], '--size must be a number of bytes, such as 500000000, 500M or 10T, not "ten"'],
    [['--size', '10000P'], '--size must be a number of bytes, such as 500000000, 500M or 10T, not "10000P"'],
    [['--email', 'nobody'], '--email must be an email address, not "nobody"'],
    [['--weight=much'], '--weight must be a number, not "much"'],
    [['--weight=0'], `${weight} 0`],
    [['--weight=1000001'], `${weight} 1000001`],
    [['--weight=Infinity'], '--weight must be a number, not "Infinity"'],
  ] as const) {
    expect(await run('quota', 'set', 'kim', ...args)).toEqual(refused(2, message));
  }
  expect(await show()).toEqual(changed);
  await run('quota', 'remove', 'kim');
  expect(await run('quota', 'set', 'kim', '--weight', '3')).toEqual(missing);
  expect(await run('quota', 'show', 'kim')).toEqual(
    refused(1, 'there is no quota "kim", or you are not allowed to see it'),
  );
  expect(await run('quota', 'set', '', '--size', '1')).toEqual(refused(2, 'user must not be empty'));
});

const noSizes = ['', '-1', '1X', 'ten', '1.5', '1e9', '10t', '0x10', ' 1', '1,5G', 'NaN', '1'.repeat(20)];

test.each<[string, bigint | undefined]>([
  ['500000000', 500_000_000n],
  ['1.5G', 1_500_000_000n],
  ['10T', 10n ** 13n],
  ['10 TB', 10n ** 13n],
  ['1.5KiB', 1536n],
  ['8Pi', 8n * 2n ** 50n],
  ['9223372036854775807', 2n ** 63n - 1n],
  ...noSizes.map((text): [string, undefined] => [text, undefined]),
])('the size %j is %s bytes', (text, bytes) => {
  expect(parseSize(text)).toBe(bytes);
});

test('disk add refuses a missing directory and a file, and creates nothing', async () => {
  const mountpoint = path.join(dir, 'disks/none');
  expect(await run('disk', 'add', below('disks/none'), '--size', '5G')).toMatchObject({
    stdout: '',
    stderr: expect.stringContaining(
      `"${mountpoint}" does not exist; --create creates it on the file system of its parent directory\n`,
    ),
  });
  expect(existsSync(path.join(dir, 'disks'))).toBe(false);
  writeFileSync(path.join(dir, 'file'), '');
  expect(await run('disk', 'add', below('file'), '--size', '1G')).toEqual(
    refused(2, `mountpoint "${path.join(dir, 'file')}" is not a directory`),
  );
  expect(await run('disk', 'add', dir, '--size', 'ten')).toMatchObject({ code: 2 });
  expect((await run('disk', 'list')).stdout).not.toContain(dir);
});

test('disk add of a known disk that is not mounted changes its size, and creates no directory', async () => {
  const mountpoint = path.join(dir, 'away');
  await run('disk', 'add', mountpoint, '--size', '5G', '--create');
  rmSync(mountpoint, { recursive: true });
  const { code, stdout } = await run('disk', 'add', mountpoint, '--size', '6G');
  expect([code, stdout, existsSync(mountpoint)]).toEqual([1, `restore disk ${mountpoint}: 6000000000 bytes\n`, false]);
  await run('disk', 'remove', mountpoint);
});

test('disk add --create creates the directory and registers it; repeated, it changes the size', async () => {
  const mountpoint = path.join(dir, 'disks/one');
  expect(await run('disk', 'add', below('disks/one'), '--size', '5G', '--create')).toEqual(
    done(`restore disk ${mountpoint}: 5000000000 bytes\n`),
  );
  expect(existsSync(mountpoint)).toBe(true);
  const { stdout } = await run('disk', 'add', mountpoint, '--size', '6G', '--json');
  expect(JSON.parse(stdout)).toEqual({ id: expect.any(Number), mountpoint, size: 6e9, used: 0, reserved: 0 });
  const listed = JSON.parse((await run('disk', 'list', '--json')).stdout);
  expect(listed).toEqual({
    ...JSON.parse(stdout),
    free: expect.any(Number),
    room: 6e9,
    problem: null,
    suspension: null,
  });
  expect(listed.free).toBeGreaterThan(0);
  const [header, line] = (await run('disk', 'list')).stdout.split('\n');
  expect(header).toMatch(/^MOUNTPOINT +SIZE +USED +RESERVED +FREE ON DISK +ROOM +STATE$/);
  expect(line).toMatch(/\/disks\/one {2}6\.00 GB {2}0 bytes {2}0 bytes {3}[\d.]+ [kMGTP]?B +6\.00 GB +in service$/);
});

test('disk add and disk resize warn if the allocation exceeds the file system', async () => {
  const mountpoint = path.join(dir, 'disks/small');
  const { bsize, blocks } = statfsSync(dir);
  const total = formatBytes(BigInt(bsize) * BigInt(blocks));
  for (const command of [['add', '--create'], ['resize']]) {
    const { code, stderr } = await run('disk', ...command, mountpoint, '--size', '5000P');
    const warning = `warning: the allocation of 5.00 EB exceeds the file system of ${total} at ${mountpoint}\n`;
    expect({ code, stderr }).toEqual({ code: 0, stderr: warning });
  }
  await run('disk', 'remove', mountpoint);
});

function makeTree(): void {
  mkdirSync(path.join(dir, 'tree/sub'), { recursive: true });
  writeFileSync(path.join(dir, 'tree/a.nc'), 'aaaa');
  writeFileSync(path.join(dir, 'tree/sub/b.nc'), 'bb');
  symlinkSync('a.nc', path.join(dir, 'tree/link.nc'));
}

const readTree = () => readdirSync(path.join(dir, 'tree'), { recursive: true }).sort();

async function readCatalogue(prefix: string): Promise<{ volume: string }[]> {
  const { rows } = await app.ctx.db.pool.query(
    `SELECT f.path, f.size::int, f.stage, f.spot_name AS spot, v.name AS volume, f.position::int
     FROM tape_file f JOIN volume v ON v.id = f.volume_id WHERE starts_with(path, $1) ORDER BY path`,
    [prefix],
  );
  return rows;
}

test('archive writes a tree to tape, reports what it skipped, and leaves the source alone', async () => {
  makeTree();
  const first = await run('archive', below('tree'), '--prefix', '/arch/one', '--spot', 'spot-9');
  const again = await run('archive', below('tree'), '--prefix', '/arch/one/', '--json');
  const skipped = `skipped: ${dir}/tree/link.nc is a link\n`;
  expect(first).toEqual(
    done('2 files archived, 6 bytes\n1 entry skipped, because only regular files are archived\n', skipped),
  );
  expect(again).toEqual(done('{"archived":0,"bytes":0,"unchanged":2,"skipped":1,"failed":[]}\n', skipped));
  expect(await readCatalogue('/arch/one')).toEqual([
    { path: '/arch/one/a.nc', size: 4, stage: 'ONTAPE', spot: 'spot-9', volume: 'TG0001', position: 1 },
    { path: '/arch/one/sub/b.nc', size: 2, stage: 'ONTAPE', spot: 'spot-9', volume: 'TG0001', position: 2 },
  ]);
  expect(readTree()).toEqual(['a.nc', 'link.nc', 'sub', 'sub/b.nc']);
});

test('archive ends with 1 and reports each file that failed, in one line whatever its name is', async () => {
  const name = 'x\ntapegate: all is well';
  makeTree();
  writeFileSync(path.join(dir, 'tree', name), 'first');
  await run('archive', below('tree'), '--prefix', '/arch/three');
  writeFileSync(path.join(dir, 'tree/a.nc'), 'other');
  writeFileSync(path.join(dir, 'tree', name), 'other');
  const shown = name.replace('\n', '\uFFFD');
  expect(await run('archive', below('tree'), '--prefix', '/arch/three')).toEqual({
    code: 1,
    stdout: `0 files archived, 0 bytes
1 file already on tape, according to the catalogue
1 entry skipped, because only regular files are archived
`,
    stderr: `skipped: ${dir}/tree/link.nc is a link
tapegate: 2 files were not archived:
  ${dir}/tree/a.nc: /arch/three/a.nc is already on tape with different bytes
  ${dir}/tree/${shown}: /arch/three/${shown} is already on tape with different bytes
files on tape are not replaced: archive the changed files with another --prefix
`,
  });
  const more = ['--prefix', '/arch/three/again', '--volume-size', '5', '--move'];
  expect(await run('archive', below('tree'), ...more)).toMatchObject({ code: 0 });
  const volumes = (await readCatalogue('/arch/three/again/')).map(({ volume }) => volume);
  expect([volumes.length, new Set(volumes).size]).toEqual([3, 3]);
  expect(readTree()).toEqual(['link.nc', 'sub']);
});

test('archive refuses a source that is no directory, and a bad size', async () => {
  writeFileSync(path.join(dir, 'file'), '');
  for (const name of ['file', 'none'])
    expect(await run('archive', below(name))).toEqual(refused(1, `${below(name)} is not a directory`));
  expect(await run('archive', '.', '--volume-size', 'much')).toEqual(
    refused(2, '--volume-size must be a number of bytes, such as 500000000, 500M or 10T, not "much"'),
  );
});

test('archive --move refuses a tree that contains tape copies', async () => {
  makeTree();
  expect(await run('archive', below('tree'), '--prefix', '/arch/four')).toMatchObject({ code: 0 });
  const library = path.join(app.dataDir, 'library');
  const before = readdirSync(library, { recursive: true });
  for (const directory of [app.dataDir, library]) {
    expect(await run('archive', directory, '--prefix', '/arch/own', '--move')).toEqual(
      refused(1, `cannot archive ${directory}: Tapegate stores its own files in ${library}`),
    );
  }
  expect(readdirSync(library, { recursive: true })).toEqual(before);
});
