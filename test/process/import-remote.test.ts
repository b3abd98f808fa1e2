/** Imports over HTTP, by the command on another host and by other clients. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import http, { type ClientRequest } from 'node:http';
import path from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeEach, expect, test } from 'vitest';
import { createToken } from '../../src/domain/access/tokens.js';
import { startBeside } from '../support/app.js';
import { done, refused } from '../support/command-results.js';
import { addFiles } from '../support/factories.js';
import { send } from '../support/http.js';
import { whileLocked } from '../support/locks.js';
import { cleanUp, makeDataDir, runCli } from '../support/process.js';
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
afterAll(cleanUp);

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

/** Starts an import. The test writes rows to `req`. */
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

/** Returns the gateway's response object for the next request. */
function nextResponse(): Promise<http.ServerResponse> {
  return new Promise((resolve) => {
    const note = (message: unknown) => {
      unsubscribe('http.server.request.start', note);
      resolve((message as { response: http.ServerResponse }).response);
    };
    subscribe('http.server.request.start', note);
  });
}

/** Waits until another import is active (`isTaken`), or until no import is active. */
const waitForActive = (isTaken: boolean) =>
  waitFor(`an active import: ${isTaken}`, async () => {
    const { status } = await send(app, '/import', { method: 'PUT', body: HEADER, headers: bearer() });
    return (status === 503) === isTaken;
  });
const bearer = () => ({ Authorization: `Bearer ${app.token}` });

test('the command prints the same and ends with the same code as beside the database', async () => {
  const write = (name: string, text: string | Uint8Array) => {
    writeFileSync(path.join(dir, name), text);
    return path.join(dir, name);
  };
  const broken = `${HEADER}/raw/a.dat,1000000,T,RAW001,1\n/raw/b.dat,many,T,RAW001,2\nraw/c.dat,1,X,RAW001,3\n`;
  const same = write('same.csv', rowsOf('same', 3));
  await runCli(['import', same], { env: here });
  for (const args of [
    [same],
    [same, '--json'],
    [write('same.csv.gz', gzipSync(rowsOf('same', 3)))],
    [write('empty', '')],
    [write('broken.csv', broken)],
    [write('cut.gz', gzipSync(rowsOf('cut', 3)).subarray(0, 40))],
    [path.join(dir, 'missing.csv')],
    [dir],
  ]) {
    const beside = await runCli(['import', ...args], { env: here });
    expect([args, await runCli(['import', ...args], { env: afar })]).toEqual([args, beside]);
  }
  expect((await runCli(['import', dir], { env: here })).stderr).toContain(
    'EISDIR: illegal operation on a directory, read',
  );
  const added = await runCli(['import', write('j', '{"path":"/same/j","size":1}\n')], { env: afar });
  expect(added.stdout).toContain('1 file added, 0 updated\n1 new file without a stage in the list: added in stage U');
  expect(await runCli(['import', path.join(dir, 'broken.csv')], { env: afar })).toEqual(
    refused(
      1,
      'nothing was imported:\n  line 3: size must be a whole number of bytes, not "many"\n  line 4: path does not begin with "/": "raw/c.dat"\nuse --skip-invalid to skip rows with names that cannot be restored',
    ),
  );
});

test('20,000 rows on standard input are imported, gzipped or not', async () => {
  const count = 20_000;
  expect(await runCli(['import', '-'], { env: afar, stdin: rowsOf('long', count) })).toEqual(
    done(`${count} files added, 0 updated\n`),
  );
  expect(await runCli(['import', '-'], { env: afar, stdin: gzipSync(rowsOf('long', count)) })).toEqual(
    done('0 files added, 0 updated\n'),
  );
  expect(await countFiles('long')).toBe(count);
});

test('--progress reports what was sent', async () => {
  const { stderr } = await runCli(['import', '--progress', '-'], { env: afar, stdin: rowsOf('progress', 3) });
  expect(stderr.split('\n')).toEqual([
    expect.stringMatching(/^\d+ bytes read, /),
    expect.stringMatching(/^importing, /),
    '',
  ]);
});

test('a caller who is no operator is refused before anything is sent', async () => {
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
  expect(await runCli(['import', '-'], { env, stdin: rowsOf('none', 20_000) })).toEqual(
    refused(1, `"ann" may not use this operation: an operator's token is required`),
  );
  expect(await countFiles('none')).toBe(0);
});

test('a bad import request is refused in JSON', async () => {
  const put = (headers: object) => ({ method: 'PUT', body: HEADER, headers: { ...bearer(), ...headers } });
  const { status, headers, body } = await send(app, '/import', { headers: bearer() });
  expect([status, headers.get('allow'), body]).toEqual([405, 'PUT', { error: 'GET is not allowed here, only PUT' }]);
  expect(await send(app, '/import', put({ 'Content-Encoding': 'br' }))).toMatchObject({ status: 415 });
  expect(await send(app, '/import/x', put({}))).toMatchObject({ status: 404 });
  expect(await send(app, '/import?format=csv', put({}))).toMatchObject({
    status: 400,
    body: {
      error: 'format is not a parameter of an import; the parameters are complete, maxWithdrawn, dryRun, skipInvalid',
    },
  });
  expect(await send(app, '/import?dryRun=false', put({}))).toMatchObject({ status: 200, body: { added: 0 } });
});

test('a file with bad rows is answered with their lines while it is still being sent', async () => {
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
  expect(error).toMatch(/^nothing was imported:\n {2}line 2: .*\n[\s\S]*only the first 20 errors are listed\)$/);
});

test('a client that disconnects in the middle stores nothing, and the next import is accepted', async () => {
  const seen = nextResponse();
  const { req } = startPut();
  req.write(rowsOf('gone', 5000));
  await seen; // the import has begun before waitForActive() sends its own import
  await waitForActive(true);
  req.destroy();
  await waitForActive(false);
  expect(await countFiles('gone')).toBe(0);
});

test('a client that disconnects before the answer stores nothing', async () => {
  await addFiles(app.ctx, [{ path: '/left/0', size: 7n }]);
  await whileLocked(app, `SELECT FROM tape_file WHERE path = '/left/0' FOR UPDATE`, async (waiters) => {
    const seen = nextResponse();
    const { req } = startPut();
    req.end(rowsOf('left', 3));
    await waiters(1);
    const closed = once(await seen, 'close');
    req.destroy();
    await closed;
  });
  await waitForActive(false);
  expect(await countFiles('left')).toBe(1);
});

test('a second import at the same time is refused, and the first one completes', async () => {
  const seen = nextResponse();
  const { req, answer } = startPut();
  req.write(rowsOf('first', 2));
  await seen;
  await waitForActive(true);
  const second = await runCli(['import', '-'], { env: afar, stdin: rowsOf('second', 1) });
  expect(second).toMatchObject({ code: 4, stdout: '' });
  expect(second.stderr).toMatch(
    /: another import by "operator" has been running since 2[\dT:.-]+Z: try again later\n$/,
  );
  req.end();
  expect(await answer).toMatchObject({ status: 200, body: { added: 2 } });
});

test('a client that sends nothing is disconnected', async () => {
  const quick = await startBeside(app, { config: { readerSeconds: 1 } });
  const { req } = startPut({}, quick.url);
  const closed = new Promise((resolve) => req.once('close', resolve));
  req.write(rowsOf('silent', 10));
  await closed;
  await waitForActive(false);
  expect(await countFiles('silent')).toBe(0);
  await quick.close();
});
