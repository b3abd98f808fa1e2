/** The Python client, one file without dependencies: its commands, and its use as a module beyond clients.test.ts. */
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
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
import { findFreePort } from '../support/ports.js';
import { cleanUp, cliFile, type Result, serveHere, startProcess } from '../support/process.js';
import { findProgram } from '../support/run-example.js';
import { makeTempDir } from '../support/temp-dir.js';
import { useApp } from '../support/use-app.js';
import { createGate, waitFor } from '../support/wait.js';

const DIRECTORY = path.join(packageRoot, 'clients/python');
const PYTHON = findProgram('python3');
if (!PYTHON) console.warn('python3 is missing: the tests of its client are skipped');

const library = createMemoryLibrary();
const gate = createGate();
let env: Record<string, string>;

const app = useApp({ library, config: { access: { auth: new Set(['token']) } } }, async () => {
  library.onRead = async (volume, position) => {
    if (volume === 'GATED' && position === 2n) await gate.opened;
    if (volume.startsWith('BAD')) throw new TapeError('PERMANENT', 'unreadable');
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
afterAll(async () => {
  gate.open();
  await cleanUp();
});

const start = (args: string[], more = {}, stdin = '') =>
  startProcess(PYTHON ?? '', args, { cwd: DIRECTORY, env: { ...env, ...more }, stdin });
const command = async (...args: string[]): Promise<Result> => await start(['tapegate.py', ...args]).ended;
const script = (text: string, more = {}) =>
  start(['-c', `from tapegate import *\nimport json\ntapes = Tapegate()\n${text}`], more);

/** Returns the value of a script that prints JSON. */
const evaluate = async (expression: string) =>
  JSON.parse((await script(`print(json.dumps(${expression}))`).ended).stdout);
const readText = (...names: string[]) => readFileSync(path.join(packageRoot, ...names), 'utf8');

test('the client turns every integer that GraphQL sends as text into a number', () => {
  const text = readText('clients/python/tapegate.py');
  const [, list = ''] = /^INTEGERS = \{([^}]*)\}/m.exec(text) ?? [];
  expect(new Set([...list.matchAll(/"(\w+)"/g)].map(([, name]) => name))).toEqual(integerFields);
});

test('the version of the client is the version of the project', () => {
  const [, version] = /^__version__ = "(.*)"$/m.exec(readText('clients/python/tapegate.py')) ?? [];
  expect(version).toBe(JSON.parse(readText('package.json')).version);
});

const BUILDERS = ['python3', '/usr/bin/python3'].find((python) => {
  try {
    execFileSync(python, ['-c', 'import setuptools, wheel'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
});
if (!BUILDERS) console.warn('setuptools and wheel of Python are missing: the test of its package is skipped');

test.skipIf(!BUILDERS)('the package contains the module and the command tapegate-py', async () => {
  const cwd = makeTempDir();
  for (const name of readdirSync(DIRECTORY)) {
    if (/\.(py|md|toml)$/.test(name)) copyFileSync(path.join(DIRECTORY, name), path.join(cwd, name));
  }
  const build = `
from setuptools import build_meta
import sys, tarfile, zipfile
sdist, wheel = build_meta.build_sdist("out"), build_meta.build_wheel("out")
sys.path.insert(0, "out/" + wheel)
import tapegate
print("tapegate.py" in [name.partition("/")[2] for name in tarfile.open("out/" + sdist).getnames()], tapegate.__file__, file=sys.stderr)
print([zipfile.ZipFile("out/" + wheel).read(name).decode() for name in zipfile.ZipFile("out/" + wheel).namelist() if "entry_points" in name], file=sys.stderr)`;
  const { code, stderr } = await startProcess(BUILDERS ?? '', ['-c', build], { cwd }).ended;
  expect([code, stderr]).toEqual([
    0,
    expect.stringMatching(
      /True out\/tapegate_client-[\d.]+-py3-none-any\.whl\/tapegate\.py\n.*tapegate-py = tapegate:main/,
    ),
  ]);
});

describe.skipIf(!PYTHON)('the client in Python', () => {
  test('the commands print what the commands of Node.js print, and exit with the same codes', async () => {
    const same = async (args: string[], { stdin = '', node = args, ignore = /$^/ } = {}) => {
      const read = async (running: { ended: Promise<Result> }) => {
        const { code, stdout, stderr } = await running.ended;
        const clean = (text: string) => text.replaceAll('tapegate.py', 'tapegate').replace(ignore, '');
        return { args, code, stdout: clean(stdout), stderr: clean(stderr) };
      };
      const tapegate = startProcess(process.execPath, [cliFile, ...node], { env, stdin });
      const python = start(['tapegate.py', ...args], {}, stdin);
      expect(await read(python)).toEqual(await read(tapegate));
    };
    const list = path.join(makeTempDir(), 'list');
    writeFileSync(list, '/ocean/sst "0" ü.nc\r\n\n/no/such\n/ocean\n');
    const dryRun = ['request', '--dry-run', '--retention', '2w', '--max-bytes', '1.5T'];
    await same([...dryRun, '--pattern', '/ocean']);
    await same([...dryRun, '--pattern', '/ocean/*']);
    await same([...dryRun, '--file', `@${list}`]);
    await same([...dryRun, '--file', '-'], { stdin: '/a\n/b\n' });
    await same([...dryRun, '--file', '@/no/list']);
    await same([...dryRun, '--file', '/ocean/']);
    await same([...dryRun, '--pattern', '/ocean', '--max-files', '1']);
    await same([...dryRun, '--pattern', '/ocean', '--max-files', 'many']);
    await same(['request', '--pattern', '/ocean', '--max-bytes', '1.5']);
    await same(['request', '--pattern', '/ocean', '--retention', '1y']);
    await same(['request', '--quota', 'bob', '--pattern', '/ocean']);
    await addTaped(app.ctx, library, [
      { path: '/same/good', size: 1000, volume: 'GOOD', position: 1n },
      { path: '/same/bad', size: 1000, volume: 'BAD', position: 1n },
    ]);
    const options = ['--label', 'same', '--notify-first', 'a@example.org', '--no-mail', '--max-files', '3', '--json'];
    const files = ['--file', '/same/good', '@-', '--file', '/same/bad'];
    const made = await start(['tapegate.py', 'request', ...options, ...files], {}, '/no/such\n').ended;
    const { requestId, ...request } = JSON.parse(made.stdout);
    expect(request).toMatchObject({ filesTotal: 2, filesUnknown: 1, label: 'same', maxFiles: 3, maxBytes: null });
    expect(request).toMatchObject({ notifyOnFirstFile: 'a@example.org', notifyOnLastFile: null });
    const id = String(requestId);
    const followed = await command('watch', id);
    expect(followed).toMatchObject({ code: 3, stderr: expect.stringMatching(/^[█░]{30} \d+% {2}\d\/2 files/) });
    const bar = /^[█░].*\n/gm;
    await same(['watch', id], { ignore: bar });
    await same(['watch', id, '-0'], { ignore: bar });
    for (const args of [
      ...[
        ['show', id],
        ['show', id, '--limit', '0'],
        ['show', id, '--print-paths'],
        ['show', '99'],
        ['show', 'x'],
      ],
      ...[['requests'], ['requests', '--quota', 'nobody'], ['ls', 'same'], ['ls', '--limit', '2'], ['ls', '/no[1]']],
      ...[
        ['ls', '--stages', 'r', '-0'],
        ['ls', '--stages', 'x'],
        ['ls', '--stages', 'D', 'same'],
        ['ls', '--withdrawn'],
      ],
      ...[
        ['update', id],
        ['update', id, '--retention', '2001-01-01'],
        ['update', id, '--max-files', '1T'],
      ],
      ...[['update', id, '--retention', '2099-01-01', '--notify-last', 'own', '--max-files', 'none']],
      ...[
        ['release', id, '--match', ''],
        ['release', id, '--match', '/none/'],
        ['release', '99', '--match', '/'],
      ],
      ...[
        ['retry', id, '--quota', 'bob'],
        ['watch', '99'],
        ['cancel', '99', '98'],
        ['request'],
        ['request', '--pattern', ''],
      ],
    ]) {
      await same(args);
    }
    await same(['quota'], { node: ['quota', 'show', 'alice'] });
    const { notifyOnLastFile, maxFiles } = JSON.parse(
      (await command('show', id, '--json')).stdout.split('\n')[0] ?? '',
    );
    expect([notifyOnLastFile, maxFiles]).toEqual(['alice@example.org', null]);
    expect((await command('retry', id)).stdout).toMatch(/^request \d+ is \w+: 1 of 2 files on disk, /);
    expect((await command('extend', id, '3d')).stdout).toMatch(/2 files, 2\.00 kB, kept until (?!2099)/);
    expect((await command('release', id, '--file', '/same/good', '/no/such')).stdout).toMatch(
      /: 1 file and 1 unknown path released, 1 file left, 1\.00 kB\n$/,
    );
    expect((await command('release', id)).stderr).toBe('tapegate: give one of --file, --match and --all\n');
    expect((await command('release', id, '--all')).stdout).toMatch(/: 1 file released, 0 files left, 0 bytes\n$/);
    await command('cancel', id);
    await same(['cancel', id, '99']);
    const of = async (...more: string[]) => (await command('requests', '--match', 'same', ...more)).stdout;
    expect(await of('--states', 'queued')).not.toContain('same');
    expect(await of('--states', 'queued', 'cancelled')).toMatch(/ alice +CANCELLED .* same\n$/);
  });

  test('paths of a request are returned when files arrive, also after a restart of the gateway', async () => {
    await addTaped(app.ctx, library, [
      { path: '/arrivals/1', size: 1000, volume: 'GATED', position: 1n },
      { path: '/arrivals/2', size: 1000, volume: 'GATED', position: 2n },
      { path: '/arrivals/3', size: 1000, volume: 'BAD-2', position: 1n },
    ]);
    const port = String(await findFreePort());
    const serve = () =>
      serveHere({ DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, PORT: port, TAPEGATE_AUTH: 'token' });
    const gateway = await serve();
    const run = script(
      `
try:
    for path in tapes.restore("alice", pattern="/arrivals/", label="arrivals"): print(path, flush=True)
except Incomplete as error: print(error.failed[0]["path"], len(error.failed), str(error).partition(": ")[2].partition("\\n")[0])`,
      { TAPEGATE_URL: `http://127.0.0.1:${port}` },
    );
    await run.waitForOutput(/\/arrivals\/1\n/);
    await gateway.stop();
    gate.open();
    const next = await serve();
    const { stdout, stderr } = await run.ended;
    await next.stop();
    const arrived = ['1', '2'].map((n) => `${app.restoreDir}/arrivals/${n}\n`).join('');
    expect([stdout, stderr]).toEqual([`${arrived}/arrivals/3 1 1 of 3 files failed\n`, '']);
  });

  test('a rejected call raises the class of its failure', async () => {
    const { secret } = await createToken(app.ctx, { name: 'bob', role: 'USER' });
    const { secret: operator } = await createToken(app.ctx, { name: 'root', role: 'OPERATOR' });
    const { stdout, stderr } = await script(`
bob, operator = Tapegate(token="${secret}"), Tapegate(token="${operator}")
for call in [
    lambda: bob.create_request("bob", pattern="/ocean"), lambda: tapes.create_request("alice", pattern=""),
    lambda: tapes.cancel(99), lambda: list(tapes.restored_paths(99)), lambda: tapes.create_request("bob", pattern="/ocean"),
    lambda: operator.create_request("carol", pattern="/ocean"), lambda: tapes.query("{ nonsense }"), lambda: tapes.release(99),
]:
    try: call()
    except (Refused, ValueError) as error:
        names = ["user", "requested", "available", "size", "used", "field"]
        print(type(error).__name__, *["%s=%s" % (name, getattr(error, name)) for name in names if hasattr(error, name)])`)
      .ended;
    expect([stderr, stdout.trim().split('\n')]).toEqual([
      '',
      [
        'QuotaExceeded user=bob requested=4000 available=10 size=10 used=0',
        'InvalidInput field=pattern',
        'NotFound',
        'NotFound',
        'Forbidden',
        'UnknownUser user=carol',
        'Refused',
        'ValueError',
      ],
    ]);
    const [, values = ''] = /^enum FailureCode \{(.*?)^\}/ms.exec(readText('graphql/schema.graphql')) ?? [];
    const codes = [...values.matchAll(/^ {2}([A-Z_]+)$/gm)].map(([, code]) => code);
    expect(await evaluate('sorted(each.code for each in Refused.__subclasses__())')).toEqual(
      [...codes, 'EVENTS_GONE'].sort(), // only subscriptions fail with EVENTS_GONE
    );
  });

  test('--json prints one object per line', async () => {
    const printed = async (...args: string[]) =>
      (await command(...args, '--json')).stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line));
    const first = async (...args: string[]) => (await printed(...args))[0];
    const files = await printed('ls', 'ocean');
    expect(files.map(({ path }) => path)).toEqual([0, 1, 2, 3].map((n) => `/ocean/sst "${n}" ü.nc`));
    const options = ['--file', '/ocean/sst "1" ü.nc', '--label', 'one', '--watch', '--json'];
    const made = await command('request', '--quota', 'alice', ...options);
    expect([made.code, made.stderr]).toEqual([0, '']);
    const id = String(JSON.parse(made.stdout.split('\n')[0] ?? '').requestId);
    expect(await first('show', id)).toMatchObject({ state: 'COMPLETED' });
    expect(await first('quota', 'alice')).toMatchObject({ user: 'alice', size: 10 ** 17 });
    expect(await first('release', id, '--all')).toMatchObject({ filesTotal: 0, filesReleased: 1, filesReleasedNow: 1 });
    const byModule = `print(tapes.release(${id}, all=True)["filesReleased"], tapes.update(${id}, label="two")["label"])`;
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
    const hint = `"tapegate.py show ${id}" lists the failed files, "tapegate.py retry ${id}" retries them\n`;
    const fault = `tapegate: request ${id} is partial: 1 of 2 files failed\n  /partly/bad: unreadable\n${hint}`;
    expect([made.code, made.stderr]).toEqual([3, expect.stringContaining(fault)]);
    expect(await command('watch', id, '--json')).toMatchObject({ code: 3, stderr: fault });
    const listed = await script(`print(json.dumps(list(tapes.failed_files(${id}))))`).ended;
    expect(JSON.parse(listed.stdout)).toEqual([{ path: '/partly/bad', errorClass: 'PERMANENT', error: 'unreadable' }]);

    for (const watch of [[], ['--watch']]) {
      const asked = await command('request', '--quota', 'alice', '--pattern', '/no[1]', ...watch);
      expect([asked.code, asked.stderr]).toEqual([
        3,
        expect.stringMatching(/tapegate: request \d+ matches no file yet: no path contains "\/no\[1\]"/),
      ]);
    }
  });

  test('without --quota, a request uses the quota of the caller, and a dry run fails if the files do not fit', async () => {
    const { secret } = await createToken(app.ctx, { name: 'bob', role: 'USER' });
    const asBob = ['tapegate.py', 'request', '--dry-run', '--pattern', '/ocean'];
    expect(await start(asBob, { TAPEGATE_TOKEN: secret }).ended).toMatchObject({
      ...{ code: 1, stdout: expect.stringContaining('bob: 0 bytes of 10 bytes used, 4.00 kB with this request\n') },
      stderr:
        'tapegate: the request does not fit in quota "bob": 4.00 kB requested, 10 bytes of 10 bytes free; request fewer files, or ask an operator for a larger quota\n',
    });
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
    expect((await command('ls', file)).stdout).toBe(`R    1.00 kB  ${file}  at ${onDisk}\n`);
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
    print(request["filesTotal"], request["retention"], tapes.estimate("alice", files=[pathlib.PurePosixPath(path)])["fileCount"])
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
given = type("", (), {"json": False, "null": False, "id": 1})
try: tapegate._print_paths(tapes, given)
except Refused as error: print(error)
given.null = True
tapegate._print_paths(tapes, given)`).ended;
    const refused = 'path "/a/two\\n/b" contains a line break: use the option -0, and xargs -0';
    expect([printed.stdout, printed.stderr]).toEqual([`/a/one\n${refused}\n/a/one\0/a/two\n/b\0`, '']);
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

  test('a malformed URL is a usage error', async () => {
    for (const url of ['ftp://host', 'http://host:port']) {
      expect(await start(['tapegate.py', 'requests'], { TAPEGATE_URL: url }).ended).toMatchObject({
        code: 2,
        stdout: '',
        stderr: `tapegate: TAPEGATE_URL must begin with http:// or https:// and a host, not "${url}"\n`,
      });
    }
  });

  test('an invalid token and an unreachable gateway have their own exit codes', async () => {
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
