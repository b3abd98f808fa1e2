/** What has to be known before the kind `wlcg` gives a file up: a server that says nothing of it, or answers nonsense, is what fails. */
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { LibraryError } from '../../src/tape/backend.js';
import type { FileState } from '../../src/tape/staging.js';
import { errorOf, makeReady, putFiles, readStaged, staged } from '../support/staging-bench.js';
import { quiet } from '../support/tape-backend.js';
import { createWlcgBench, type WlcgBench } from '../support/wlcg-bench.js';

let bench: WlcgBench;

beforeEach(async () => {
  bench = await createWlcgBench('eos');
});

afterEach(() => bench.close());

async function readAnswered(answer: (response: http.ServerResponse) => void): Promise<LibraryError> {
  const files = await putFiles(bench, ['/a']);
  await makeReady(bench, files);
  bench.server.onBytes = (_request, response) => {
    answer(response);
    return true;
  };
  return (await errorOf(readStaged(bench.library, files[0] ?? staged('/a')))) as LibraryError;
}

test.each<[number, number, string]>([
  [404, 500, 'TRANSIENT'],
  [410, 401, 'TRANSIENT'],
  [403, 403, 'POLICY'],
  [403, 500, 'POLICY'],
])(
  'a read that is answered %i, while the tape API answers %i, is nothing of the file',
  async (door, api, errorClass) => {
    bench.server.onCall = (kind) => (kind === 'archiveinfo' ? { status: api } : undefined);
    const error = await readAnswered((response) => response.writeHead(door).end());
    expect(error).toBeInstanceOf(LibraryError);
    expect(error.errorClass).toBe(errorClass);
  },
);

test.each<[string, Record<string, string>]>([
  ['with a length', { 'content-type': 'text/html; charset=utf-8', 'content-length': '20' }],
  ['without a length', { 'content-type': 'TEXT/HTML' }],
])("a page in the place of the bytes %s is the server's", async (_what, headers) => {
  const error = await readAnswered((response) => response.writeHead(200, headers).end('<html>log in</html>\n'));
  expect(error).toBeInstanceOf(LibraryError);
  expect(error.message).toMatch(/answers with a page of HTML in the place of the file of 15 bytes$/);
});

test('a page that is the file is read', async () => {
  const page = Buffer.from('<html></html>');
  await bench.put('/page.html', page);
  const file = staged('/page.html', page.length);
  await makeReady(bench, [file]);
  const lengths: (number | undefined)[] = [page.length, undefined];
  bench.server.onBytes = (_request, response) => {
    const length = lengths.shift();
    const headers = { 'content-type': 'text/html', ...(length === undefined ? {} : { 'content-length': length }) };
    response.writeHead(200, headers).end(page);
    return true;
  };
  for (const _each of [...lengths]) expect((await readStaged(bench.library, file)).equals(page)).toBe(true);
});

const glance = (states: readonly FileState[]) =>
  states.map((state) => `${state.path} ${state.state}${state.state === 'failed' ? ` ${state.error.errorClass}` : ''}`);

test.each(['pool dc-17 does not exist', 'No such file or directory', 'route not found'])(
  'a file that is on tape is not given up for words: %s',
  async (error) => {
    bench.server.onCall = (kind) => {
      if (kind === 'poll') return { status: 200, body: { files: [{ path: '/a', state: 'FAILED', error }] } };
      return kind === 'archiveinfo' ? { status: 200, body: [{ path: '/a', locality: 'TAPE' }] } : undefined;
    };
    expect(glance(await bench.library.poll({ id: 'one', files: [staged('/a', 7)] }, quiet()))).toEqual([
      '/a failed TRANSIENT',
    ]);
  },
);

test('what a demand does not have is asked for again', async () => {
  bench.server.onCall = (kind) => {
    if (kind === 'poll') return { status: 200, body: { files: [{ path: '/of-it', onDisk: false }] } };
    return kind === 'archiveinfo' ? { status: 200, body: [{ path: '/missing', locality: 'TAPE' }] } : undefined;
  };
  const files = ['/of-it', '/missing', '/untold'].map((path) => staged(path, 7));
  expect(glance(await bench.library.poll({ id: 'one', files }, quiet()))).toEqual([
    '/of-it waiting',
    '/missing forgotten',
  ]);
});

test('a server that refuses all of a call has refused the call, and no file', async () => {
  const files = await putFiles(bench, ['/a', '/b', '/c']);
  bench.server.onCall = (kind) =>
    kind === 'stage' ? { status: 400, body: { title: 'no such attribute' } } : undefined;
  const error = await errorOf(bench.library.stage(files, quiet()));
  expect(error).toBeInstanceOf(LibraryError);
  expect((error as Error).message).toContain('answers 400: no such attribute');
  const { known } = await bench.library.stage(files.slice(0, 1), quiet());
  expect(glance(known)).toEqual(['/a failed TRANSIENT']);
});

test.each<[unknown, string | undefined, string | RegExp]>([
  [17, undefined, '17'],
  ['..', '/api/v1/stage/of%20place/', 'of place'],
  ['', '/api/v1/stage/%zz', '%zz'],
  ['.', undefined, /does not say by which name$/],
  ['\ud800', undefined, /does not say by which name$/],
])('the name of a demand is one that can be asked about: %j, at %j', async (requestId, location, expected) => {
  const files = await putFiles(bench, ['/a']);
  bench.server.onCall = (kind) =>
    kind === 'stage' ? { status: 201, headers: location ? { location } : {}, body: { requestId } } : undefined;
  if (typeof expected === 'string') expect((await bench.library.stage(files, quiet())).id).toBe(expected);
  else expect(String(await errorOf(bench.library.stage(files, quiet())))).toMatch(expected);
});

test('a site that never comes to the end of telling where its API is is left after its time, and asked again', async () => {
  const drips: NodeJS.Timeout[] = [];
  let answer = (response: http.ServerResponse) => {
    response.writeHead(200);
    drips.push(setInterval(() => response.write(' '), 100));
  };
  const server = http.createServer((_request, response) => answer(response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const discoveryUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  try {
    const library = bench.open({ discoveryUrl, connectSeconds: 1, answerSeconds: 1, silenceSeconds: 60 });
    const files = await putFiles(bench, ['/a']);
    const error = await errorOf(library.stage(files, quiet()));
    expect(String(error)).toMatch(/has not told within 2 s where the tape API is$/);
    answer = (response) =>
      void response.end(JSON.stringify({ endpoints: [{ uri: `${bench.server.origin}/api/v1`, version: 'v1' }] }));
    expect((await library.stage(files, quiet())).id).not.toBeNull();
  } finally {
    for (const drip of drips) clearInterval(drip);
    server.closeAllConnections();
    server.close();
  }
}, 20_000);
