/** Imports that come to a gateway over HTTP: from the command on another host, and from whatever else sends a file. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import http, { type ClientRequest } from 'node:http';
import path from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { createToken } from '../../src/operations/access/tokens.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles } from '../support/factories.js';
import { send } from '../support/http.js';
import { whileLocked } from '../support/locks.js';
import { cleanUp, makeDataDir, type Result, runCli } from '../support/process.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let dir: string;
let afar: Record<string, string>;
let here: Record<string, string>;

beforeAll(async () => {
  app = await startApp();
});
beforeEach(() => {
  dir = makeDataDir();
  afar = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token, DATA_DIR: path.join(dir, 'none'), HOME: dir };
  here = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, HOME: dir };
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

const HEADER = 'path,size,stage,volume,position\n';
const rowsOf = (prefix: string, count: number) =>
  HEADER + Array.from({ length: count }, (_, n) => `/${prefix}/${n},${n},T,V1,${n}\n`).join('');

async function countFiles(prefix: string): Promise<number> {
  const { rows } = await app.ctx.db.pool.query(
    `SELECT count(*)::int AS files FROM tape_file WHERE starts_with(path, '/${prefix}/')`,
  );
  return rows[0].files;
}

interface Put {
  req: ClientRequest;
  answer: Promise<{ status: number; headers: http.IncomingHttpHeaders; body: unknown }>;
}

/** Begins to send; what is written to `req` is the file. */
function startPut(headers: Record<string, string> = {}, url = app.url): Put {
  const req = http.request(`${url}/import`, {
    method: 'PUT',
    headers: { Authorization: `Bearer ${app.token}`, ...headers },
  });
  const answer = once(req, 'response').then(async ([response]) => ({
    status: response.statusCode ?? 0,
    headers: response.headers,
    body: JSON.parse(await readText(response)),
  }));
  answer.catch(() => {});
  req.on('error', () => {});
  return { req, answer };
}

/** The next answer of the gateway, which is of this process, as it sees it. */
function noteResponse(): Promise<http.ServerResponse> {
  return new Promise((resolve) => {
    const note = (message: unknown) => {
      unsubscribe('http.server.request.start', note);
      resolve((message as { response: http.ServerResponse }).response);
    };
    subscribe('http.server.request.start', note);
  });
}

/** Waits until the gateway takes no second one. */
const waitForTurn = (isTaken: boolean) =>
  waitFor(`an import that is under way: ${isTaken}`, async () => {
    const { status } = await send(app, '/import', { method: 'PUT', body: HEADER, headers: bearer() });
    return (status === 503) === isTaken;
  });
const bearer = () => ({ Authorization: `Bearer ${app.token}` });

test('the command says the same, and ends the same, as beside the database', { timeout: 180_000 }, async () => {
  const fileOf = (name: string, text: string | Uint8Array) => {
    writeFileSync(path.join(dir, name), text);
    return path.join(dir, name);
  };
  const broken = `${HEADER}/raw/a.dat,1000000,T,RAW001,1\n/raw/b.dat,many,T,RAW001,2\nraw/c.dat,1,X,RAW001,3\n`;
  const missing = path.join(dir, 'missing.csv');
  const calls: [string, string[]][] = [
    ['csv', ['import', fileOf('same.csv', rowsOf('same', 3))]],
    ['csv', ['import', path.join(dir, 'same.csv'), '--json']],
    ['gzip', ['import', fileOf('same.csv.gz', gzipSync(rowsOf('same', 3)))]],
    ['json', ['import', fileOf('same.jsonl', '{"path":"/same/j","size":1}\n')]],
    ['empty', ['import', fileOf('empty', '')]],
    ['header', ['import', fileOf('header', HEADER)]],
    ['broken', ['import', fileOf('broken.csv', broken)]],
    ['cut', ['import', fileOf('cut.gz', gzipSync(rowsOf('cut', 3)).subarray(0, 40))]],
    ['missing', ['import', missing]],
    ['folder', ['import', dir]],
  ];
  await runCli(['import', path.join(dir, 'same.csv')], { env: here });
  for (const [name, args] of calls) {
    const beside = name === 'json' ? undefined : await runCli(args, { env: here });
    const there = await runCli(args, { env: afar });
    if (beside) expect([name, there]).toEqual([name, beside]);
    else expect(there.stdout).toContain('1 file added, 0 updated\n1 new file without a stage is U');
  }
  expect((await runCli(['import', path.join(dir, 'broken.csv')], { env: afar })).stderr).toBe(
    'tapegate: nothing was imported:\n  line 3: size must be a whole number of bytes, not "many"\n  line 4: path does not begin with "/": "raw/c.dat"\n',
  );
});

test('standard input of any length is taken over whole', async () => {
  const count = 20_000;
  const done = (stdout: string): Result => ({ code: 0, stdout, stderr: '' });
  expect(await runCli(['import', '-'], { env: afar, stdin: rowsOf('long', count) })).toEqual(
    done(`${count} files added, 0 updated\n`),
  );
  expect(await runCli(['import', '-'], { env: afar, stdin: gzipSync(rowsOf('long', count)) })).toEqual(
    done('0 files added, 0 updated\n'),
  );
  expect(await countFiles('long')).toBe(count);
});

test('how far it is, is told where that is asked for', async () => {
  const { stderr } = await runCli(['import', '--progress', '-'], { env: afar, stdin: rowsOf('progress', 3) });
  expect(stderr.split('\n')).toEqual([
    expect.stringMatching(/^4 lines sent, \d+ bytes, /),
    expect.stringMatching(/^all is sent: the gateway takes it over, /),
    '',
  ]);
});

test('only an operator imports, and whoever may not is told before anything is sent', async () => {
  const { secret } = await createToken(app.ctx, { name: 'ann', role: 'USER' });
  const refusals: [string, number][] = [
    [`Bearer ${secret}`, 403],
    ['', 403],
    ['Bearer tapegate_nobody', 401],
  ];
  for (const [authorization, status] of refusals) {
    let isAskedFor = false;
    const { req, answer } = startPut({ Authorization: authorization, Expect: '100-continue', 'Content-Length': '9' });
    req.on('continue', () => {
      isAskedFor = true;
    });
    expect([await answer, isAskedFor]).toMatchObject([{ status, body: { error: expect.any(String) } }, false]);
    req.destroy();
  }
  const env = { ...afar, TAPEGATE_TOKEN: secret };
  expect(await runCli(['import', '-'], { env, stdin: rowsOf('none', 100_000) })).toEqual({
    code: 1,
    stdout: '',
    stderr: `tapegate: "ann" may not do that: it takes an operator's token\n`,
  });
  expect(await countFiles('none')).toBe(0);
});

test('what is no import is refused in JSON', async () => {
  const put = (headers: object) => ({ method: 'PUT', body: HEADER, headers: { ...bearer(), ...headers } });
  expect(await send(app, '/import', { headers: bearer() })).toMatchObject({
    status: 405,
    body: { error: 'GET is not allowed here, only PUT' },
  });
  expect((await send(app, '/import', { headers: bearer() })).headers.get('allow')).toBe('PUT');
  expect(await send(app, '/import', put({ 'Content-Encoding': 'br' }))).toMatchObject({ status: 415 });
  expect(await send(app, '/import/x', put({}))).toMatchObject({ status: 404 });
  expect(await send(app, '/import?format=csv', put({}))).toMatchObject({
    status: 400,
    body: { error: 'format is nothing that an import takes: there are complete, maxWithdrawn, dryRun' },
  });
  expect(await send(app, '/import?dryRun=false', put({}))).toMatchObject({
    status: 200,
    body: { added: 0, updated: 0, addedWithoutStage: 0, knownWithoutStage: 0, addedWithoutCopy: 0 },
  });
});

test('a file with faults is answered while it is still being sent, with their lines', async () => {
  const { req, answer } = startPut();
  req.write(HEADER);
  const sending = setInterval(() => req.write('/x,many,T,V1,1\n'.repeat(1000)), 1);
  const { status, body } = await answer;
  clearInterval(sending);
  req.destroy();
  expect(status).toBe(400);
  const { error, faults } = body as { error: string; faults: string[] };
  expect(faults).toHaveLength(20);
  expect(faults[0]).toBe('line 2: size must be a whole number of bytes, not "many"');
  expect(error).toMatch(/^nothing was imported:\n {2}line 2: .*\n[\s\S]*only the first 20 are listed\)$/);
});

test('who goes away in the middle leaves nothing, and the next one has its turn', async () => {
  const { req } = startPut();
  req.write(rowsOf('gone', 5000));
  await waitForTurn(true);
  req.destroy();
  await waitForTurn(false);
  expect(await countFiles('gone')).toBe(0);
});

test('who goes away before it is answered leaves nothing, though all was sent', async () => {
  await addFiles(app.ctx, [{ path: '/left/0', size: 7n }]);
  await whileLocked(app, `SELECT FROM tape_file WHERE path = '/left/0' FOR UPDATE`, async (waiters) => {
    const seen = noteResponse();
    const { req } = startPut();
    req.end(rowsOf('left', 3));
    await waiters(1);
    const closed = once(await seen, 'close');
    req.destroy();
    await closed;
  });
  await waitForTurn(false);
  expect(await countFiles('left')).toBe(1);
});

test('a second one at a time is told, and the first one ends well', async () => {
  const { req, answer } = startPut();
  req.write(rowsOf('first', 2));
  await waitForTurn(true);
  expect(await runCli(['import', '-'], { env: afar, stdin: rowsOf('second', 1) })).toEqual({
    code: 4,
    stdout: '',
    stderr: expect.stringMatching(
      /^tapegate: another import is under way, of "operator", since 20[\dT:.-]+Z: try again later\n$/,
    ),
  });
  req.end();
  expect(await answer).toMatchObject({ status: 200, body: { added: 2 } });
});

test('a sender that sends nothing is dropped', async () => {
  const other = await startApp({ config: { readerSeconds: 1 } });
  try {
    const { req } = startPut({ Authorization: `Bearer ${other.token}` }, other.url);
    const closed = new Promise((resolve) => req.once('close', resolve));
    req.write(rowsOf('silent', 10));
    await closed;
    const { rows } = await other.ctx.db.pool.query('SELECT FROM tape_file');
    expect(rows).toEqual([]);
  } finally {
    await other.close();
  }
});
