/** What the clients report if a server responds, but not as a Tapegate gateway: a login page, a redirect, other JSON. */
import { createServer, type ServerResponse } from 'node:http';
import { createServer as createTcpServer } from 'node:net';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { createClient } from '../../clients/typescript/client.js';
import { Refused, UnexpectedResponse, Unreachable } from '../../clients/typescript/errors.js';
import { packageRoot } from '../../src/core/package-root.js';
import { closeServer, listen } from '../support/ports.js';
import { cleanUp, runCli, startProcess } from '../support/process.js';
import { findProgram } from '../support/run-example.js';

const PYTHON = findProgram('python3');

const step = { requestId: 1, eventId: '7', state: 'COMPLETED', filesTotal: 1, filesOnDisk: 1, filesFailed: 0 };
const sizes = { bytesTotal: '1', bytesOnDisk: '1', bytesReleased: '0', filesReleased: 0 };
const result = (state: string) => ({
  data: { requestProgress: { ...step, ...sizes, state, end: null, at: '2026-01-01T00:00:00Z' } },
});
const event = (name: string, data: string) => `event: ${name}\ndata: ${data}\n\n`;
const json = (body: string) => (res: ServerResponse) =>
  res.writeHead(200, { 'Content-Type': 'application/json' }).end(body);
const stream = (body: string) => (res: ServerResponse) =>
  res.writeHead(200, { 'Content-Type': 'text/event-stream; charset=utf-8' }).end(body);
const page = (status: number) => (res: ServerResponse) =>
  res.writeHead(status, { 'Content-Type': 'text/html' }).end('<html>log in</html>');
const redirect = (res: ServerResponse) =>
  res.writeHead(302, { Location: 'https://sso.example.org/login?state=x' }).end();
const done = stream(event('next', JSON.stringify(result('COMPLETED'))) + event('complete', ''));

/** Responses by the first part of the path. The last response of a list is repeated. */
const responses: Record<string, ((res: ServerResponse) => unknown)[]> = {
  page: [page(200)],
  redirect: [redirect],
  missing: [page(404)],
  failed: [page(500)],
  gzip: [(res) => res.writeHead(200, { 'Content-Encoding': 'gzip' }).end(gzipSync('{"data":{}}'))],
  cut: [json('{"data":{"quota":nu')],
  list: [json('[]')],
  null: [json('{"data":null}')],
  empty: [json('{"data":{}}')],
  words: [json('{"errors":["no"]}')],
  text: [json('{"errors":"no"}')],
  number: [json('{"data":{"quota":{"user":"a","size":"x","used":"1","email":null}}}')],
  event: [stream(event('next', '{"data":'))],
  recovers: [page(503), page(500), done],
  watched: [
    stream(event('next', JSON.stringify(result('RESTORING')))),
    page(500),
    done,
    json('{"data":{"request":null}}'),
  ],
  login: [stream(event('next', JSON.stringify(result('RESTORING')))), page(200)],
  moved: [stream(event('next', JSON.stringify(result('RESTORING')))), redirect],
};
const asked = new Map<string, number>();
const server = createServer((req, res) => {
  const [, name = ''] = req.url?.split('/') ?? [];
  const count = asked.get(name) ?? 0;
  asked.set(name, count + 1);
  const list = responses[name] ?? [];
  list[Math.min(count, list.length - 1)]?.(res);
});
let url: string;

beforeAll(async () => {
  url = `http://127.0.0.1:${await listen(server)}`;
});
beforeEach(() => asked.clear());
afterAll(async () => {
  await cleanUp();
  await closeServer(server);
});

const NO_REQUEST = 'there is no request 1, or you are not allowed to see it';
const ADVICE = 'check the URL of the gateway, and whether a proxy requires a login';
const other = (name: string, found: string, expected = 'a GraphQL response') =>
  `${url}/${name} responds with status 200 and ${found}, expected ${expected}: ${ADVICE}`;
const moved = (name: string) =>
  `${url}/${name} responds with status 302 and an unexpected redirect to https://sso.example.org/login: ${ADVICE}`;
const badEvent = () => `${url}/event sends an event that is not a GraphQL response: ${ADVICE}`;

/** The messages of both clients for a query. */
const messages = () => ({
  page: other('page', 'text/html'),
  redirect: moved('redirect'),
  ...Object.fromEntries(
    ['cut', 'list', 'null', 'words', 'text', 'number'].map((name) => [name, other(name, 'application/json')]),
  ),
});

/** The messages of both clients for a subscription. */
const streamMessages = () => ({
  page: other('page', 'text/html', 'an event stream'),
  list: other('list', 'application/json', 'an event stream'),
  event: badEvent(),
  moved: moved('moved'),
});

async function outcomeOf(work: () => Promise<unknown>): Promise<[string, string] | unknown> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
    return [error.name, error.message];
  }
}

test('a query of the TypeScript client fails with an error that names the URL, the status and the content type', async () => {
  for (const [name, message] of Object.entries(messages())) {
    const quota = createClient({ url: `${url}/${name}` }).quota('alice');
    expect([name, await outcomeOf(() => quota)]).toEqual([name, ['UnexpectedResponse', message]]);
  }
  expect(new UnexpectedResponse('')).toBeInstanceOf(Unreachable);
});

test('follow of the TypeScript client fails if a retry does not help, and reconnects after a failure of the server', async () => {
  const follow = (name: string) =>
    outcomeOf(async () => {
      const states: string[] = [];
      for await (const { state } of createClient({ url: `${url}/${name}` }).follow(1)) states.push(state);
      return states;
    });
  for (const [name, message] of Object.entries(streamMessages())) {
    expect([name, await follow(name)]).toEqual([name, ['UnexpectedResponse', message]]);
  }
  expect(await follow('missing')).toEqual(['Refused', `${url}/missing responds with status 404`]);
  expect(await follow('recovers')).toEqual(['COMPLETED']);
});

test('watch ends if a proxy shows its login page or does not know the path', async () => {
  const watch = async (name: string) => {
    const { code, stderr } = await runCli(['watch', '1', '--json'], { env: { TAPEGATE_URL: `${url}/${name}` } });
    return [name, code, stderr];
  };
  const page = 'responds with status 200 and text/html instead of an event stream';
  for (const [name, code, says] of [
    ['page', 1, page],
    ['login', 1, page],
    ['missing', 1, 'responds with status 404'],
    ['failed', 4, 'responds with status 500'],
  ] as const) {
    expect(await watch(name)).toEqual([name, code, `tapegate: ${url}/${name} ${says}\n`]);
  }
});

/** Prints the outcomes of queries, of follows and of commands, which are lists of a URL and arguments. */
const SCRIPT = `
import contextlib, io, json, sys, time
import tapegate
from tapegate import *
queries, follows, commands = json.loads(sys.argv[1])
time.sleep = lambda seconds: None
def outcome(call):
    try: return call()
    except (Refused, OSError) as error: return [type(error).__name__, str(error)]
def command(url, *arguments):
    with contextlib.redirect_stderr(io.StringIO()) as printed, contextlib.redirect_stdout(io.StringIO()):
        return [tapegate.main(["--url", url, *arguments]), printed.getvalue()]
print(json.dumps([
    [outcome(lambda: Tapegate(url).quota("alice")) for url in queries],
    [outcome(lambda: [step["state"] for step in Tapegate(url).follow(1)]) for url in follows],
    [command(*each) for each in commands],
    issubclass(UnexpectedResponse, OSError),
]))`;

test.skipIf(!PYTHON)('the Python client and its command fail with the same errors, and follow reconnects', async () => {
  const rude = createTcpServer((socket) => socket.end('SSH-2.0-x\r\n'));
  const noHttp = `http://127.0.0.1:${await listen(rude)}`;
  const queries = {
    ...messages(),
    gzip: other('gzip', 'no content type in the encoding gzip'),
    empty: `${url}/empty returned no field quota: ${ADVICE}`,
  };
  const at = (names: object) => Object.keys(names).map((name) => `${url}/${name}`);
  const others = [`${url}/missing`, `${url}/failed`, noHttp];
  const urls = [
    [...at(queries), ...others],
    [...at(streamMessages()), `${url}/recovers`],
    [
      [`${url}/page`, 'quota', 'alice'],
      [`${url}/failed`, 'quota', 'alice'],
      [`${url}/failed`, 'watch', '1'],
      [`${url}/watched`, 'watch', '1', '--json'],
    ],
  ];
  const { stdout, stderr } = await startProcess(PYTHON ?? '', ['-c', SCRIPT, JSON.stringify(urls)], {
    cwd: path.join(packageRoot, 'clients/python'),
    env: { HOME: '/nonexistent', PYTHONDONTWRITEBYTECODE: '1', PYTHONUTF8: '1' },
  }).ended;
  rude.close();
  expect(stderr).toBe('');
  const unexpected = (all: object) => Object.values(all).map((message) => ['UnexpectedResponse', message]);
  expect(JSON.parse(stdout)).toEqual([
    [
      ...unexpected(queries),
      ['Refused', `${url}/missing responds with status 404`],
      ['ConnectionError', `${url}/failed responds with status 500`],
      ['UnexpectedResponse', `${noHttp} does not respond with HTTP: ${ADVICE}`],
    ],
    [...unexpected(streamMessages()), ['COMPLETED']],
    [
      [1, `tapegate: ${other('page', 'text/html')}\n`],
      [4, `tapegate: ${url}/failed responds with status 500\n`],
      [4, `tapegate: ${url}/failed responds with status 500\n`],
      [1, `no response from ${url}/watched; trying again\ntapegate: ${NO_REQUEST}\n`],
    ],
    true,
  ]);
});
