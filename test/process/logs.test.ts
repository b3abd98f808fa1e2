/** What the log tells: the life of a request by its id, answers where that is wanted, and by which id each of them is known. */
import { pino } from 'pino';
import { afterEach, expect, test } from 'vitest';
import { cancelRequest } from '../../src/operations/requests/ends.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp, type TestAppOptions } from '../support/app.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

type Line = Record<string, unknown> & { msg: string };

let app: TestApp;
let lines: Line[];
afterEach(() => app.close());

async function startLogged(options: TestAppOptions, level = 'info'): Promise<void> {
  lines = [];
  const log = pino({ level, base: null }, { write: (text: string) => void lines.push(JSON.parse(text)) });
  app = await startApp({ ...options, log });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
}

const linesOf = (request: number) => lines.filter((line) => line.request === request).map(({ msg }) => msg);
const find = (msg: RegExp) => lines.find((line) => msg.test(line.msg));

test('a request is followed from its making to its end, and its recalls by drive and volume', async () => {
  const backend = createMemoryBackend();
  await startLogged({ backend });
  await addTaped(app.ctx, backend, [
    { path: '/a/1', volume: 'V1' },
    { path: '/a/2', volume: 'V1' },
  ]);
  const id = await makeRequest(app, { quota: 'alice', files: ['/a/1', '/a/2'] });
  await waitForState(app, id, 'COMPLETED');
  await cancelRequest(app.ctx, id);
  const told = linesOf(id);
  expect(told.toSorted()).toEqual(
    [
      'request cancelled',
      'request finished',
      'request has its first file',
      'request made',
      'request started',
    ].toSorted(),
  );
  expect(told[0]).toBe('request made');
  expect(told.at(-1)).toBe('request cancelled');
  expect(find(/request made/)).toMatchObject({ files: 2, xRequestId: expect.stringMatching(/^[\w-]{36}$/) });
  expect(find(/request finished/)).toMatchObject({ state: 'COMPLETED', filesTotal: 2, filesOnDisk: 2, filesFailed: 0 });
  expect(find(/recalls started/)).toMatchObject({
    drive: expect.stringMatching(/^drive-/),
    volume: 'V1',
    first: '/a/1',
  });
});

test('a recall that fails says which file, volume and drive it was', async () => {
  const backend = createMemoryBackend();
  await startLogged({ backend });
  await addTaped(app.ctx, backend, [{ path: '/a/1', volume: 'V1' }]);
  await app.ctx.db.pool.query("UPDATE tape_file SET checksum = 'adler32:00000001'");
  const id = await makeRequest(app, { quota: 'alice', files: ['/a/1'] });
  const line = await waitFor('the failure', async () => find(/^recall failed/));
  const [{ id: file } = { id: 0n }] = (await app.ctx.db.pool.query<{ id: bigint }>('SELECT id FROM tape_file')).rows;
  const at = { drive: expect.stringMatching(/^drive-/), volume: 'V1', path: '/a/1', file: String(file) };
  expect(line).toMatchObject({ ...at, errorClass: 'MEDIA' });
  await cancelRequest(app.ctx, id);
});

test('a request that expires says so', async () => {
  let now = '2030-01-01T00:00:00';
  await startLogged({ now: () => now, backend: createMemoryBackend() });
  await addFiles(app.ctx, [{ path: '/a/1', stage: 'ONDISK' }]);
  const id = await makeRequest(app, { quota: 'alice', files: ['/a/1'], retention: '2030-01-02' });
  now = '2030-01-03T00:00:00';
  await waitFor('its end', async () => linesOf(id).includes('request expired'));
});

test('an answer has the id of its request, or a new one where that could not stand in a log', async () => {
  await startLogged({});
  const idOf = async (given?: string) => {
    const headers: Record<string, string> = given === undefined ? {} : { 'X-Request-Id': given };
    return (await fetch(`${app.api}/requests`, { headers })).headers.get('x-request-id') ?? '';
  };
  expect(await idOf('job-7/step:1@cern')).toBe('job-7/step:1@cern');
  const made = await idOf();
  expect(made).toMatch(/^[\da-f]{8}-[\da-f-]{27}$/);
  for (const bad of ['two words', 'x'.repeat(129), '{"a":1}', ''])
    expect(await idOf(bad)).toMatch(/^[\da-f]{8}-[\da-f-]{27}$/);
  const missing = await fetch(`${app.url}/nothing`, { headers: { 'X-Request-Id': 'mine' } });
  expect([missing.status, missing.headers.get('x-request-id')]).toEqual([404, 'mine']);
  expect(lines.filter(({ msg }) => msg === 'answered')).toEqual([]);
});

test('what goes wrong within the program is logged with the id of the request, on both ways', async () => {
  await startLogged({});
  await app.ctx.db.pool.query('ALTER TABLE quota RENAME TO quota_away');
  const headers = { 'X-Request-Id': 'lost-1', 'Content-Type': 'application/json' };
  expect((await fetch(`${app.api}/requests`, { headers })).status).toBe(500);
  const body = JSON.stringify({ query: '{ quotas { totalCount } }' });
  await fetch(`${app.url}/graphql`, { method: 'POST', headers, body });
  await app.ctx.db.pool.query('ALTER TABLE quota_away RENAME TO quota');
  const told = lines.filter(({ xRequestId }) => xRequestId === 'lost-1').map(({ msg }) => msg);
  expect(told).toEqual([expect.stringMatching(/^REST: /), expect.stringMatching(/^GraphQL: /)]);
});

test('with ACCESS_LOG each answer has a line, without what is behind the path', async () => {
  await startLogged({
    config: { telemetry: { metricsPort: undefined, metricsHost: '127.0.0.1', accessLog: true, traces: false } },
  });
  await fetch(`${app.api}/quota/alice?token=secret`, { headers: { 'X-Request-Id': 'mine' } });
  const line = await waitFor('the line', async () => find(/^answered/));
  expect(line).toMatchObject({
    method: 'GET',
    path: '/tape_control/api/v1/quota/alice',
    route: '/tape_control/api/v1/quota/{user}',
    status: 200,
    address: '127.0.0.1',
    xRequestId: 'mine',
    ms: expect.any(Number),
  });
  expect(JSON.stringify(line)).not.toContain('secret');
});
