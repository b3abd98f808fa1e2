/** The Python client, one file without dependencies: its commands, and its use as a module beyond clients.test.ts. */
import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { packageRoot } from '../../src/core/package-root.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { returnDisk, suspendDisk } from '../../src/domain/health/failing-disks.js';
import { integerFields } from '../../src/generated/operations.js';
import { addQuota, addTaped } from '../support/factories.js';
import { listenAs, STRANGER } from '../support/listen-as.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cleanUp, type Result, startProcess } from '../support/process.js';
import { findProgram } from '../support/run-example.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const DIRECTORY = path.join(packageRoot, 'clients/python');
const PYTHON = findProgram('python3');
if (!PYTHON) console.warn('python3 is missing: the tests of its client are skipped');

const library = createMemoryLibrary();
let env: Record<string, string>;

const app = useApp({ library, config: { access: { auth: new Set(['token']) } } }, async () => {
  library.onRead = async (volume) => {
    if (volume === 'BAD') throw new TapeError('PERMANENT', 'unreadable');
  };
  await addQuota(app.ctx, 'alice', 10n ** 17n);
  await addQuota(app.ctx, 'bob', 10n);
  await addTaped(
    app.ctx,
    library,
    Array.from({ length: 4 }, (_, n) => ({ path: `/ocean/sst "${n}" ü.nc`, size: 1000 })),
  );
  const { secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
  env = {
    TAPEGATE_URL: app.url,
    TAPEGATE_TOKEN: secret,
    PYTHONDONTWRITEBYTECODE: '1',
    PYTHONUTF8: '1',
    HOME: app.dataDir,
  };
});
afterAll(cleanUp);

const start = (args: string[], more = {}) =>
  startProcess(PYTHON ?? '', args, { cwd: DIRECTORY, env: { ...env, ...more } });
const command = async (...args: string[]): Promise<Result> => await start(['tapegate.py', ...args]).ended;
const script = (text: string, more = {}) =>
  start(['-c', `from tapegate import *\nimport json\ntapes = Tapegate()\n${text}`], more);

test('the client turns every integer that GraphQL sends as text into a number', () => {
  const text = readFileSync(path.join(DIRECTORY, 'tapegate.py'), 'utf8');
  const [, list = ''] = /^INTEGERS = \{([^}]*)\}/m.exec(text) ?? [];
  expect(new Set([...list.matchAll(/"(\w+)"/g)].map(([, name]) => name))).toEqual(integerFields);
});

describe.skipIf(!PYTHON)('the client in Python', () => {
  test('files are listed, and a request is priced, made, watched, changed and cancelled', async () => {
    const printed = async (...args: string[]) =>
      (await command(...args, '--json')).stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line));
    const first = async (...args: string[]) => (await printed(...args))[0];
    const files = await printed('ls', 'ocean');
    expect(files.map(({ path }) => path)).toEqual([0, 1, 2, 3].map((n) => `/ocean/sst "${n}" ü.nc`));
    const priced = await command('request', '--quota', 'alice', '--pattern', '/ocean', '--dry-run');
    expect(priced.stdout).toBe('4 files, 4000 bytes: 0 on disk, 4 from tape on 1 volume\n');
    const options = ['--file', '/ocean/sst "1" ü.nc', '--label', 'one', '--watch', '--json'];
    const made = await command('request', '--quota', 'alice', ...options);
    expect([made.code, made.stderr]).toEqual([0, '']);
    const id = String(JSON.parse(made.stdout.split('\n')[0] ?? '').requestId);
    expect(await first('show', id)).toMatchObject({ state: 'COMPLETED' });
    expect((await command('requests', '--quota', 'alice')).stdout).toMatch(
      /^request \d+ is COMPLETED: 1 of 1 file, kept until \S+\n$/,
    );
    expect(await first('quota', 'alice')).toMatchObject({ user: 'alice', size: 10 ** 17 });
    expect(await first('release', id)).toMatchObject({ filesTotal: 0, filesReleased: 1 });
    expect(await command('release', id, '--match', '')).toMatchObject({
      code: 1,
      stderr: 'tapegate: match or paths must be given\n',
    });
    const byModule = `print(tapes.release(${id})["filesReleased"], tapes.update(${id}, label="two")["label"])`;
    expect(await script(byModule).ended).toMatchObject({ stdout: '1 two\n', stderr: '' });
    expect(await first('cancel', id)).toMatchObject({ state: 'CANCELLED' });
  });

  test('a request that ends without all of its files exits with 3, and lists the failed files with their errors', async () => {
    await addTaped(app.ctx, library, [
      { path: '/partly/good', size: 1000, volume: 'GOOD', position: 1n },
      { path: '/partly/bad', size: 1000, volume: 'BAD', position: 1n },
    ]);
    const made = await command('request', '--quota', 'alice', '--pattern', '/partly/', '--watch');
    const id = /^request (\d+)/.exec(made.stdout)?.[1] ?? '';
    const why = '  /partly/bad: unreadable\n';
    const fault = `tapegate: request ${id} is PARTIAL: 1 of 2 files failed\n${why}`;
    expect([made.code, made.stderr]).toEqual([3, fault]);
    expect(await command('watch', id, '--json')).toMatchObject({ code: 3, stderr: fault });
    const shown = await command('show', id);
    expect(shown).toMatchObject({ code: 0, stderr: '' });
    expect(shown.stdout).toMatch(
      /^request \d+ is PARTIAL: 1 of 2 files, 1 failed, kept until \S+\n {2}\/partly\/bad: unreadable\n$/,
    );

    const listed = await script(`print(json.dumps(list(tapes.failed_files(${id}))))`).ended;
    expect(JSON.parse(listed.stdout)).toEqual([{ path: '/partly/bad', errorClass: 'PERMANENT', error: 'unreadable' }]);

    const none = 'no file in the catalogue has a path that contains "/no[1]" (case-sensitive; * ? [ ] are literal)';
    for (const watch of [[], ['--watch']]) {
      const asked = await command('request', '--quota', 'alice', '--pattern', '/no[1]', ...watch);
      expect([asked.code, asked.stderr]).toEqual([
        3,
        expect.stringMatching(/^tapegate: request \d+ has finished without all of its files: /),
      ]);
      expect(asked.stderr).toContain(none);
    }
    expect(await command('ls', '/no[1]')).toEqual({ code: 0, stdout: '', stderr: `${none}\n` });
  });

  test('a dry run that cannot succeed exits with an error, and creates no request', async () => {
    const dryRun = (...args: string[]) => command('request', '--dry-run', '--quota', ...args);
    const { secret } = await createToken(app.ctx, { name: 'bob', role: 'USER' });
    // without --quota, the request uses the quota of bob
    const asBob = ['tapegate.py', 'request', '--dry-run', '--pattern', '/ocean'];
    expect(await start(asBob, { TAPEGATE_TOKEN: secret }).ended).toMatchObject({
      ...{ code: 1, stdout: expect.stringMatching(/^4 files, 4000 bytes/) },
      stderr:
        'tapegate: quota "bob" is full: 4.00 kB requested, 10 bytes of 10 bytes free; release files or cancel requests that are no longer needed\n',
    });
    expect(
      await dryRun('alice', '--file', '/no/such', '--file', '/ocean/*.nc', '--file', '/a', '--file', '/b'),
    ).toEqual({
      ...{ code: 3, stdout: '0 files, 0 bytes: 0 on disk, 0 from tape on 0 volumes\n' },
      stderr: 'tapegate: 4 paths not in the catalogue:\n  /no/such\n  /ocean/*.nc\n  /a\n  and 1 more\n',
    });
    const noMatch = expect.stringMatching(/^tapegate: no file in the catalogue has a path that contains "\/ocean\/\*"/);
    expect(await dryRun('alice', '--pattern', '/ocean/*')).toMatchObject({ code: 3, stderr: noMatch });
  });

  test('retentions are dates and times of Python, and restored paths only of files that are on disk', async () => {
    const made = await script(`
import datetime
request = tapes.create_request("alice", files=['/ocean/sst "2" ü.nc'], retention=datetime.date(2099, 1, 2))
for step in tapes.follow(request["requestId"]): pass
other = tapes.update(request["requestId"], retention=datetime.datetime(2099, 3, 4, 5))
print(request["retention"], other["retention"], len(list(tapes.restored_paths(request["requestId"]))))
tapes.cancel(request["requestId"])
print(request["requestId"])`).ended;
    expect([made.stdout, made.stderr]).toEqual([
      expect.stringMatching(/^2099-01-02T00:00:00Z 2099-03-04T05:00:00Z 1\n\d+\n$/),
      '',
    ]);
    const id = made.stdout.trim().split('\n').at(-1) ?? '';
    const onTape = `SELECT FROM tape_file WHERE path = '/ocean/sst "2" ü.nc' AND stage = 'ONTAPE'`;
    await waitFor('the copy to be removed', async () => (await app.ctx.db.pool.query(onTape)).rowCount === 1);
    const lost = `tapegate: 1 file of request ${id} is released because the request is cancelled\n`;
    expect(await command('paths', id)).toEqual({ code: 3, stdout: '', stderr: lost });
  });

  test('paths prints no file of a cancelled request that another request keeps on disk, and ls prints archive paths', async () => {
    const file = '/ocean/sst "0" ü.nc';
    const [id = '', other = ''] = (
      await script(`
requests = [tapes.create_request("alice", files=['${file}'])["requestId"] for _ in "ab"]
for id in requests:
    for step in tapes.follow(id): pass
tapes.cancel(requests[0])
print(*requests)`).ended
    ).stdout
      .trim()
      .split(' ');
    const onDisk = `${app.restoreDir}${file}`;
    expect(await command('paths', other)).toEqual({ code: 0, stdout: `${onDisk}\n`, stderr: '' });
    const stderr = `tapegate: 1 file of request ${id} is released because the request is cancelled\n`;
    expect(await command('paths', id)).toEqual({ code: 3, stdout: '', stderr });
    expect((await command('ls', file)).stdout).toBe(`RESTORED             1000  ${file}  at ${onDisk}\n`);
  });

  test('paths on a restore disk that is not mounted are not printed, and the disk is named', async () => {
    const made = await script(`
request = tapes.create_request("alice", files=['/ocean/sst "1" ü.nc'])
for step in tapes.follow(request["requestId"]): pass
print(request["requestId"])`).ended;
    const id = made.stdout.trim();
    await suspendDisk(app.ctx, app.restoreDir, 'it is not mounted');
    const result = await command('paths', id);
    await returnDisk(app.ctx, app.restoreDir);
    const stderr = `tapegate: 1 file of request ${id} is on ${app.restoreDir}, which is failing: it is not mounted\n`;
    expect(result).toEqual({ code: 3, stdout: '', stderr });
  });

  test('lists are any iterable of texts or path objects, a single text is a list of one, and other values are named', async () => {
    const made = await script(`
import datetime, pathlib
path = '/ocean/sst "3" ü.nc'
hour = datetime.timezone(datetime.timedelta(hours=1))
aware = datetime.datetime(2099, 3, 4, 5, tzinfo=hour)
for files in [(each for each in [path]), {path}, [pathlib.PurePosixPath(path)], pathlib.PurePosixPath(path), path]:
    request = tapes.create_request("alice", files=files, retention=aware)
    print(request["filesTotal"], request["retention"], tapes.estimate("alice", files=[pathlib.PurePosixPath(path)])["files"])
    print(tapes.release(request["requestId"], paths=(each for each in [pathlib.PurePosixPath(path)]))["filesReleased"])
    tapes.cancel(request["requestId"])
for value in [b"/a", 1j]:
    try: tapes.create_request("alice", files=[value])
    except TypeError as error: print(error)`).ended;
    const each = '1 2099-03-04T04:00:00Z 1\n1\n';
    const wrong = "a value of type bytes cannot be sent: b'/a'\na value of type complex cannot be sent: 1j\n";
    expect([made.stdout, made.stderr]).toEqual([`${each.repeat(5)}${wrong}`, '']);
  });

  test('control characters in names do not reach the terminal', async () => {
    const shown = await script(
      `import tapegate
tapegate._print(type("", (), {"json": False}), {}, "a\\x1b[2J\\nb\\u202e\\u061c\\u200e\\u200f")
tapegate._print_error("c\\x9b")`,
    ).ended;
    expect([shown.stdout, shown.stderr]).toEqual(['a\ufffd[2J\ufffdb\ufffd\ufffd\ufffd\ufffd\n', 'c\ufffd\n']);
  });

  test('a path with a line break is not printed as two paths', async () => {
    const printed = await script(`
import tapegate
tapes.restored_paths = lambda id: ["/a/one", "/a/two\\n/b"]
try: tapegate._paths(tapes, type("", (), {"json": False, "id": 1}))
except Refused as error: print(error)
tapegate._paths(tapes, type("", (), {"json": True, "id": 1}))`).ended;
    const refused = 'the path "/a/two\\n/b" contains a line break: use --json';
    expect([printed.stdout, printed.stderr]).toEqual([`/a/one\n${refused}\n"/a/one"\n"/a/two\\n/b"\n`, '']);
  });

  test.skipIf(process.getuid?.() !== 0 || process.platform !== 'linux').each([
    ['::', '127.0.0.1'],
    ['::1', '[::1]'],
  ])('no token goes to a port of another user at %s, by the name %s', async (host, name) => {
    const TAPEGATE_URL = `http://${name}:${await listenAs(STRANGER, host)}`;
    expect(await start(['tapegate.py', 'requests'], { TAPEGATE_URL }).ended).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(
        `no token was sent to ${TAPEGATE_URL}: the program that listens there runs as user id ${STRANGER}, which is not trusted; expected your own user, root,`,
      ),
    });
  });

  test('a stored token is used only if no other user may read it', async () => {
    const file = path.join(app.dataDir, '.config/tapegate/tokens.json');
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, JSON.stringify({ [app.url]: { token: env.TAPEGATE_TOKEN } }));
    for (const [mode, code, says] of [
      [0o640, 1, /^tapegate: other users can read or replace \S+tokens\.json: run chmod 600/],
      [0o600, 0, /^$/],
    ] as const) {
      chmodSync(file, mode);
      const more = { TAPEGATE_TOKEN: '', XDG_CONFIG_HOME: '' };
      expect(await start(['tapegate.py', 'requests'], more).ended).toMatchObject({
        code,
        stderr: expect.stringMatching(says),
      });
    }
    rmSync(file);
  });

  test('config.json contains the URL and the quota, and an invalid file is a usage error', async () => {
    const file = path.join(app.dataDir, '.config/tapegate/config.json');
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, JSON.stringify({ server: app.url, quota: 'bob' }));
    const run = () => start(['tapegate.py', 'request', '--pattern', '/x', '--dry-run'], { TAPEGATE_URL: '' }).ended;
    expect((await run()).stderr).toMatch(/"alice" may not use the quota of user "bob"/);
    writeFileSync(file, '[]');
    expect(await run()).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(`${file} must contain a JSON object`),
    });
    rmSync(file);
  });

  test('a malformed URL and missing options are usage errors', async () => {
    for (const url of ['ftp://host', 'http://host:port']) {
      expect(await start(['tapegate.py', 'requests'], { TAPEGATE_URL: url }).ended).toMatchObject({
        code: 2,
        stdout: '',
        stderr: `tapegate: TAPEGATE_URL must begin with http:// or https:// and a host, not "${url}"\n`,
      });
    }
    expect(await command('request', '--quota', 'alice')).toMatchObject({
      code: 2,
      stderr: 'tapegate: give either --pattern or --file\n',
    });
  });

  test('errors of the gateway are printed, and raised with their code', async () => {
    expect(await command('show', '99')).toMatchObject({
      code: 1,
      stdout: '',
      stderr: 'tapegate: there is no request 99, or you are not allowed to see it\n',
    });
    expect((await command('request', '--quota', 'bob', '--pattern', '/ocean')).stderr).toMatch(/^tapegate: .*bob/);
    const refused = await script(`
try:
    tapes.create_request("alice", pattern="")
except Refused as error:
    print(error.code, error.failure["field"])`).ended;
    expect([refused.stdout, refused.stderr]).toEqual(['INVALID_INPUT pattern\n', '']);
    const unknown = await start(['tapegate.py', 'requests'], { TAPEGATE_TOKEN: 'of nobody' }).ended;
    expect([unknown.code, unknown.stderr]).toEqual([
      1,
      expect.stringMatching(/^tapegate: the token or password .* is not valid/),
    ]);
    const away = await start(['tapegate.py', 'requests'], { TAPEGATE_URL: 'http://127.0.0.1:1' }).ended;
    expect([away.code, away.stderr]).toEqual([
      4,
      expect.stringMatching(/^tapegate: http:\/\/127\.0\.0\.1:1 cannot be reached: /),
    ]);
  });
});
