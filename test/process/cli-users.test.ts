/** Users' commands: `ls`, `request`, `release`, `requests`, `watch` and `cancel`. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { done, parseLines, parseTable, refused } from '../support/command-results.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cleanUp, type Result, runCli, startCommand } from '../support/process.js';
import { readRequest } from '../support/rest.js';
import { useApp } from '../support/use-app.js';
import { createGate } from '../support/wait.js';

const library = createMemoryLibrary();
let env: Record<string, string>;

/** Gate for reads of volumes whose name begins with HELD. */
const { opened: held, open: letGo } = createGate();

const app = useApp({ library }, async () => {
  env = { TAPEGATE_URL: `${app.url}/`, TAPEGATE_TOKEN: app.token };
  library.onRead = async (volume) => {
    if (volume.startsWith('HELD')) await held;
    if (volume.startsWith('BAD')) throw new TapeError('PERMANENT', 'worn out');
  };
  await addQuota(app.ctx, 'ann', 100_000n);
  await addQuota(app.ctx, 'small', 999n);
  await addTaped(app.ctx, library, [
    { path: '/ocean/a.nc', size: 1500 },
    { path: '/ocean/b.nc', size: 500 },
  ]);
});
afterAll(async () => {
  letGo();
  await cleanUp();
});

const run = (...args: string[]): Promise<Result> => runCli(args, { env });
const idOf = ({ stdout }: Result) => /request (\d+)/.exec(stdout)?.[1] ?? '';

test('ls lists files by substring and stage, up to a limit', async () => {
  await addFiles(app.ctx, [
    { path: '/ls/t', stage: 'ONTAPE', size: 9007199254740993n, verified: '2026-01-02T03:04:05.000006', spotName: null },
    { path: '/ls/d', stage: 'ONDISK', size: 2n },
    { path: '/ls/u', stage: 'UNVERIFIED', size: 0n, verified: null },
  ]);
  const d = 'D    2 bytes  /ls/d\n';
  const t = 'T    9.01 PB  /ls/t\n';
  const u = 'U    0 bytes  /ls/u\n';
  expect(await run('ls', '/ls/')).toEqual(done(d + t + u));
  expect(await run('ls', '/ls/', '--stages', 'tU')).toEqual(done(t + u));
  expect(await run('ls', '/ls/', '--limit', '2')).toEqual(done(`${d}${t}2 of 3 files; --limit shows more\n`));
  expect(await run('ls', '/ls/', '--limit', '0')).toEqual(done('0 of 3 files; --limit shows more\n'));
  expect(await run('ls', '/LS/')).toEqual({
    ...done(''),
    stderr: 'no file in the catalogue has a path that contains "/LS/" (case-sensitive)\n',
  });
  expect((await run('ls', '/ls/*', '--stages', 'T')).stderr).toBe(
    'no file at these stages has a path that contains "/ls/*" (case-sensitive; * ? [ ] are literal)\n',
  );
  expect(await run('ls', '/ls/t', '--json')).toEqual(
    done(
      '{"path":"/ls/t","size":9007199254740993,"stage":"ONTAPE","verifiedAt":"2026-01-02T03:04:05.000006Z","spotName":null,"checksum":null,"adler32":null,"restoredPath":null,"position":1,"copyPosition":null,"volume":"V00001","copyVolume":null}\n',
    ),
  );
  const cut = await run('ls', '/ls/', '--json', '--limit', '2');
  expect(parseLines(cut).map((file) => file.path)).toEqual(['/ls/d', '/ls/t']);
  expect(cut.stderr).toBe('2 of 3 files; --limit shows more\n');
});

test('ls reads more than one page', async () => {
  await addFiles(
    app.ctx,
    Array.from({ length: 2500 }, (_, n) => ({ path: `/pages/${String(n).padStart(4, '0')}` })),
  );
  const all = (await run('ls', '/pages/', '--limit', '5000')).stdout.split('\n');
  const some = (await run('ls', '/pages/')).stdout.split('\n');
  expect(all.slice(0, -1).map((line) => line.slice(-4))).toEqual(
    Array.from({ length: 2500 }, (_, n) => String(n).padStart(4, '0')),
  );
  expect(some.slice(-2)).toEqual(['1000 of 2500 files; --limit shows more', '']);
  expect(some).toHaveLength(1002);
  const scripted = await run('ls', '/pages/', '--json');
  expect({ count: parseLines(scripted).length, stderr: scripted.stderr }).toEqual({ count: 2500, stderr: '' });
});

test('ls refuses bad options', async () => {
  expect(await run('ls', '--stages', 'TX')).toEqual(
    refused(2, '--stages must contain only the letters U, D, T, A, R, not "X"'),
  );
  for (const limit of ['ten', '-1', '']) {
    expect(await run('ls', `--limit=${limit}`)).toEqual(
      refused(2, `--limit must be a whole number, not ${JSON.stringify(limit)}`),
    );
  }
});

test('request accepts a pattern, and reports the request', async () => {
  const result = await run('request', '--quota', 'ann', '--pattern', '/ocean/', '--retention', '2100-01-02');
  expect(result).toEqual(
    done(expect.stringMatching(/^request \d+: 2 files, 2\.00 kB, kept until 2100-01-02T00:00:00Z\n$/)),
  );
  const id = Number(idOf(result));
  expect(await run('watch', String(id))).toMatchObject({ code: 0 });
  const stored = await app.ctx.db.prisma.request.findUnique({ where: { id } });
  expect(stored).toMatchObject({ pattern: '/ocean/', label: '/ocean/', filesTotal: 2, state: 'COMPLETED' });
});

test('request accepts paths, lists in files and a list on standard input together', async () => {
  const list = path.join(app.dataDir, 'list.txt');
  writeFileSync(list, '\uFEFF/ocean/b.nc\r\n\r\n/not/there é\n');
  const args = ['request', '--quota', 'ann', '--file', '/ocean/a.nc', `@${list}`, '-', '--label', 'mixed'];
  const mail = ['--notify-first', 'first@example.org', '--notify-last', 'last@example.org'];
  const result = await runCli([...args, ...mail, '--json'], { env, stdin: '/from/stdin' });
  const [made] = parseLines(result);
  expect(made).toEqual({
    ...{ requestId: expect.any(Number), label: 'mixed', state: expect.any(String) },
    ...{ filesTotal: 2, bytesTotal: 2000, filesUnknown: 2, filesAtPrimaryPath: 0 },
    retention: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
    restoredBelow: expect.any(Array), // the engine may have restored them already
  });
  expect(await readRequest(app, made.requestId)).toMatchObject({
    quota: 'ann',
    label: 'mixed',
    notify_on_first_file: 'first@example.org',
    notify_on_last_file: 'last@example.org',
    files: ['/ocean/a.nc', '/ocean/b.nc', '/not/there é', '/from/stdin'],
  });
});

const untilOf = (made: Result): string =>
  / kept until (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)\n/.exec(made.stdout)?.[1] ?? '';

/** Returns the note that a request also takes files that appear later. */
function staysOf(made: Result): string {
  const [id, retention] = [idOf(made), untilOf(made)];
  return `request ${id} stays active until ${retention}: files that later appear in the catalogue are added, and charged to the quota; "tapegate cancel ${id}" ends it`;
}

test('request names paths and patterns without files, and ends with 3 if no other file is to come', async () => {
  const unknown = await run('request', '--quota', 'ann', '--file', '/no/such', '/ocean/A.nc');
  const id = idOf(unknown);
  const lacks = `tapegate: request ${id} does not contain all requested files yet:
2 of the request's paths are not in the catalogue (case-sensitive):
  /no/such
  /ocean/A.nc
${staysOf(unknown)}
`;
  expect(unknown).toEqual({
    code: 3,
    stdout: expect.stringMatching(/^request \d+: 0 files, 0 bytes, 2 paths not in the catalogue, kept until \S+\n$/),
    stderr: lacks,
  });
  expect(await run('watch', id)).toMatchObject({
    ...{ code: 3, stdout: `request ${id} is completed: 0 files on disk, 0 bytes\n` },
    stderr: expect.stringContaining(lacks),
  });
  expect(await run('watch', id, '--json')).toMatchObject({ code: 3, stderr: lacks });
  expect((await run('show', id)).stdout).toContain('\n  /no/such\n');

  const lines = await run('request', '--quota', 'ann', '--file', '/no\nsuch');
  expect(lines.stderr.split('\n').slice(2)).toEqual(['  /no\uFFFDsuch', staysOf(lines), '']);

  const none = await run('request', '--quota', 'ann', '--pattern', '/Ocean/*.nc');
  expect(none).toMatchObject({ code: 3 });
  const noneId = idOf(none);
  expect(none.stderr).toBe(
    `tapegate: request ${noneId} matches no file yet: no path contains "/Ocean/*.nc" (case-sensitive; * ? [ ] are literal). The request stays active until ${untilOf(none)}, and adds matching files that appear in the catalogue; "tapegate cancel ${noneId}" ends it\n`,
  );
  await run('cancel', noneId);
  const ended = (await run('show', noneId)).stdout;
  expect(ended).toContain('\nno file in the catalogue has a path that contains "/Ocean/*.nc"');
  expect(ended).not.toContain(' stays active until ');
  expect(await run('request', '--quota', 'ann', '--pattern', '/Ocean/', '--dry-run')).toMatchObject({
    ...{ code: 3, stdout: expect.stringMatching(/\nnothing was requested\n$/) },
    stderr: 'tapegate: no file in the catalogue has a path that contains "/Ocean/" (case-sensitive)\n',
  });
  expect(await run('request', '--quota', 'ann', '--file', '/no/such', '--dry-run')).toMatchObject({
    ...{ code: 3, stderr: 'tapegate: 1 path is not in the catalogue\n' },
    stdout: expect.stringContaining(
      '\nunknown     1 path not in the catalogue (case-sensitive):\n            /no/such\n',
    ),
  });
});

test('request ends with 0 if known files are still to come, and names the unknown ones', async () => {
  await addTaped(app.ctx, library, [{ path: '/later/known', size: 10, volume: 'HELD0' }]);
  const result = await run('request', '--quota', 'ann', '--file', '/later/known', '/later/unknown');
  expect(result).toMatchObject({
    code: 0,
    stderr: `1 of the request's paths is not in the catalogue (case-sensitive):\n  /later/unknown\n${staysOf(result)}\n`,
  });
});

test('request suggests a pattern for a directory that is given to --file', async () => {
  const directory = '/ocean (a directory: use --pattern "/ocean/" for its files)';
  const made = await run('request', '--quota', 'ann', '--file', '/ocean', '/ocea', '/a.nc');
  expect(made).toMatchObject({ code: 3 });
  expect(made.stderr.split('\n').slice(2, 5).sort()).toEqual(['  /a.nc', '  /ocea', `  ${directory}`]);
  const longest = `/${'longest/'.repeat(300)}`.slice(0, 2048);
  expect((await run('request', '--quota', 'ann', '--file', longest)).stderr).toContain(`:\n  ${longest}\n`);
  expect((await run('request', '--quota', 'ann', '--file', '/ocean', '--dry-run')).stdout).toContain(
    `\n            ${directory}\n`,
  );
  expect(await run('request', '--quota', 'ann', '--file', '/ocean/a.nc', '/ocean/')).toEqual(
    refused(2, '--file takes paths of files: use --pattern "/ocean/" for all files below a directory'),
  );
});

test('request refuses bad input in one line, and stores nothing', async () => {
  const latin = path.join(app.dataDir, 'latin.txt');
  writeFileSync(latin, Buffer.from([0x2f, 0xe9, 0x0a]));
  const ann = ['request', '--quota', 'ann'];
  const when = 'YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS (UTC), or how long from now, such as 3d or 12h';
  const room =
    '2.00 kB requested, 999 bytes of 999 bytes free; request fewer files, or ask an operator for a larger quota';
  const cases: [string[], number, string][] = [
    [['request', '--quota', 'nobody', '--pattern', 'x'], 1, 'there is no quota for user "nobody"'],
    [['request', '--quota', 'small', '--pattern', '/o'], 1, `the request does not fit in quota "small": ${room}`],
    [ann, 2, 'give either --pattern or --file'],
    [[...ann, '--file', 'b'], 2, '--file has a path that does not begin with "/": "b"'],
    [[...ann, '--pattern', ''], 2, '--pattern must not be empty'],
    [[...ann, '--file', '-'], 2, '--file contains no paths'],
    [[...ann, '--file', '@/none'], 1, 'cannot read /none: no such file or directory'],
    [[...ann, '--file', `@${latin}`], 1, `--file @${latin}: the list is not valid UTF-8`],
    [[...ann, '--pattern', 'x', '--retention', 'soon'], 2, `--retention must be ${when}, not "soon"`],
  ];
  const before = await app.ctx.db.prisma.request.count();
  for (const [args, code, message] of cases) expect(await run(...args)).toEqual(refused(code, message));
  expect(await app.ctx.db.prisma.request.count()).toBe(before);
});

test('the last email goes to the address of the quota unless an option says otherwise', async () => {
  const ocean = ['request', '--quota', 'ann', '--pattern', '/ocean/', '--json'];
  const lastOf = async (...args: string[]) => {
    const [{ requestId }] = parseLines(await run(...ocean, ...args));
    const stored = await app.ctx.db.prisma.request.findUnique({ where: { id: requestId } });
    return [stored?.notifyOnFirstFile, stored?.notifyOnLastFile];
  };
  expect(await lastOf()).toEqual([null, 'ann@example.org']);
  expect(await lastOf('--notify-last', 'other@example.org')).toEqual([null, 'other@example.org']);
  expect(await lastOf('--no-mail')).toEqual([null, null]);
});

test('request refuses more files than --max-files', async () => {
  const ocean = ['request', '--quota', 'ann', '--pattern', '/ocean/'];
  const [made] = parseLines(await run(...ocean, '--max-files', '2', '--max-bytes', '10T', '--json'));
  const stored = await app.ctx.db.prisma.request.findUnique({ where: { id: made.requestId } });
  expect(stored).toMatchObject({ maxFiles: 2, maxBytes: 10n ** 13n, filesTotal: 2 });
  expect(await run(...ocean, '--max-files', '1')).toEqual(
    refused(
      2,
      '--max-files is 1, but the request would contain 2 files; raise the limit, use a more specific pattern, or request a list of files',
    ),
  );
});

test('release releases files of a request by path, by lists and by a part of their paths', async () => {
  await addFiles(
    app.ctx,
    ['a', 'b', 'c', 'd', 'e'].map((name) => ({ path: `/let-go/${name}`, stage: 'ONDISK' as const, size: 500n })),
  );
  const [{ requestId }] = parseLines(await run('request', '--quota', 'ann', '--pattern', '/let-go/', '--json'));
  const id = String(requestId);
  const left = (text: string) => done(`request ${id} is completed: ${text}\n`);
  expect(await run('release', id, '--match', 'go/a')).toEqual(left('1 file released, 4 files left, 2.00 kB'));
  const list = path.join(app.dataDir, 'released.txt');
  writeFileSync(list, '/let-go/b\n');
  expect(await runCli(['release', id, '--file', `@${list}`, '/let-go/c', '-'], { env, stdin: '/let-go/d\n' })).toEqual(
    left('3 files released, 1 file left, 500 bytes'),
  );
  expect(await run('release', id, '--file', '/let-go/a', '--json')).toEqual(
    done(
      `{"requestId":${id},"state":"COMPLETED","filesReleased":4,"filesUnknown":0,"filesTotal":1,"bytesTotal":500,"filesReleasedNow":0}\n`,
    ),
  );
  expect(await run('release', id, '--match', '')).toEqual(
    refused(2, '--match must not be empty; "/" matches all paths'),
  );
  expect(await run('release', id, '--file', '/ocean/a.nc')).toEqual(
    refused(2, `--file must all be in request ${id}, which does not contain "/ocean/a.nc"`),
  );
  for (const args of [[], ['--file', '/x', '--match', 'x']]) {
    expect(await run('release', id, ...args)).toEqual(refused(2, 'give either --file or --match'));
  }
  expect(await run('release', id, '--match', 'nowhere')).toEqual(
    refused(2, `--match does not match any path of request ${id}: "nowhere"`),
  );
  await run('cancel', id);
  expect(await run('release', id, '--match', 'let-go')).toEqual(
    refused(2, `<id> must identify a live request: request ${id} has ended, and its files are already released`),
  );
  const [waiting] = parseLines(await run('request', '--quota', 'ann', '--file', '/let-go/x', '/let-go/y', '--json'));
  expect((await run('release', String(waiting.requestId), '--file', '/let-go/x')).stdout).toBe(
    `request ${waiting.requestId} is completed: 0 files and 1 unknown path released, 0 files left, 0 bytes\n`,
  );
  await run('cancel', String(waiting.requestId));
});

test('requests lists the live requests of a user, and ended ones with --all', async () => {
  await addQuota(app.ctx, 'lister', 10_000n);
  await addTaped(app.ctx, library, [{ path: '/lister/x', size: 1000, volume: 'LISTER' }]);
  for (const label of ['one', 'two']) {
    const args = ['request', '--quota', 'lister', '--pattern', '/lister/', '--label', label];
    await run(...args, '--watch', '--retention', '2100-01-02');
  }
  const [one, two] = parseLines(await run('requests', '--quota', 'lister', '--json'));
  expect(await run('cancel', String(one.requestId))).toEqual(done(`request ${one.requestId} is cancelled\n`));
  expect(await run('cancel', String(one.requestId), '--json')).toEqual(
    done(`{"requestId":${one.requestId},"state":"CANCELLED"}\n`),
  );
  const ended = (await run('show', String(one.requestId))).stdout;
  expect([ended.match(/^WAS ON DISK +\d of /m)?.length, ended.includes('DIRECTORY')]).toEqual([1, false]);
  const left = await run('requests', '--quota', 'lister');
  const all = await run('requests', '--quota', 'lister', '--all');
  expect(two).toEqual({
    ...{ requestId: two.requestId, label: 'two', state: 'COMPLETED', quota: { user: 'lister' } },
    ...{ createdAt: expect.any(String), retention: '2100-01-02T00:00:00Z' },
    ...{ filesTotal: 1, filesOnDisk: 1, filesFailed: 0, filesUnknown: 0, filesRefused: 0, bytesTotal: 1000 },
  });
  const row = [String(two.requestId), 'lister', 'COMPLETED', '1 of 1 file', '1.00 kB', '2100-01-02T00:00:00', 'two'];
  const header = ['ID', 'USER', 'STATE', 'ON DISK', 'SIZE', 'UNTIL', 'LABEL'];
  expect(parseTable(left)).toEqual([header, row, ['']]);
  expect(parseTable(all).map(([id, , state]) => [id, state])).toEqual([
    ['ID', 'STATE'],
    [String(one.requestId), 'CANCELLED'],
    [String(two.requestId), 'COMPLETED'],
    ['', undefined],
  ]);
});

test('requests and show count names that are not found as missing files', async () => {
  const result = await run('request', '--quota', 'ann', '--file', '/ocean/a.nc', '/ocean/none', '/ocean/nothing');
  const list = parseTable(await run('requests', '--quota', 'ann'));
  const row = list.find(([id]) => id === idOf(result));
  expect(row?.slice(2, 4)).toEqual(['COMPLETED', '1 of 3 files; 2 unresolved paths']);
  expect((await run('show', idOf(result))).stdout).toMatch(/\nON DISK +1 of 3 files, .*; 2 unresolved paths\n/);
});

test('requests refuses an unknown user', async () => {
  await addQuota(app.ctx, 'idle', 1n);
  expect(await run('requests', '--quota', 'idle', '--json')).toEqual(done(''));
  expect(await run('requests', '--quota', 'idel')).toEqual(
    refused(1, 'there is no quota "idel", or you are not allowed to see it'),
  );
});

test('request --watch ends with 3 if a file has failed, and reports what is on disk', async () => {
  await addTaped(app.ctx, library, [
    { path: '/partly/good', size: 1000, volume: 'GOOD' },
    { path: '/partly/bad', size: 1000, volume: 'BAD' },
  ]);
  const result = await run('request', '--quota', 'ann', '--pattern', '/partly/', '--watch');
  const id = idOf(result);
  expect({ ...result, stderr: result.stderr.split('\n').slice(-2) }).toEqual({
    code: 3,
    stdout: expect.stringContaining(
      `\nrequest ${id} is partial: 1 file on disk, 1.00 kB, 1 failed\nrestored below ${app.restoreDir}`,
    ),
    stderr: [`"tapegate show ${id}" lists the failed files, "tapegate retry ${id}" retries them`, ''],
  });
  const fault = [
    `tapegate: request ${id} is partial: 1 of 2 files failed`,
    '  /partly/bad: worn out',
    `"tapegate show ${id}" lists the failed files, "tapegate retry ${id}" retries them\n`,
  ].join('\n');
  const again = await run('watch', id);
  expect([again.code, again.stderr.endsWith(fault)]).toEqual([3, true]);
  expect(again.stderr).toMatch(/ 50% {2}1\/2 files, 1 failed {2}1\.00 kB of 2\.00 kB {2}\S+ \S+ {2}ended\n/);
});

test('watch --json prints each step up to the end', async () => {
  await addTaped(app.ctx, library, [{ path: '/steps/x', size: 1000, volume: 'HELD1' }]);
  const [{ requestId }] = parseLines(await run('request', '--quota', 'ann', '--pattern', '/steps/', '--json'));
  const watching = startCommand(['watch', String(requestId), '--json'], { env });
  await watching.waitForOutput(/RESTORING/);
  letGo();
  const result = await watching.ended;
  const steps = parseLines(result);
  expect(result).toMatchObject({ code: 0, stderr: '' });
  const whole = { requestId, state: 'COMPLETED', filesTotal: 1, filesOnDisk: 1, bytesOnDisk: 1000 };
  expect(steps.at(-1)).toMatchObject(whole);
  const ids = steps.map((step) => step.eventId);
  expect(ids).toEqual([...new Set(ids)].sort((a, b) => a - b));
});

test('watch reports a cancelled request, and watch, show and cancel refuse unknown ids', async () => {
  const [{ requestId }] = parseLines(await run('request', '--quota', 'ann', '--file', '/nowhere', '--json'));
  await run('cancel', String(requestId));
  const cancelled = (id: number, had: string) => ({
    code: 3,
    stdout: `request ${id} is cancelled: ${had} were on disk and have been released\n`,
    stderr: `tapegate: request ${id} is cancelled\n`,
  });
  expect(await run('watch', String(requestId))).toMatchObject(cancelled(requestId, '0 of 0 files (0 bytes)'));
  const made = await run('request', '--quota', 'ann', '--pattern', '/ocean/', '--watch', '--json');
  const [{ requestId: whole }] = parseLines(made);
  await run('cancel', String(whole));
  expect(await run('watch', String(whole))).toEqual(cancelled(whole, '2 of 2 files (2.00 kB)'));
  for (const command of ['watch', 'show', 'cancel']) {
    expect(await run(command, '99999')).toEqual(
      refused(1, 'there is no request 99999, or you are not allowed to see it'),
    );
    for (const id of ['one', '2147483648']) {
      expect(await run(command, id)).toEqual(refused(2, `<id> must be a whole number, not ${JSON.stringify(id)}`));
    }
  }
});
