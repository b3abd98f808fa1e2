/**
 * How the library type `wlcg` interprets the answers of different servers.
 * A file fails only if the server reports a failure of this file.
 */
import http from 'node:http';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { LibraryError } from '../../src/tape/drive-library.js';
import type { FileState } from '../../src/tape/staging.js';
import { expectFailure } from '../support/failure.js';
import { closeServer, listen } from '../support/ports.js';
import { errorOf, makeReady, putFiles, readStaged, staged } from '../support/staging-bench.js';
import { quiet } from '../support/tape-library.js';
import { createWlcgBench, type WlcgBench } from '../support/wlcg-bench.js';

let bench: WlcgBench;
beforeEach(async () => {
  bench = await createWlcgBench('eos', { settings: { diskLifetime: 'P1D' } });
});
afterEach(() => bench.close());

const ONE = [staged('/a', 7)];

/** Formats a state as one line. */
function format(state: FileState): string {
  if (state.state === 'failed') return `${state.path} ${state.error.errorClass}: ${state.error.message}`;
  const until = state.state === 'ready' && state.until ? ` until ${state.until.toISOString()}` : '';
  return `${state.path} ${state.state}${until}`;
}

/** Returns the states of a poll. The server answers the poll with `body`, and localities with `localities`. */
async function poll(body: unknown, localities: unknown[] = [], paths = ['/a']): Promise<string[]> {
  bench.server.onCall = (kind) => {
    if (kind === 'poll') return { status: 200, body };
    return kind === 'archiveinfo' ? { status: 200, body: localities } : undefined;
  };
  const states = await bench.library.poll({ id: 'one', files: paths.map((path) => staged(path, 7)) }, quiet());
  return states.map(format);
}

const at = (locality: string) => [{ path: '/a', locality, error: null, checksum: 'new' }];
const failed = (errorClass: string, why: string) => `${errorClass}: "/a" could not be staged: ${why}`;

test.each<[file: object, expected: string]>([
  [{ onDisk: true }, 'ready'],
  [{ onDisk: false }, 'waiting'],
  [{ onDisk: true, error: null, state: null, startedAt: null }, 'ready'],
  [{ onDisk: true, error: '' }, 'ready'],
  [{ state: 'SUBMITTED' }, 'waiting'],
  [{ state: 'STARTED', startedAt: 0 }, 'waiting'],
  [{ state: 'UNKNOWN_TODAY' }, 'waiting'],
  [{}, 'waiting'],
  [{ state: 'COMPLETED' }, 'ready'],
  [{ state: 'completed', finishedAt: null }, 'ready'],
  [{ state: 'COMPLETED', finishedAt: 1_800_000_000 }, 'ready until 2027-01-16T08:00:00.000Z'],
  [{ state: 'COMPLETED', finishedAt: 1_800_000_000_000 }, 'ready until 2027-01-16T08:00:00.000Z'],
  [{ state: 'COMPLETED', finishedAt: 0 }, 'ready'],
  [{ state: 'FAILED' }, failed('TRANSIENT', 'the library gave no reason')],
  ...['CANCELLED', 'CANCELED', 'SKIPPED'].map((state): [object, string] => [
    { state },
    failed('TRANSIENT', `the library reports ${state}`),
  ]),
  [{ onDisk: false, error: 'drive is down' }, failed('TRANSIENT', 'drive is down')],
  [{ error: 'Input/output error' }, failed('MEDIA', 'Input/output error')],
  [{ error: 'Permission denied' }, failed('POLICY', 'Permission denied')],
  [{ error: 'the quota has no room for the file' }, failed('SPACE', 'the quota has no room for the file')],
  [{ error: 'No space left on device' }, failed('SPACE', 'No space left on device')],
  ...['pool dc-17 does not exist', 'No such file or directory', 'route not found'].map((error): [object, string] => [
    { state: 'FAILED', error },
    failed('TRANSIENT', error),
  ]),
])('a file on tape that is answered as %j is %s', async (file, expected) => {
  const files = [{ path: '/a', ...file }];
  expect(await poll({ id: 'one', createdAt: 1, files }, at('TAPE'))).toEqual([`/a ${expected}`]);
});

test.each<[localities: object[], expected: string]>([
  [at('DISK'), 'ready'],
  [at('disk_and_tape'), 'ready'],
  [at('LOST'), 'PERMANENT: "/a" is lost: it broke'],
  [at('UNAVAILABLE'), 'TRANSIENT: "/a" is temporarily unavailable: it broke'],
  [at('NONE'), 'PERMANENT: "/a" has no data: it may be a directory or an empty file: it broke'],
  [
    [{ path: '/a', error: 'No such file or directory' }],
    'PERMANENT: "/a" is not available: it broke; No such file or directory',
  ],
  [[], 'TRANSIENT: "/a" could not be staged: it broke'],
])('the locality %j decides what a failed file is: %s', async (localities, expected) => {
  const files = [{ path: '/a', state: 'FAILED', error: 'it broke' }];
  expect(await poll({ files }, localities)).toEqual([`/a ${expected}`]);
});

test('the locality decides what a file is that the answer does not contain; without one it is left out', async () => {
  const localities = [
    { path: '/on-disk', locality: 'DISK_AND_TAPE' },
    { path: '/on-tape', locality: 'TAPE' },
    { path: '/lost', locality: 'LOST' },
  ];
  const paths = ['/on-disk', '/on-tape', '/lost', '/unknown'];
  for (const files of [[], null]) {
    expect(await poll({ files }, localities, paths)).toEqual(['/on-disk ready', '/lost PERMANENT: "/lost" is lost']);
  }
  const files = [{ path: '/other', onDisk: false }];
  expect(await poll({ files }, localities, ['/other', '/on-tape'])).toEqual(['/other waiting', '/on-tape forgotten']);
});

test('paths in an answer match those of the request, in whatever form the server returns them', async () => {
  const files = [
    { path: '//a//b/', onDisk: true },
    { path: '/c', onDisk: false },
    { path: 7, onDisk: true },
    null,
    { path: '/of-nobody', onDisk: true },
  ];
  expect(await poll({ files }, [], ['/a/b', '/a//b', '/c/'])).toEqual(['/a/b ready', '/a//b ready', '/c/ waiting']);
});

test('an answer without JSON, or over 32 MiB, fails the call; JSON of another shape says nothing of files', async () => {
  const call = () => bench.library.poll({ id: 'one', files: ONE }, quiet());
  bench.server.onCall = () => ({ status: 200, headers: { 'content-encoding': 'identity' } });
  await expectFailure(call(), LibraryError, 'TRANSIENT', /did not return JSON: ""$/);
  bench.server.onCall = () => ({ status: 200, body: { files: 'x'.repeat(33 * 1024 * 1024) } });
  await expectFailure(call(), LibraryError, 'TRANSIENT', /more than 33554432 bytes$/);
  for (const body of [null, 7, 'text', [], { files: 7 }]) expect(await poll(body)).toEqual([]);
});

test.each<[status: number, headers: Record<string, string>, body: object, words: string]>([
  [500, {}, { title: 'broken', detail: 'badly' }, 'answers 500: broken: badly'],
  [400, { title: 'Bad Request', detail: 'in headers' }, {}, 'answers 400: Bad Request: in headers'],
  [502, { 'content-type': 'text/html' }, { html: 1 }, 'answers 502: Bad Gateway'],
  [403, {}, { title: 'Forbidden', detail: 'Forbidden' }, 'answers 403: Forbidden'],
])('a refusal %i is reported in the words of the server', async (status, headers, body, words) => {
  bench.server.onCall = () => ({ status, headers, body });
  const call = bench.library.stage(ONE, quiet()).then(({ known }) => Promise.reject(known.map(format).join()));
  const error = await errorOf(call);
  expect(error instanceof TapeError ? error.message : error).toContain(words);
});

test('a call with several files that is refused as a whole fails no file', async () => {
  const files = await putFiles(bench, ['/a', '/b', '/c']);
  bench.server.onCall = (kind) =>
    kind === 'stage' ? { status: 400, body: { title: 'no such attribute' } } : undefined;
  const says = 'answers 400: no such attribute';
  await expectFailure(bench.library.stage(files, quiet()), LibraryError, 'TRANSIENT', says);
  const { known } = await bench.library.stage(files.slice(0, 1), quiet());
  expect(known.map(format)).toEqual([expect.stringMatching(/^\/a TRANSIENT: /)]);
});

test.each([
  [429, { 'retry-after': '9' }, 9],
  [429, {}, 60],
  [503, { 'retry-after': new Date(Date.now() + 86_400_000).toUTCString() }, 3600],
])('%i with the headers %j asks for a retry after %i s', async (status, headers, seconds) => {
  bench.server.onCall = () => ({ status, headers });
  expect(await errorOf(bench.library.stage(ONE, quiet()))).toMatchObject({ retryAfterSeconds: seconds });
});

test.each<[requestId: unknown, location: string | undefined, expected: string | RegExp]>([
  [17, undefined, '17'],
  ['..', '/api/v1/stage/of%20place/', 'of place'],
  ['', '/api/v1/stage/%zz', '%zz'],
  ['.', undefined, /returned no request id$/],
  ['\ud800', undefined, /returned no request id$/],
])(
  'the id of a stage request is one that a URL can contain: %j, Location %j',
  async (requestId, location, expected) => {
    bench.server.onCall = (kind) =>
      kind === 'stage' ? { status: 201, headers: location ? { location } : {}, body: { requestId } } : undefined;
    const call = bench.library.stage(ONE, quiet());
    if (typeof expected === 'string') expect((await call).id).toBe(expected);
    else expect(String(await errorOf(call))).toMatch(expected);
  },
);

async function readAnswered(answer: (response: http.ServerResponse) => void): Promise<Buffer> {
  const [file = staged('')] = await putFiles(bench, ['/a']);
  await makeReady(bench, [file]);
  bench.server.onBytes = (_request, response) => {
    answer(response);
    return true;
  };
  return await readStaged(bench.library, file);
}

test.each([
  [404, 500, 'TRANSIENT'],
  [410, 401, 'TRANSIENT'],
  [403, 403, 'POLICY'],
  [403, 500, 'POLICY'],
] as const)(
  'a read that is answered %i while the tape API answers %i fails the library',
  async (door, api, errorClass) => {
    bench.server.onCall = (kind) => (kind === 'archiveinfo' ? { status: api } : undefined);
    await expectFailure(
      readAnswered((response) => response.writeHead(door).end()),
      LibraryError,
      errorClass,
    );
  },
);

test.each([{ 'content-type': 'text/html; charset=utf-8', 'content-length': '20' }, { 'content-type': 'TEXT/HTML' }])(
  'a page of HTML instead of the bytes fails the library: %j',
  async (headers) => {
    const read = readAnswered((response) => response.writeHead(200, headers).end('<html>log in</html>\n'));
    const says = /returned an HTML page instead of the file, which has 15 bytes$/;
    await expectFailure(read, LibraryError, 'TRANSIENT', says);
  },
);

test('a file that is itself a page of HTML is read', async () => {
  const page = Buffer.from('<html></html>');
  await bench.put('/page.html', page);
  const file = staged('/page.html', page.length);
  await makeReady(bench, [file]);
  for (const length of [{ 'content-length': page.length }, {}]) {
    bench.server.onBytes = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/html', ...length }).end(page);
      return true;
    };
    expect(await readStaged(bench.library, file)).toEqual(page);
  }
});

test('a discovery document that never ends fails the call after its time limit, and is requested again', async () => {
  const drips: NodeJS.Timeout[] = [];
  let answer = (response: http.ServerResponse) => {
    response.writeHead(200);
    drips.push(setInterval(() => response.write(' '), 100));
  };
  const server = http.createServer((_request, response) => answer(response));
  const discoveryUrl = `http://127.0.0.1:${await listen(server)}/`;
  try {
    const library = bench.open({ discoveryUrl, connectSeconds: 1, answerSeconds: 1, silenceSeconds: 60 });
    const files = await putFiles(bench, ['/a']);
    const error = await errorOf(library.stage(files, quiet()));
    expect(String(error)).toMatch(/did not report the address of the tape API within 2 s$/);
    const endpoints = [{ uri: `${bench.server.origin}/api/v1`, version: 'v1' }];
    answer = (response) => void response.end(JSON.stringify({ endpoints }));
    expect((await library.stage(files, quiet())).id).not.toBeNull();
  } finally {
    for (const drip of drips) clearInterval(drip);
    await closeServer(server);
  }
});
