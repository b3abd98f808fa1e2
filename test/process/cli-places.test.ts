/** Commands that show the paths of restored files, and commands with which users change and end requests. */
import { mkdirSync, renameSync, rmdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { returnDisk, suspendDisk } from '../../src/domain/health/failing-disks.js';
import { done, refused } from '../support/command-results.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { holdReads } from '../support/held-reads.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cleanUp, cliFile, type Result, runCli, startProcess } from '../support/process.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const library = createMemoryLibrary();
let env: Record<string, string>;

const app = useApp({ library }, async () => {
  env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token, DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir };
  await addQuota(app.ctx, 'ann', 1_000_000n);
  await addTaped(app.ctx, library, [
    { path: '/place/a b.nc', size: 1000 },
    { path: "/place/it's.nc", size: 500 },
    { path: '/gone/a.nc', size: 500 },
  ]);
});
afterAll(cleanUp);

const run = (...args: string[]): Promise<Result> => runCli(args, { env });
const idOf = (result: Result) => /request (\d+)/.exec(result.stdout + result.stderr)?.[1] ?? '';
const restored = (file: string) => path.join(app.restoreDir, file);

test('request, watch, show and ls print where the restored files are', async () => {
  const made = await run('request', '--quota', 'ann', '--pattern', '/place/', '--watch');
  const id = idOf(made);
  const outcome = `request ${id} is completed: 2 files on disk, 1.50 kB\nrestored below ${app.restoreDir}, each at its archive path\n`;
  expect(made.stdout.endsWith(outcome)).toBe(true);
  expect((await run('watch', id)).stdout).toBe(outcome);
  expect((await run('show', id)).stdout).toContain(`\nDIRECTORY   ${app.restoreDir}\n`);
  expect((await run('ls', '/place/')).stdout).toBe(
    `R    1.00 kB  /place/a b.nc  at ${restored('/place/a b.nc')}\nR  500 bytes  /place/it's.nc  at ${restored("/place/it's.nc")}\n`,
  );
  expect((await run('request', '--quota', 'ann', '--pattern', '/place/')).stdout).toMatch(
    new RegExp(`^request \\d+: 2 files, [^\\n]*\\nrestored below ${app.restoreDir}, each at its archive path\\n$`),
  );
  expect(JSON.parse((await run('ls', 'a b.nc', '--json')).stdout)).toMatchObject({
    restoredPath: restored('/place/a b.nc'),
  });
});

test('a command that changes the database itself prints no log line of the change, unless LOG_LEVEL asks for it', async () => {
  const here = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir };
  const args = ['request', '--quota', 'ann', '--pattern', '/place/'];
  expect(await runCli(args, { env: here })).toMatchObject({ code: 0, stderr: '' });
  const told = await runCli(args, { env: { ...here, LOG_LEVEL: 'info' } });
  expect(JSON.parse(told.stderr)).toMatchObject({ msg: 'request made', files: 2 });
});

test('request, show and watch --print-paths print the paths on disk and nothing else', async () => {
  const paths = ['/place/a b.nc', "/place/it's.nc"].map(restored);
  const made = await run('request', '--quota', 'ann', '--pattern', '/place/', '--print-paths');
  expect(made).toMatchObject({ code: 0, stdout: `${paths.join('\n')}\n` });
  expect(made.stderr).toMatch(/^request \d+: 2 files/);
  expect(made.stderr).toContain(' is completed: 2 files on disk');
  const id = idOf(made);
  expect((await run('show', id, '--print-paths')).stdout).toBe(`${paths.join('\n')}\n`);
  expect((await run('watch', id, '--print-paths', '-0')).stdout).toBe(`${paths.join('\0')}\0`);
});

test('--print-paths prints no path that is not on disk, and exits with 3 then', async () => {
  const id = idOf(await run('request', '--quota', 'ann', '--pattern', '/gone/', '--watch'));
  await run('cancel', id);
  const onTape = `SELECT FROM tape_file WHERE path = '/gone/a.nc' AND stage = 'ONTAPE'`;
  await waitFor('the copy to be removed', async () => (await app.ctx.db.pool.query(onTape)).rowCount === 1);
  expect(await run('show', id, '--print-paths')).toEqual(
    refused(3, `1 file of request ${id} is released because the request is cancelled`),
  );

  const [removed = '', kept] = ['/place/a b.nc', "/place/it's.nc"].map(restored);
  const live = idOf(await run('request', '--quota', 'ann', '--pattern', '/place/', '--watch'));
  const cancelled = idOf(await run('request', '--quota', 'ann', '--pattern', '/place/', '--watch'));
  await run('cancel', cancelled);
  const released = `2 files of request ${cancelled} are released because the request is cancelled`;
  expect(await run('show', cancelled, '--print-paths')).toEqual(refused(3, released));
  expect(await run('watch', cancelled, '--print-paths')).toMatchObject({ code: 3, stdout: '' });
  const reads = holdReads(library);
  rmSync(removed);
  expect(await run('show', live, '--print-paths')).toEqual({
    code: 3,
    stdout: `${kept}\n`,
    stderr: `tapegate: 1 file of request ${live} is no longer on disk\n`,
  });
  expect((await run('ls', '/place/', '--print-paths')).stdout).toBe(`${kept}\n`);
  reads.open();
  expect((await run('watch', live, '--print-paths')).stdout).toBe(`${removed}\n${kept}\n`);
});

test('no path on a restore disk that is not mounted is printed, and --print-paths exits with 3 and names the disk', async () => {
  const id = idOf(await run('request', '--quota', 'ann', '--pattern', '/place/', '--watch'));
  const reason = `the restore disk ${app.restoreDir} is not mounted, or lost its marker`;
  renameSync(app.restoreDir, `${app.restoreDir}-away`);
  mkdirSync(app.restoreDir);
  await suspendDisk(app.ctx, app.restoreDir, reason);
  const results = [await run('show', id, '--print-paths'), await run('ls', '/place/')];
  rmdirSync(app.restoreDir);
  renameSync(`${app.restoreDir}-away`, app.restoreDir);
  await returnDisk(app.ctx, app.restoreDir);
  expect(results).toEqual([
    refused(3, `2 files of request ${id} are on ${app.restoreDir}, which is failing: ${reason}`),
    done("R    1.00 kB  /place/a b.nc\nR  500 bytes  /place/it's.nc\n"),
  ]);
  expect(await run('show', id, '--print-paths')).toMatchObject({ code: 0 });
});

test('--print-paths and --json together are refused before anything is requested', async () => {
  const before = await app.ctx.db.prisma.request.count();
  for (const args of [
    ['ls', '-0'],
    ['show', '1', '--print-paths'],
    ['watch', '1', '--print-paths'],
    ['request', '--quota', 'ann', '--pattern', '/place/', '--print-paths'],
  ]) {
    expect(await run(...args, '--json')).toEqual(
      refused(2, "option '--print-paths' cannot be used with option '--json'\n(see --help)"),
    );
  }
  expect(await app.ctx.db.prisma.request.count()).toBe(before);
});

test.each([
  ['--print-paths', "xargs -d '\\n'"],
  ['-0', 'xargs -0'],
])('ls %s prints what %s reads, as the help says, for names with quotes and backslashes too', async (option, xargs) => {
  const names = ["/odd/quote'", '/odd/back\\slash', '/odd/with  space', '/odd/"double"'];
  await addFiles(
    app.ctx,
    names.map((path) => ({ path, stage: 'ONDISK' as const, size: 1n })),
  );
  expect((await run('ls', '--help')).stdout.replace(/\s+/g, ' ')).toContain(`for ${xargs}`);
  const program = `"${process.execPath}" "${cliFile}" ls /odd/ ${option} | ${xargs} printf '<%s>'`;
  const { stdout } = await startProcess('sh', ['-c', program], { env }).ended;
  expect([...stdout.matchAll(/<([^>]*)>/g)].map((match) => match[1]).sort()).toEqual([...names].sort());
});

test('--print-paths skips files that are not on disk, and a path with a line break requires -0', async () => {
  await addFiles(app.ctx, [
    { path: '/lines/a\nb', stage: 'ONDISK', size: 1n },
    { path: '/lines/tape', stage: 'ONTAPE', size: 1n },
  ]);
  expect(await run('ls', '/lines/', '--print-paths')).toEqual(
    refused(1, 'path "/lines/a\\nb" contains a line break: use the option -0, and xargs -0'),
  );
  expect(await run('ls', '/lines/', '--print-paths', '--null')).toEqual(done('/lines/a\nb\0'));
  expect(await run('show', '99999', '--print-paths')).toEqual(
    refused(1, 'there is no request 99999, or you are not allowed to see it'),
  );
});

test('update changes only the given fields', async () => {
  const id = idOf(await run('request', '--quota', 'ann', '--pattern', '/place/', '--retention', '2d'));
  const readStored = () => app.ctx.db.prisma.request.findUniqueOrThrow({ where: { id: Number(id) } });
  const before = await readStored();
  const days = (Date.parse(`${before.retention}Z`) - Date.parse(`${before.requestDate}Z`)) / 86_400_000;
  expect(Math.round(days * 100) / 100).toBe(2);

  const set = ['--max-files', '7', '--max-bytes', '1G', '--notify-first', 'first@example.org', '--notify-last', 'own'];
  const changed = await run('update', id, '--retention', '2100-01-02', '--label', 'new name', ...set);
  expect(changed).toEqual({
    ...done(`request ${id} is completed: 2 files, 1.50 kB, kept until 2100-01-02T00:00:00Z\n`),
    stderr: 'email is only logged at this site, because no SMTP server is configured\n',
  });
  expect(await readStored()).toEqual({
    ...before,
    retention: '2100-01-02T00:00:00',
    label: 'new name',
    maxFiles: 7,
    maxBytes: 1_000_000_000n,
    notifyOnFirstFile: 'first@example.org',
    notifyOnLastFile: 'ann@example.org',
  });
  const unset = ['--max-files', '--max-bytes', '--notify-first', '--notify-last'].flatMap((name) => [name, 'none']);
  await run('update', id, ...unset);
  const renamed = { ...before, retention: '2100-01-02T00:00:00', label: 'new name' };
  expect(await readStored()).toEqual({ ...renamed, notifyOnLastFile: null });

  expect(await run('update', id)).toEqual(refused(2, 'nothing to change: give at least one option'));
  const stored = await readStored();
  for (const past of ['2020-01-01', '0d']) {
    expect(await run('update', id, '--retention', past)).toEqual(
      refused(
        2,
        `--retention must be in the future, not "${past}"; to end the request now, run "tapegate cancel ${id}"`,
      ),
    );
  }
  expect(await readStored()).toEqual(stored);
  expect(await run('update', id, '--max-files', '1.5')).toMatchObject({ code: 2 });
  expect(await run('update', '99999', '--label', 'x')).toEqual(
    refused(1, 'there is no request 99999, or you are not allowed to see it'),
  );
});

test('cancel ends several requests, and names unknown ones', async () => {
  const ids: string[] = [];
  for (let n = 0; n < 3; n++) ids.push(idOf(await run('request', '--quota', 'ann', '--pattern', '/place/')));
  const [one = '', two = '', three = ''] = ids;
  expect(await run('cancel', one, '99998', two, '99999')).toEqual({
    code: 1,
    stdout: `request ${one} is cancelled\nrequest ${two} is cancelled\n`,
    stderr:
      'tapegate: there is no request 99998, or you are not allowed to see it\nthere is no request 99999, or you are not allowed to see it\n',
  });
  expect(await run('cancel', three, '--json')).toEqual(done(`{"requestId":${three},"state":"CANCELLED"}\n`));
  expect(await run('cancel', one, 'two')).toMatchObject({ code: 2, stdout: '' });
});

test('quota remove refuses a quota with live requests, and keeps the history of a removed one', async () => {
  await addQuota(app.ctx, 'gone', 1_000_000n);
  const id = idOf(await run('request', '--quota', 'gone', '--pattern', '/place/', '--watch'));
  expect(await run('quota', 'remove', 'gone')).toEqual(
    refused(1, 'quota "gone" has 1 live request with 2 files (1500 bytes in total): cancel it first'),
  );
  await run('cancel', id);
  expect(await run('quota', 'remove', 'gone')).toEqual(
    done('quota gone is removed; its ended requests are still listed\n'),
  );
  expect(await run('quota', 'show', 'gone')).toEqual(
    refused(1, 'there is no quota "gone", or you are not allowed to see it'),
  );
  expect((await run('quota', 'list')).stdout).not.toContain('gone');
  expect(await run('quota', 'remove', 'gone')).toEqual(refused(1, 'there is no quota for user "gone"'));
  expect(await run('request', '--quota', 'gone', '--file', '/not/known')).toEqual(
    refused(1, 'there is no quota for user "gone"'),
  );
  expect(await run('update', id, '--retention', '1d')).toEqual(refused(1, 'there is no quota for user "gone"'));
  expect((await run('show', id)).stdout).toMatch(/^USER +gone$/m);
  await run('quota', 'set', 'gone', '--size', '5K');
  expect((await run('quota', 'show', 'gone', '--json')).stdout).toContain('"size":5000,"used":0');
});

test('disk remove refuses a disk with copies, and removes the suspension of an empty one', async () => {
  const disk = path.join(app.dataDir, 'second');
  await run('disk', 'add', disk, '--size', '1G', '--create');
  await run('suspend', 'disk', disk);
  expect(await run('disk', 'remove', disk)).toEqual(
    done(`restore disk ${disk} is removed; its directory is unchanged\n`),
  );
  expect((await run('disk', 'list')).stdout).not.toContain(disk);
  expect((await run('suspensions')).stdout).not.toContain(disk);
  expect(await run('disk', 'remove', disk)).toEqual(refused(1, `there is no restore disk ${JSON.stringify(disk)}`));
  await run('request', '--quota', 'ann', '--pattern', '/place/', '--watch');
  expect(await run('disk', 'remove', app.restoreDir)).toEqual(
    refused(
      1,
      `restore disk ${JSON.stringify(app.restoreDir)} contains 2 copies (1500 bytes in total), and has 0 running recalls: drain the disk, and remove it when it is empty`,
    ),
  );
});
