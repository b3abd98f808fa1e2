/** The client in Python, one file without dependencies, against a live gateway: as a module, and as a command. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { integerFields } from '../../src/commands/answers.js';
import { TapeError } from '../../src/errors.js';
import { createToken } from '../../src/operations/access/tokens.js';
import { packageRoot } from '../../src/package-root.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota, addTaped } from '../support/factories.js';
import { takePort } from '../support/ports.js';
import { cleanUp, type Result, serveHere, startProcess } from '../support/process.js';
import { findProgram } from '../support/run-example.js';
import { createGate, type Gate, waitFor } from '../support/wait.js';

const FOLDER = path.join(packageRoot, 'clients/python');
const PYTHON = findProgram('python3');
if (!PYTHON) console.warn('there is no python3 here: its client is not tried');

const backend = createMemoryBackend();
let gate: Gate = createGate();
let app: TestApp;
let env: Record<string, string>;

beforeAll(async () => {
  backend.onRead = async (volume, position, bytes) => {
    if (volume === 'BAD') throw new TapeError('PERMANENT', 'unreadable');
    if (position > 2n) await gate.opened;
    return bytes;
  };
  app = await startApp({ backend, config: { access: { auth: new Set(['token']) } } });
  await addQuota(app.ctx, 'alice', 10n ** 17n);
  await addQuota(app.ctx, 'bob', 10n);
  await addTaped(
    app.ctx,
    backend,
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
}, 120_000);
afterAll(async () => {
  gate.open();
  await cleanUp();
  await app?.close();
});

const start = (args: string[], more = {}) =>
  startProcess(PYTHON ?? '', args, { cwd: FOLDER, env: { ...env, ...more } });
const command = async (...args: string[]): Promise<Result> => await start(['tapegate.py', ...args]).ended;
const script = (text: string, more = {}) =>
  start(['-c', `from tapegate import *\nimport json\ntapes = Tapegate()\n${text}`], more);

test('integers that GraphQL sends as texts are numbers to it, all of them', () => {
  const text = readFileSync(path.join(FOLDER, 'tapegate.py'), 'utf8');
  const [, list = ''] = /^INTEGERS = \{([^}]*)\}/m.exec(text) ?? [];
  expect(new Set([...list.matchAll(/"(\w+)"/g)].map(([, name]) => name))).toEqual(integerFields);
});

describe.skipIf(!PYTHON)('the client in Python', () => {
  test('files are found, priced, asked for, followed over a gateway that is restarted, and told where they are', async () => {
    const found = await command('ls', 'ocean', '--json');
    expect(
      found.stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line).path),
    ).toEqual([0, 1, 2, 3].map((n) => `/ocean/sst "${n}" ü.nc`));
    const priced = await command('request', '--quota', 'alice', '--pattern', '/ocean', '--dry-run');
    expect(priced.stdout).toBe('4 files, 4000 bytes: 0 on disk, 4 from tape on 1 volume\n');

    const { port, letGo } = await takePort();
    await letGo();
    const serve = () =>
      serveHere({ DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, PORT: String(port), AUTH: 'token' });
    const gateway = await serve();
    const asking = script(
      `request = tapes.create_request("alice", pattern="/ocean", label="of a script")
for step in tapes.follow(request["requestId"]):
    print(step["state"], step["filesOnDisk"], flush=True)
for path in tapes.restored_paths(request["requestId"]):
    print(path)`,
      { TAPEGATE_URL: `http://127.0.0.1:${port}` },
    );
    await asking.waitForOutput(/RESTORING 2\n/);
    await gateway.stop();
    gate.open();
    await serve();
    const { code, stdout, stderr } = await asking.ended;
    expect([code, stderr]).toEqual([0, '']);
    const lines = stdout.trim().split('\n');
    const steps = lines.filter((line) => /^[A-Z]+ \d$/.test(line));
    expect(steps.at(-1)).toBe('COMPLETED 4');
    expect(new Set(steps).size).toBe(steps.length); // nothing is told twice
    expect(lines.slice(-4)).toEqual([0, 1, 2, 3].map((n) => `${app.restoreDir}/ocean/sst "${n}" ü.nc`));
  });

  test('requests are listed, changed and ended', async () => {
    gate = createGate();
    gate.open();
    const made = await command(
      'request',
      '--quota',
      'alice',
      '--file',
      '/ocean/sst "1" ü.nc',
      '--label',
      'one',
      '--watch',
      '--json',
    );
    expect([made.code, made.stderr]).toEqual([0, '']);
    const { requestId } = JSON.parse(made.stdout.split('\n')[0] ?? '');
    const told = async (...args: string[]) =>
      JSON.parse((await command(...args, '--json')).stdout.split('\n')[0] ?? 'null');
    await waitFor('the end', async () => (await told('show', String(requestId))).state === 'COMPLETED');
    expect((await command('requests', '--quota', 'alice')).stdout).toMatch(
      /^request 1 is [^\n]*\nrequest \d+ is COMPLETED: 1 of 1 file, kept until \S+\n$/,
    );
    expect(await told('quota', 'alice')).toMatchObject({ user: 'alice', size: 10 ** 17 });
    expect(await told('release', String(requestId))).toMatchObject({ filesTotal: 0, filesReleased: 1 });
    const byLibrary = await script(`print(tapes.release(${requestId})["filesReleased"])`).ended;
    expect([byLibrary.stdout, byLibrary.stderr]).toEqual(['1\n', '']);
    expect(await command('release', String(requestId), '--match', '')).toMatchObject({
      code: 1,
      stderr: 'tapegate: match or paths must be given, and neither is\n',
    });
    const later = await script(`print(tapes.update(${requestId}, label="two")["label"])`).ended;
    expect(later.stdout).toBe('two\n');
    expect(await told('cancel', String(requestId))).toMatchObject({ state: 'CANCELLED' });
  });

  test('a request that ends without all of its files ends with 3, and tells which have failed and why', async () => {
    gate.open();
    await addTaped(app.ctx, backend, [
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

    const none =
      'no file of the catalogue has "/no[1]" in its path (upper and lower case differ, and * ? [ ] stand for themselves)';
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

  test('what names of users hold does not reach a terminal', async () => {
    const shown = await script(
      `import tapegate
tapegate._print(type("", (), {"json": False}), {}, "a\\x1b[2J\\nb\\u202e")
tapegate._note("c\\x9b")`,
    ).ended;
    expect([shown.stdout, shown.stderr]).toEqual(['a\ufffd[2J\ufffdb\ufffd\n', 'c\ufffd\n']);
  });

  test('a URL that is none is told as one, and is a usage that is wrong', async () => {
    for (const url of ['foo', 'ftp://host', 'http://', 'http://host:port']) {
      expect(await start(['tapegate.py', 'requests'], { TAPEGATE_URL: url }).ended).toMatchObject({
        code: 2,
        stdout: '',
        stderr: `tapegate: the URL of a gateway (TAPEGATE_URL) begins with http:// or https:// and a host, unlike "${url}"\n`,
      });
    }
    expect(await command('request', '--quota', 'alice')).toMatchObject({
      code: 2,
      stderr: 'tapegate: give either --pattern or --file\n',
    });
  });

  test('what is refused is told in words, and as what it is', async () => {
    expect(await command('show', '99')).toMatchObject({
      code: 1,
      stdout: '',
      stderr: 'tapegate: there is no request 99\n',
    });
    expect((await command('request', '--quota', 'bob', '--pattern', '/ocean')).stderr).toMatch(/^tapegate: .*bob/);
    const refused = await script(`
try:
    tapes.create_request("alice", pattern="")
except Refused as error:
    print(error.code, error.failure["field"])`).ended;
    expect([refused.stdout, refused.stderr]).toEqual(['INVALID_INPUT pattern\n', '']);
    const unknown = await start(['tapegate.py', 'requests'], { TAPEGATE_TOKEN: 'of nobody' }).ended;
    expect([unknown.code, unknown.stderr]).toEqual([1, expect.stringMatching(/^tapegate: .*not known/)]);
    const away = await start(['tapegate.py', 'requests'], { TAPEGATE_URL: 'http://127.0.0.1:1' }).ended;
    expect([away.code, away.stderr]).toEqual([
      1,
      expect.stringMatching(/^tapegate: http:\/\/127\.0\.0\.1:1 cannot be reached: /),
    ]);
  });
});
