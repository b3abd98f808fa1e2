/** The log: events of a request with its id, failures, and one line per HTTP request if configured. */
import { pino } from 'pino';
import { beforeEach, expect, test } from 'vitest';
import { addSeconds } from '../../src/core/time.js';
import { cancelRequest } from '../../src/domain/requests/ends.js';
import { startBeside } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

type Line = Record<string, unknown> & { msg: string };

const lines: Line[] = [];
const clock = createClock();
const library = createMemoryLibrary();

const log = pino({ level: 'info', base: null }, { write: (text: string) => void lines.push(JSON.parse(text)) });
const app = useApp({ library, log, now: clock.now }, () => addQuota(app.ctx, 'alice', 10n ** 9n));

beforeEach(() => {
  lines.length = 0;
});

const linesOf = (request: number) => lines.filter((line) => line.request === request).map(({ msg }) => msg);
const find = (msg: RegExp) => lines.find((line) => msg.test(line.msg));

test('the log has each event of a request, with its id, and each recall with drive and volume', async () => {
  await addTaped(app.ctx, library, [
    { path: '/a/1', volume: 'V1' },
    { path: '/a/2', volume: 'V1' },
  ]);
  const id = await makeRequest(app, { quota: 'alice', files: ['/a/1', '/a/2'] });
  await waitForState(app, id, 'COMPLETED');
  await cancelRequest(app.ctx, id);
  const [first, ...others] = linesOf(id);
  const last = others.pop();
  expect([first, others.toSorted(), last]).toEqual([
    'request made',
    ['request finished', 'request started', 'the first file of the request is on disk'],
    'request cancelled',
  ]);
  expect(find(/request made/)).toMatchObject({ files: 2, xRequestId: expect.stringMatching(/^[\w-]{36}$/) });
  expect(find(/request finished/)).toMatchObject({ state: 'COMPLETED', filesTotal: 2, filesOnDisk: 2, filesFailed: 0 });
  expect(find(/recalls started/)).toMatchObject({
    drive: expect.stringMatching(/^drive-/),
    volume: 'V1',
    first: '/a/1',
  });
});

test('the log of a failed recall has the file, the volume and the drive', async () => {
  await addTaped(app.ctx, library, [{ path: '/b/1', volume: 'V2' }]);
  const { rows } = await app.ctx.db.pool.query<{ id: bigint }>(
    `UPDATE tape_file SET checksum = 'adler32:00000001' WHERE path = '/b/1' RETURNING id`,
  );
  const id = await makeRequest(app, { quota: 'alice', files: ['/b/1'] });
  const line = await waitFor('the failure', async () => find(/^recall failed/));
  const at = { drive: expect.stringMatching(/^drive-/), volume: 'V2', path: '/b/1', file: String(rows[0]?.id) };
  expect(line).toMatchObject({ ...at, errorClass: 'MEDIA' });
  await cancelRequest(app.ctx, id);
});

test('the log records that a request expires', async () => {
  await addFiles(app.ctx, [{ path: '/c/1', stage: 'ONDISK' }]);
  const retention = addSeconds(clock.now(), 60);
  const id = await makeRequest(app, { quota: 'alice', files: ['/c/1'], retention });
  clock.advance(120);
  await waitFor('its end', async () => linesOf(id).includes('request expired'));
});

test('a response has the X-Request-Id of its request, or a new one if that is malformed', async () => {
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
  expect(lines.filter(({ msg }) => msg === 'HTTP request completed')).toEqual([]);
});

test('an internal error is logged with the id of the request, in REST and GraphQL', async () => {
  await app.ctx.db.pool.query('ALTER TABLE quota RENAME TO quota_away');
  const headers = { 'X-Request-Id': 'lost-1', 'Content-Type': 'application/json' };
  expect((await fetch(`${app.api}/requests`, { headers })).status).toBe(500);
  const body = JSON.stringify({ query: '{ quotas { totalCount } }' });
  await fetch(`${app.url}/graphql`, { method: 'POST', headers, body });
  await app.ctx.db.pool.query('ALTER TABLE quota_away RENAME TO quota');
  const told = lines.filter(({ xRequestId }) => xRequestId === 'lost-1').map(({ msg }) => msg);
  expect(told).toEqual([expect.stringMatching(/^REST: /), expect.stringMatching(/^GraphQL: /)]);
});

test('with TAPEGATE_ACCESS_LOG each HTTP request has a line, without its query string', async () => {
  const telemetry = { accessLog: true, traces: false };
  const logging = await startBeside(app, { config: { telemetry } });
  await fetch(`${logging.api}/quota/alice?token=secret`, { headers: { 'X-Request-Id': 'mine' } });
  const line = await waitFor('the line', async () => find(/^HTTP request completed/));
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
  await logging.close();
});
