import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { addLibrary } from '../../src/domain/libraries/changes.js';
import { MAX_BODY_BYTES } from '../../src/gateway/http/http-body.js';
import { badCatalogue } from '../support/bad-catalogue.js';
import { badHttp } from '../support/bad-http.js';
import type { BadGraphql, BadHttp, BadRest } from '../support/bad-input-forms.js';
import { badReads } from '../support/bad-reads.js';
import { type BadTape, badTape } from '../support/bad-tape.js';
import { badWrites } from '../support/bad-writes.js';
import { addFiles, addQuota } from '../support/factories.js';
import { ask, sendGraphql } from '../support/graphql.js';
import { send, sendAsIs, sendBytes } from '../support/http.js';
import { call, errorBody, makeRequest } from '../support/rest.js';
import { type Dump, dumpTables, keepTables } from '../support/tables.js';
import { useApp } from '../support/use-app.js';

const NOW = '2026-11-20T10:00:00.000007';

let before: Dump;
let putBack: () => Promise<void>;
const app = useApp({ now: () => NOW }, async () => {
  await addQuota(app.ctx, 'alice', 10_000n);
  await addFiles(app.ctx, [{ path: '/a/one.nc' }, { path: '/a/two.nc', stage: 'ONDISK' }]);
  await makeRequest(app, { quota: 'alice', patterns: '/a/', label: 'mine' });
  const settings = { bucket: 'archive', region: 'eu-west-2' };
  await addLibrary(app.ctx, { name: 'glacier', kind: 's3', settings });
  before = await dumpTables(app.ctx);
  putBack = await keepTables(app.ctx);
});

/** Text that only the log may contain. */
const INTERNALS = /internal error|node_modules|\n\s+at |\.[jt]s:\d+|prisma|postgres|syntax error at or near/i;

async function expectRestRefusal(input: BadRest): Promise<void> {
  const { method, path, body, headers, status, says } = input;
  const answer = headers?.Host
    ? await sendAsIs(app, `/tape_control/api/v1${path}`, { method, headers })
    : await call(app, method, path, { body, ...(headers && { headers }) });
  expect(answer.text).not.toMatch(INTERNALS);
  expect(answer.headers.get('content-type')).toBe('application/json');
  const message = (answer.body as [{ error: string }])[0].error;
  expect(message).toMatch(says);
  expect([answer.status, answer.body]).toEqual([status, errorBody(message)]);
}

async function expectGraphqlRefusal({ body, headers, status, says }: BadGraphql): Promise<void> {
  const answer = await sendGraphql(app, body, headers && { headers });
  expect(answer.text).not.toMatch(INTERNALS);
  const { data, errors } = answer.body;
  const [payload] = Object.values((data ?? {}) as Record<string, { errors: { message: string }[] } | null>);
  const [error] = errors ?? payload?.errors ?? [];
  expect(error?.message).toMatch(says);
  expect(answer.status).toBe(status);
}

async function expectHttpRefusal({ target, status, says, allow, ...call }: BadHttp): Promise<void> {
  const answer = await sendAsIs(app, target, call);
  expect(answer.text).not.toMatch(INTERNALS);
  expect(answer.body).toEqual({ errors: [expect.objectContaining({ message: expect.stringMatching(says) })] });
  expect([answer.status, answer.headers.get('allow')]).toEqual([status, allow ?? null]);
}

async function expectTapeRefusal({ method, path, body, status, says, allow }: BadTape): Promise<void> {
  const answer = await send(app, `/tape_rest/v1${path}`, { method, body });
  expect(answer.text).not.toMatch(INTERNALS);
  expect(answer.headers.get('content-type')).toBe('application/problem+json');
  const problem = answer.body as { status: number; title: string; detail: string };
  expect(problem).toEqual({ status, title: expect.stringMatching(/^[A-Z]/), detail: expect.stringMatching(says) });
  expect([answer.status, answer.headers.get('allow')]).toEqual([status, allow ?? null]);
}

describe.each([
  ['writes', badWrites],
  ['changes of the catalogue', badCatalogue],
  ['reads', badReads],
  ['HTTP', badHttp],
  ['the Tape REST API', badTape],
] as const)('bad input: %s', (_name, inputs) => {
  test.each(inputs.map((input) => [input.name, input] as const))(
    '%s is refused with a clear message',
    async (_name, input) => {
      if (input.protocol === 'REST') await expectRestRefusal(input);
      else if (input.protocol === 'HTTP') await expectHttpRefusal(input);
      else if (input.protocol === 'Tape REST') await expectTapeRefusal(input);
      else await expectGraphqlRefusal(input);
    },
  );

  test('stores nothing', async () => {
    expect(await dumpTables(app.ctx)).toEqual(before);
  });
});

test('a chunked body that is too long returns 413', async () => {
  const megabyte = Buffer.alloc(1024 * 1024, ' ');
  const body = Readable.from(Array.from({ length: MAX_BODY_BYTES / megabyte.length + 1 }, () => megabyte));
  const headers = { 'Content-Type': 'application/json' };
  const init = { method: 'POST', headers, body: Readable.toWeb(body), duplex: 'half' };
  const response = await fetch(`${app.url}/graphql`, init as RequestInit);
  expect([response.status, await response.text()]).toEqual([
    413,
    expect.stringContaining('the body must have at most 33554432 bytes'),
  ]);
  expect(await dumpTables(app.ctx)).toEqual(before);
});

test('GraphQL accepts 10,000 paths', async () => {
  const files = Array.from({ length: 10_000 }, (_, n) => `/many/file-${n}.nc`);
  const created = await ask(
    app,
    'mutation ($files: [String!]) { createRequest(input: { quota: "alice", files: $files }) { request { filesUnknown } } }',
    { files },
  );
  await putBack();
  expect(created.data).toEqual({ createRequest: { request: { filesUnknown: 10_000 } } });
});

const FILES = 'GET /tape_control/api/v1/files';

test.each([
  [
    'a target that is too long',
    `${FILES}?match=${'x'.repeat(20_000)} HTTP/1.1\r\n\r\n`,
    431,
    /^the request target and the headers must have at most \d+ bytes in total$/,
  ],
  [
    'two lengths',
    `${FILES} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n`,
    400,
    /^the request is not valid HTTP: /,
  ],
  ['a line that is not HTTP', 'nonsense\r\n\r\n', 400, /^the request is not valid HTTP: /],
])('%s is refused in the form of every error', async (_name, text, status, says) => {
  const [head = '', body = ''] = (await sendBytes(app, text)).split('\r\n\r\n');
  const { error } = JSON.parse(body)[0];
  expect(error).toMatch(says);
  expect(JSON.parse(body)).toEqual(errorBody(error));
  expect(head.split('\r\n')).toEqual([
    expect.stringMatching(new RegExp(`^HTTP/1.1 ${status} `)),
    'Content-Type: application/json',
    'Vary: Accept',
    `Content-Length: ${body.length}`,
    'Connection: close',
  ]);
});

const HEAD = `${FILES} HTTP/1.1\r\nHost: localhost\r\n`;

test.each([
  ['a second host', `${HEAD}host: example.org\r\n`, 'Host must be sent once'],
  ['a second host after a thousand headers', `${HEAD}${'a:\r\n'.repeat(1005)}host: b\r\n`, 'Host must be sent once'],
  ['a second token', `${HEAD}Authorization: a\r\nauthorization: b\r\n`, 'Authorization must be sent once'],
  [
    'a coding of the body',
    `${HEAD}Transfer-Encoding: gzip, chunked\r\n`,
    'Transfer-Encoding must be chunked, not "gzip, chunked"',
    '501 Not Implemented',
  ],
  ...['http://localhost:99999', 'ftp://localhost'].map((base) => [
    `a target at ${base}`,
    `GET ${base}/tape_control/api/v1/files HTTP/1.1\r\nHost: localhost\r\n`,
    `the target must be a path, or an http or https URL, not "${base}/tape_control/api/v1/files"`,
  ]),
])('%s is refused', async (_name, head = '', message, status = '400 Bad Request') => {
  const [start = '', body = ''] = (await sendBytes(app, `${head}Connection: close\r\n\r\n`)).split('\r\n\r\n');
  expect([start.split('\r\n')[0], JSON.parse(body)]).toEqual([`HTTP/1.1 ${status}`, errorBody(`${message}`)]);
});

test('an unknown Expect header is ignored', async () => {
  const answer = await sendBytes(
    app,
    `${FILES} HTTP/1.1\r\nHost: localhost\r\nExpect: wonders\r\nConnection: close\r\n\r\n`,
  );
  expect(answer).toMatch(/^HTTP\/1.1 200 OK\r\n[\s\S]*\[\{"count":2,/);
});
