/** Commands on a remote host that has TAPEGATE_URL and a token, but neither the database nor DATA_DIR. */
import { chmodSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeEach, expect, test, vi } from 'vitest';
import { recordMeasurements } from '../../src/domain/disks/disks.js';
import { done, parseLines, parseTable, refused } from '../support/command-results.js';
import { addFiles, addQuota } from '../support/factories.js';
import { cleanUp, makeDataDir, type Result, runCli, serveHere } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { asUnprivilegedUser, giveToUnprivilegedUser, isRoot, UNPRIVILEGED_UID } from '../support/unprivileged-user.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

let dir: string;
let afar: Record<string, string>;
let here: Record<string, string>;

const app = useApp();
beforeEach(() => {
  dir = makeDataDir();
  afar = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token, DATA_DIR: path.join(dir, 'none'), HOME: dir };
  here = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, HOME: dir };
});
afterEach(() => vi.restoreAllMocks());
afterAll(cleanUp);

const run = (...args: string[]): Promise<Result> => runCli(args, { env: afar });
const runHere = (...args: string[]): Promise<Result> => runCli(args, { env: here });
async function expectSame(...commands: string[][]): Promise<void> {
  for (const args of commands) expect([args, await run(...args)]).toEqual([args, await runHere(...args)]);
}

test('operators’ commands use the database even if TAPEGATE_URL is set; those of users use the gateway', async () => {
  const env = { ...here, TAPEGATE_URL: 'http://127.0.0.1:1' };
  expect(await runCli(['quota', 'list', '--json'], { env })).toMatchObject({ code: 0, stderr: '' });
  expect(await runCli(['requests'], { env })).toMatchObject({ code: 4 });
  expect(await runHere('requests', '--json')).toEqual(done(''));
  // a token selects the gateway instead of the database
  const shown = { ...here, TAPEGATE_TOKEN: 'tapegate_unknown' };
  expect((await runCli(['requests'], { env: shown })).stderr).toContain('http://127.0.0.1:8080');
});

test('a kept token for the gateway of this host comes before the database for users’ commands only', async () => {
  const directory = path.join(dir, '.config/tapegate');
  mkdirSync(directory, { recursive: true });
  const kept = JSON.stringify({ 'http://127.0.0.1:8080': { token: 'tapegate_unknown' } });
  writeFileSync(path.join(directory, 'tokens.json'), kept, { mode: 0o600 });
  const asked = expect.stringContaining('http://127.0.0.1:8080');
  expect(await runHere('requests')).toMatchObject({ stderr: asked });
  expect(await runHere('quota', 'list', '--json')).toMatchObject({ code: 0, stderr: '' });
  const env = { DATA_DIR: path.join(dir, 'none'), HOME: dir };
  expect(await runCli(['quota', 'list'], { env })).toMatchObject({ stderr: asked });
});

test.runIf(isRoot)('a command of a user other than the owner of the embedded database uses a gateway', async () => {
  const cluster = path.join(dir, 'postgres');
  mkdirSync(cluster);
  const env = { DATA_DIR: dir, HOME: dir, TAPEGATE_URL: 'http://127.0.0.1:1' };
  const ends = () => asUnprivilegedUser(() => runCli(['quota', 'list'], { env }));
  vi.spyOn(process, 'getuid').mockReturnValue(UNPRIVILEGED_UID);
  chmodSync(cluster, 0o755);
  expect(await ends()).toMatchObject({ stderr: expect.stringContaining(env.TAPEGATE_URL) });
  giveToUnprivilegedUser(cluster);
  expect(await ends()).not.toMatchObject({ stderr: expect.stringContaining(env.TAPEGATE_URL) });
});

test('a command prints the same on the database as through a gateway', async () => {
  await addQuota(app.ctx, 'zoë', 10n ** 9n);
  await addFiles(app.ctx, [{ path: '/same/a', size: 1000n }]);
  const id = await makeRequest(app, { quota: 'zoë', files: ['/same/a'] });
  await expectSame(
    ['quota', 'set', 'zoë', '--size', '16000000000000001', '--json'],
    ['quota', 'set', 'a\nb', '--size', '1'],
    ['quota', 'show', 'nobody'],
    ['quota', 'list'],
    ['quota', 'remove', 'zoë'],
    ['show', String(id)],
    ['cancel', '99999999'],
    ['request', '--quota', 'zoë', '--pattern', '/same/', '--retention', 'soon'],
    ['watch', '99999999'],
    ['ls', 'x'.repeat(5000)],
  );
  await run('cancel', String(id));
});

test('quota history prints the use by the hour', async () => {
  await run('quota', 'set', 'hal', '--size', '4000');
  await app.ctx.db.pool.query(
    `INSERT INTO quota_history (quota_id, at, used, size)
     SELECT id, date_trunc('hour', now() AT TIME ZONE 'UTC') - interval '3 days', 1000, 2000 FROM quota WHERE "user" = 'hal'`,
  );
  expect((await run('quota', 'history', 'hal')).stdout).toMatch(
    /^AT +USED +SIZE +USAGE\n\d{4}-\S+ +1\.00 kB +2\.00 kB +50%\n\d{4}-\S+ +0 bytes +4\.00 kB +0%\n$/,
  );
  const at = expect.stringMatching(/Z$/);
  expect(parseLines(await run('quota', 'history', 'hal', '--since', '1d', '--json'))).toEqual([
    { at, used: 1000, size: 2000 },
    { at, used: 0, size: 4000 },
  ]);
  expect(await run('quota', 'history', 'hal', '--since', '2999-01-01')).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/^tapegate: --since must not be in the future/),
  });
  expect(await run('quota', 'history', 'nobody')).toEqual(
    refused(1, 'there is no quota "nobody", or you are not allowed to see it'),
  );
});

test('volumes are listed, and volume set changes the medium of all named volumes or of none', async () => {
  const volumeOf = (volume: string, n: number) => ({ path: `/volume/${volume}/${n}`, size: 2n ** 40n, volume });
  await addFiles(app.ctx, [volumeOf('V1', 1), volumeOf('V1', 2), volumeOf('V2', 1)]);
  expect(await run('volume', 'set', 'V1', '--medium', 'lto-9')).toEqual(done('1 volume: medium lto-9\n'));
  for (const bad of [
    ['V2', 'V9', '--medium', 'lto-8'],
    ['V2', '--medium', 'stone'],
    ['--medium', 'lto-8'],
  ]) {
    expect((await run('volume', 'set', ...bad)).code).toBeGreaterThan(0);
  }
  const listed = (await run('volume', 'list', '--json')).stdout.split('\n').filter((line) => /"V[12]"/.test(line));
  expect(listed).toEqual([
    '{"name":"V1","library":"directory","medium":"lto-9","fileCount":2,"bytes":2199023255552}',
    '{"name":"V2","library":"directory","medium":"linear","fileCount":1,"bytes":1099511627776}',
  ]);
  expect(await run('volume', 'set', '--all', '--medium', 'lto-8', '--json')).toMatchObject({
    stdout: expect.stringMatching(/^\{"medium":"lto-8","volumeCount":\d+\}\n$/),
  });
});

test('token create prints only the token on standard output, and it is valid until it is revoked', async () => {
  await addQuota(app.ctx, 'ann', 10n ** 9n);
  const made = await run('token', 'create', 'ann', '--expires', '90d', '--note', 'her laptop');
  const [secret, id] = [made.stdout.trimEnd(), /^token (\d+) /.exec(made.stderr)?.[1] ?? ''];
  expect(secret).toMatch(/^tapegate_[\w-]{43}$/);
  expect(made).toMatchObject({ code: 0, stderr: expect.stringContaining(' of user ann is valid until 20') });
  const env = { ...afar, TAPEGATE_TOKEN: secret };
  expect(await runCli(['quota', 'list', '--json'], { env })).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^[^\n]*"user":"ann"[^\n]*\n$/),
  });
  const listed = await run('token', 'list');
  expect(listed.stdout).not.toContain('tapegate_');
  expect(parseTable(listed).find(([first]) => first === id)).toEqual([
    ...[id, 'ann', 'user', expect.any(String), 'operator'],
    ...[expect.stringMatching(/^20/), expect.stringMatching(/^20/), 'her laptop'],
  ]);
  expect(await run('token', 'revoke', id)).toEqual(done(`token ${id} of user ann is revoked\n`));
  // the gateway learns of the revoked token from a notification of the database
  const rejected = await waitFor('the gateway to reject the token', async () => {
    const result = await runCli(['quota', 'list'], { env });
    return result.code !== 0 && result;
  });
  expect(rejected).toEqual(
    refused(1, 'the token is unknown, has expired or was revoked ("tapegate login" stores a token)'),
  );
  expect((await run('token', 'list')).stdout).toContain('revoked 20');
  expect(await run('token', 'revoke', '999999')).toEqual(refused(1, 'there is no token with id 999999'));
});

test('token create refuses bad options by name', async () => {
  expect(await run('token', 'create', 'robot', '--role', 'service')).toEqual(
    refused(2, '--quota must list the users for whom the service acts'),
  );
  expect(await run('token', 'create', 'ann', '--expires', '2001-01-01')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('tapegate: --expires must be in the future'),
  });
  expect(await run('token', 'create', 'ann', '--expires', 'soon')).toMatchObject({ code: 2 });
  expect(await run('token', 'create', 'a:b')).toEqual(refused(2, '<name> must not contain a colon: "a:b"'));
});

test('a read-only token may not run operators’ commands', async () => {
  const { stdout } = await run('token', 'create', 'vera', '--role', 'operator', '--read-only');
  const env = { ...afar, TAPEGATE_TOKEN: stdout.trimEnd() };
  for (const args of [
    ['quota', 'set', 'ann', '--size', '1'],
    ['user', 'purge', 'ann'],
    ['doctor'],
    ['token', 'create', 'eve', '--role', 'operator'],
  ]) {
    expect([args, await runCli(args, { env })]).toEqual([
      args,
      refused(
        1,
        `"vera" may not use this operation: the token allows only reading, and does not have the rights of an operator`,
      ),
    ]);
  }
});

test('login stores a token for its server that only its user can read, and logout removes it', async () => {
  const { TAPEGATE_TOKEN, ...env } = afar;
  const file = path.join(dir, '.config/tapegate/tokens.json');
  const list = () => runCli(['token', 'list', '--json'], { env });
  expect((await list()).code).toBe(1);
  expect(await runCli(['login'], { env, stdin: `${TAPEGATE_TOKEN}\n` })).toEqual(
    done(`the token for ${app.url} is stored in ${file}\n`),
  );
  expect([statSync(file).mode & 0o777, statSync(path.dirname(file)).mode & 0o777]).toEqual([0o600, 0o700]);
  expect((await list()).code).toBe(0);
  // the token is stored for this server only, and TAPEGATE_TOKEN takes precedence
  expect(Object.keys(JSON.parse(readFileSync(file, 'utf8')))).toEqual([app.url]);
  const bad = { ...env, TAPEGATE_TOKEN: 'tapegate_nobody' };
  expect((await runCli(['token', 'list'], { env: bad })).stderr).toContain('the token is unknown');
  chmodSync(file, 0o640);
  expect(await list()).toEqual(
    refused(
      1,
      `${file} must belong to you, and other users must not be able to read it: run chmod 600, and replace the tokens in the file`,
    ),
  );
  chmodSync(file, 0o600);
  expect(await runCli(['logout'], { env })).toEqual(done(`the stored token for ${app.url} is removed\n`));
  expect(await runCli(['logout'], { env })).toEqual(done(`no token is stored for ${app.url}\n`));
  expect((await list()).code).toBe(1);
});

test('a command without a token on a closed gateway says how to log in', async () => {
  const closed = await serveHere({ DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, TAPEGATE_AUTH: 'token' });
  const { TAPEGATE_TOKEN: _, ...others } = afar;
  const env = { ...others, TAPEGATE_URL: closed.url };
  const required = refused(1, 'authentication required: run "tapegate login", or set TAPEGATE_TOKEN');
  for (const command of ['requests', 'watch 1']) expect(await runCli(command.split(' '), { env })).toEqual(required);
  expect(await runCli(['requests'], { env: { ...env, TAPEGATE_TOKEN: 'other' } })).toEqual(
    refused(1, 'this token is not valid ("tapegate login" stores a token)'),
  );
});

test('login rejects text that is no token, and tokens that the server does not know', async () => {
  const { TAPEGATE_TOKEN: _, ...env } = afar;
  const logIn = (stdin: string) => runCli(['login'], { env, stdin });
  expect(await logIn('')).toEqual(refused(1, 'no token was given'));
  expect(await logIn('two words\n')).toEqual(refused(1, 'the input is not a token: expected a single word'));
  expect(await logIn('tapegate_nobody')).toEqual(refused(1, 'the token is unknown, has expired or was revoked'));
  expect(await logIn('of-another-system')).toEqual(refused(1, 'this token is not valid'));
  expect(await runCli(['logout'], { env })).toEqual(done(`no token is stored for ${app.url}\n`));
  const xdg = { ...env, XDG_CONFIG_HOME: path.join(dir, 'own') };
  expect(await runCli(['login'], { env: xdg, stdin: app.token })).toMatchObject({
    stdout: expect.stringContaining(path.join(dir, 'own/tapegate/tokens.json')),
  });
  writeFileSync(path.join(dir, 'own/tapegate/tokens.json'), 'no JSON');
  expect(await runCli(['quota', 'list'], { env: xdg })).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('is damaged: remove it, and log in again'),
  });
});

/** Dates disk measurements one hour ahead, so that no measurement expires during slow commands. */
async function keepMeasurements(): Promise<void> {
  await app.ctx.db.pool.query("UPDATE disk_measurement SET measured_at = measured_at + interval '1 hour'");
}

test('a restore disk is resized, listed and removed remotely; what touches the disk is refused', async () => {
  const mountpoint = path.join(dir, 'disk');
  await runHere('disk', 'add', mountpoint, '--size', '5G', '--create');
  await expectSame(
    ['disk', 'resize', mountpoint, '--size', '6G'],
    ['disk', 'resize', mountpoint, '--size', '7G', '--json'],
    ['disk', 'add', `${mountpoint}/`, '--size', '8G'],
    ['disk', 'resize', mountpoint, '--size', '10000P'],
    ['disk', 'resize', path.join(dir, 'none'), '--size', '1G'],
    ['disk', 'remove', path.join(dir, 'none')],
  );
  const { id } = await app.ctx.db.prisma.restoreDisk.findUniqueOrThrow({ where: { mountpoint } });
  const listed = { id, mountpoint, size: 8e9, used: 0, reserved: 0 };
  // no engine has measured the disk yet
  const unseen = { ...listed, room: 8e9, free: null, problem: null, suspension: null };
  expect(JSON.parse((await run('disk', 'list', '--json')).stdout)).toEqual(unseen);
  await recordMeasurements(app.ctx, 'tape2', [{ diskId: id, free: null, problem: 'it is away' }]);
  await recordMeasurements(app.ctx, 'tape1', [{ diskId: id, free: 3n * 10n ** 9n, problem: null }]);
  await keepMeasurements();
  await run('drain', 'disk', mountpoint, '--reason', 'a new fan');
  expect(parseTable(await run('disk', 'list'))[1]).toEqual([
    ...[mountpoint, '8.00 GB', '0 bytes', '0 bytes', '3.00 GB', '3.00 GB'],
    'draining: a new fan; tape2: it is away',
  ]);
  const where = 'run this command with DATABASE_URL on a host that has the disk (engines run on tape1, tape2)';
  for (const option of ['--mark', '--create']) {
    expect(await run('disk', 'add', mountpoint, '--size', '1G', option)).toEqual(
      refused(1, `--create and --mark do not work through a gateway: ${where}`),
    );
  }
  const none = path.join(dir, 'new');
  const adding = `a gateway cannot add restore disk "${none}": run this command with DATABASE_URL on a host that has the disk`;
  for (const more of [[], ['--create']]) {
    expect(await run('disk', 'add', none, '--size', '1G', ...more)).toEqual(refused(1, adding));
  }
  for (const command of ['add', 'resize']) {
    expect(await run('disk', command, 'disk', '--size', '1G')).toEqual(
      refused(2, 'a mount point on another host must be an absolute path, not "disk"'),
    );
  }
  expect(await run('disk', 'remove', `${mountpoint}/`)).toEqual(
    done(
      `restore disk ${mountpoint} is removed; its directory is unchanged\n`,
      'the marker file was not removed: a gateway cannot change restore disks; to add the disk again, use "tapegate disk add --mark"\n',
    ),
  );
  expect(await run('disk', 'list', '--json')).toEqual(done(''));
});

test('an argument or option that the gateway refuses is reported by its name, and ends with 2', async () => {
  const told = (message: string): Result => refused(2, message);
  const set = (...args: string[]) => run('rule', 'set', 'request', ...args);
  expect(await set('demo', '--user', 'ann')).toEqual(told('<prefix> has a path that does not begin with "/": "demo"'));
  expect(await set('', '--user', 'ann')).toEqual(told('<prefix> must not be empty: use / for all paths'));
  expect(await set('/demo', '--user', '')).toEqual(told('--user must not be empty'));
  expect(await set('/demo', '--group', '')).toEqual(told('--group must not be empty'));
  expect(await run('token', 'create', '')).toEqual(told('<name> must not be empty'));
  expect(await run('member', 'set', 'ann', '')).toEqual(told('<name> must not be empty'));
  expect(await run('request', '--quota', 'ann', '--pattern', '/a', '--retention', '2020-01-01')).toMatchObject({
    code: 2,
  });
  // an unknown quota is not a usage error, so the exit code is 1
  expect(await run('request', '--quota', 'nobody', '--pattern', '/a')).toMatchObject({ code: 1 });
});

test('member list and rule list print an object a line with --json, and nothing if there is none', async () => {
  const [members, rules] = [
    ['member', 'list', 'ann', '--json'],
    ['rule', 'list', '--json'],
  ];
  for (const list of [members, rules]) expect(await run(...list)).toEqual(done(''));
  for (const user of ['bob', 'eve']) {
    expect(await run('member', 'set', 'ann', user)).toMatchObject({ code: 0 });
    expect(await run('rule', 'set', 'fetch', '/listed', '--user', user)).toMatchObject({ code: 0 });
  }
  const namesOf = async (list: string[]) => parseLines(await run(...list)).map(({ name }) => name);
  for (const list of [members, rules]) expect(await namesOf(list)).toEqual(['bob', 'eve']);
});

test('rule set reports the files that it covers, and warns of none', async () => {
  const [nfc, nfd] = ['/\u00e9t\u00e9', '/e\u0301te\u0301'];
  await addFiles(app.ctx, [{ path: `${nfd}/it's` }]);
  expect(await run('rule', 'set', 'fetch', nfd, '--everybody')).toEqual(
    done(`everybody may fetch files below ${nfd}: 1 file now\n`),
  );
  expect(await run('rule', 'set', 'fetch', nfc, '--user', 'ann')).toEqual(
    done(
      `user ann may fetch files below ${nfc}\n`,
      `other callers may fetch these files only if another rule for ${nfc} allows it\nthe catalogue contains no files below ${nfc}: check the prefix\n`,
    ),
  );
  for (const [directory, who] of [
    [nfd, ['--everybody']],
    [nfc, ['--user', 'ann']],
  ] as const) {
    expect(await run('rule', 'remove', 'fetch', directory, ...who)).toMatchObject({ code: 0, stderr: '' });
  }
});

test('user purge reports its changes', async () => {
  await addQuota(app.ctx, 'eva', 10n ** 9n);
  const said =
    /^the user's name was replaced with purged-[0-9a-f]{8} in 0 requests, 0 emails, 0 tokens and \d+ audit entr(?:y|ies)\nlogs, /;
  expect(await run('user', 'purge', 'eva')).toEqual({ code: 0, stdout: expect.stringMatching(said), stderr: '' });
});

test('doctor finds and repairs wrong rows remotely, and refers to a host with the disks for the rest', async () => {
  const mountpoint = path.join(dir, 'disk');
  await runHere('disk', 'add', mountpoint, '--size', '5G', '--create');
  const { id } = await app.ctx.db.prisma.restoreDisk.findUniqueOrThrow({ where: { mountpoint } });
  const note = `disks not checked on this host: ${mountpoint} (tape1); run "tapegate doctor", with DATABASE_URL set, on a host that mounts these disks\n`;
  await recordMeasurements(app.ctx, 'tape1', [{ diskId: id, free: 1n, problem: null }]);
  await keepMeasurements();
  await addQuota(app.ctx, 'faulty', 10n ** 9n);
  await app.ctx.db.pool.query(`UPDATE quota SET used = 77 WHERE "user" = 'faulty'`);
  const fault = 'quota-used: user faulty: expected 0 bytes in requests; found 77 bytes used';
  const summary = /^checked \d+ quotas?, \d+ requests?, \d+ request files?, \d+ recalls?, no disk: (.*)$/;
  const read = async (...args: string[]) => {
    const { code, stdout, stderr } = await run('doctor', ...args);
    const lines = stdout.trimEnd().split('\n');
    return { code, lines: lines.map((line) => summary.exec(line)?.[1] ?? line), stderr };
  };
  expect(await read()).toEqual({ code: 1, lines: [fault, '1 finding (1 quota-used), 0 repaired'], stderr: note });
  const [json, report] = parseLines(await run('doctor', '--json'));
  const finding = {
    kind: 'quota-used',
    object: 'user faulty',
    expected: '0 bytes in requests',
    found: '77 bytes used',
  };
  expect(json).toEqual({ ...finding, isRepaired: false });
  const { examined, ...counts } = report;
  expect(counts).toEqual({ found: 1, repaired: 0 });
  expect(examined).toMatchObject({ quotas: expect.any(Number), disks: 1 });
  expect(await read('--repair')).toEqual({
    code: 0,
    lines: [`${fault} (repaired)`, '1 finding (1 quota-used), 1 repaired'],
    stderr: note,
  });
  // findings that only a host with the disk can repair are reported too
  await addFiles(app.ctx, [{ path: '/doctor/a' }]);
  await app.ctx.db.pool.query(`UPDATE tape_file SET stage = 'RESTORED', disk_id = $1 WHERE path = '/doctor/a'`, [id]);
  await app.ctx.db.pool.query('UPDATE restore_disk SET used = (SELECT sum(size) FROM tape_file WHERE disk_id = $1)', [
    id,
  ]);
  expect(await read('--repair')).toEqual({
    code: 1,
    lines: [
      expect.stringMatching(/^restored-without-request: .*[^)]$/),
      '1 finding (1 restored-without-request), 0 repaired',
    ],
    stderr: `1 finding not repaired: run "tapegate doctor --repair" on a host that has the restore disks\n${note}`,
  });
  for (const option of ['--adopt', '--checksums']) {
    expect(await run('doctor', option)).toEqual(
      refused(
        1,
        '--checksums and --adopt need access to the restore disks: run this command with DATABASE_URL on a host that has the disk (engines run on tape1)',
      ),
    );
  }
});
