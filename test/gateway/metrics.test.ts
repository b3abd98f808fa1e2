/** Metrics for Prometheus: access, contents, and labels that callers cannot add. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { createToken } from '../../src/domain/access/tokens.js';
import { setDisk } from '../../src/domain/disks/disks.js';
import { routeOf } from '../../src/gateway/http/routes.js';
import { startApp, startBeside } from '../support/app.js';
import { createDatabase } from '../support/database.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askErrors } from '../support/graphql.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { readMetrics, sampleOf, samplesOf } from '../support/metrics.js';
import { RULES } from '../support/prometheus.js';
import { makeRequest } from '../support/rest.js';
import { findProgram } from '../support/run-example.js';
import { recordStatements } from '../support/statements.js';
import { startDatabaseRelay } from '../support/tcp-relay.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const app = useApp({}, async () => {
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addFiles(app.ctx, [
    { path: '/a/1', size: 700n, stage: 'ONTAPE' },
    { path: '/a/2', size: 300n, stage: 'ONTAPE' },
  ]);
  await setDisk(app.ctx, { mountpoint: '/mnt/a', size: 5000n });
});

test('requests are counted by route, and unknown paths and methods as other', async () => {
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  await fetch(`${app.api}/requests/${id}`);
  for (let n = 0; n < 3; n++) await fetch(`${app.url}/secret-${n}/of/alice?x=${n}`);
  await fetch(`${app.api}/quota/alice`, { method: 'PATCH' });
  const text = await readMetrics(app.url);
  const of = (method: string, route: string, status: string) =>
    sampleOf(text, 'tapegate_http_request_seconds_count', { method, route, status });
  expect(of('POST', '/tape_control/api/v1/requests', '2xx')).toBeGreaterThanOrEqual(1);
  expect(of('GET', '/tape_control/api/v1/requests/{id}', '2xx')).toBeGreaterThanOrEqual(1);
  expect(of('GET', 'other', '4xx')).toBeGreaterThanOrEqual(3);
  expect(of('other', '/tape_control/api/v1/quota/{user}', '4xx')).toBeGreaterThanOrEqual(1);
  expect(text).not.toMatch(/secret-|alice|\/a\/1/);
});

test('GraphQL documents that cannot be parsed or validated are counted as errors', async () => {
  const read = async () => sampleOf(await readMetrics(app.url), 'tapegate_errors_total', { class: 'GRAPHQL' }) ?? 0;
  const before = await read();
  for (const query of ['{ syntax error', '{ quota(user: "alice") { colour } }']) await askErrors(app, query);
  expect((await read()) - before).toBe(2);
});

test('the queue, the disks and the requests of the site are metrics', async () => {
  const value = async (name: string, labels: Record<string, string> = {}) =>
    sampleOf(await readMetrics(app.url), name, labels);
  await expect.poll(() => value('tapegate_site_queue_files', { state: 'waiting' })).toBe(2);
  expect(await value('tapegate_site_queue_bytes', { state: 'waiting' })).toBe(1000);
  expect(await value('tapegate_site_open_requests')).toBe(1);
  expect(await value('tapegate_site_engines')).toBe(0);
  expect(await value('tapegate_site_disk_size_bytes', { disk: '/mnt/a' })).toBe(5000);
  expect(await value('tapegate_site_disk_free_bytes')).toBeUndefined(); // no engine has measured the disk
  expect(await value('tapegate_site_mail_waiting')).toBe(0);
  expect(await value('tapegate_site_read_success')).toBe(1);
  expect(await value('tapegate_database_up')).toBe(1);
  const made = { operation: 'createRequest', result: 'DONE' };
  expect(await value('tapegate_operation_seconds_count', made)).toBeGreaterThan(0);
});

test('a disk that has no room, or too little room for a waiting recall, is full', async () => {
  const isFullAfter = async (change: string) => {
    await app.ctx.db.pool.query(change);
    const fresh = await startBeside(app, {}); // another gateway, which has not read the figures yet
    const value = sampleOf(await readMetrics(fresh.url), 'tapegate_site_disk_full', { disk: '/mnt/a' });
    await fresh.close();
    return value;
  };
  expect(await isFullAfter("UPDATE recall SET not_before = 'infinity'")).toBe(1);
  expect(await isFullAfter('UPDATE recall SET not_before = NULL')).toBe(0);
  expect(await isFullAfter('UPDATE restore_disk SET used = size')).toBe(1);
  expect(await isFullAfter('UPDATE restore_disk SET used = 0')).toBe(0);
});

test('counters of alerts, and of every outcome of a recall, exist before the first event', async () => {
  const fresh = await startApp({ library: createMemoryLibrary() });
  try {
    const ended = 'tapegate_recalls_ended_total';
    const seen = await waitFor('a claimed drive', async () => {
      const text = await readMetrics(fresh.url);
      return samplesOf(text, ended).length > 0 && text;
    });
    const withClass = ['failed', 'postponed', 'retry'].flatMap((outcome) =>
      ['media', 'permanent', 'policy', 'space', 'transient'].map((each) => `${outcome} ${each}`),
    );
    const others = ['existing', 'restored', 'returned', 'superseded'].map((outcome) => `${outcome} none`);
    const { drive } = samplesOf(seen, ended)[0]?.labels ?? {};
    const ofDrive = samplesOf(seen, ended).filter(({ labels }) => labels.drive === drive);
    // other tests of this process have counted recalls on drives of the same name
    const texts = ofDrive.map(({ labels }) => `${labels.outcome} ${labels.class}`);
    expect(texts.sort()).toEqual([...withClass, ...others].sort());
    const counters = [...readFileSync(RULES, 'utf8').matchAll(/\b(?:increase|rate)\((\w+)(?:\{(.*?)\})?\[/g)].map(
      ([, name = '', labels = '']) => ({
        name,
        labels: Object.fromEntries([...labels.matchAll(/(\w+)="(.*?)"/g)].map(([, key = '', of = '']) => [key, of])),
      }),
    );
    const missing = counters.filter(({ name, labels }) => sampleOf(seen, name, labels) === undefined);
    expect(counters.length).toBeGreaterThan(5);
    // each route has a counter of its own, and TapegateRequestsFail needs failures that continue for minutes
    expect(missing.filter(({ name }) => name !== 'tapegate_http_request_seconds_count')).toEqual([]);
  } finally {
    await fresh.close();
  }
});

test('concurrent scrapes share one query of the site', async () => {
  const fresh = await startBeside(app, {});
  const many = () => Promise.all(Array.from({ length: 10 }, () => readMetrics(fresh.url)));
  const asked = await recordStatements(many, { isFeedToo: true });
  await fresh.close();
  expect(asked.filter(({ text }) => text.includes('openRequests'))).toHaveLength(1);
});

test.skipIf(!findProgram('promtool'))('promtool finds no fault', async () => {
  const text = await readMetrics(app.url);
  expect(execFileSync('promtool', ['check', 'metrics'], { input: text, encoding: 'utf8' })).toBe('');
});

test('where callers must authenticate, viewers and operators may read metrics, and others may not', async () => {
  const closed = await startBeside(app, { config: { access: { ...app.ctx.config.access, auth: new Set(['token']) } } });
  const read = async (headers: Record<string, string> = {}) => {
    const answer = await fetch(`${closed.url}/metrics`, { headers });
    return [answer.status, (await answer.text()).includes('tapegate_http_request_seconds')];
  };
  try {
    expect(await read()).toEqual([401, false]);
    for (const role of ['VIEWER', 'OPERATOR', 'USER'] as const) {
      const { secret } = await createToken(app.ctx, { name: `a-${role}`, role });
      const expected = role === 'USER' ? [403, false] : [200, true];
      expect([role, ...(await read({ Authorization: `Bearer ${secret}` }))]).toEqual([role, ...expected]);
    }
  } finally {
    await closed.close();
  }
});

test('without its database a gateway still serves its own metrics', async () => {
  const database = await createDatabase();
  const relay = await startDatabaseRelay(database.connection);
  const lost = await startApp({ through: (connection) => relay.through(connection), database: { lostMs: 1000 } });
  try {
    expect(sampleOf(await readMetrics(lost.url), 'tapegate_site_read_success')).toBe(1);
    await relay.refuse();
    await expect.poll(async () => sampleOf(await readMetrics(lost.url), 'tapegate_database_up')).toBe(0);
  } finally {
    await relay.accept();
    await lost.close();
    await relay.close();
    await database.drop();
  }
});

test.each([
  ['/tape_control/api/v1/requests/7?x=1', '/tape_control/api/v1/requests/{id}'],
  ['/tape_control/api/v1/requests/', '/tape_control/api/v1/requests'],
  ['/tape_control/api/v1/requests/7/8', 'other'],
  ['/tape_rest/v1/stage/1b9d/cancel', '/tape_rest/v1/stage/{id}/cancel'],
  ['//webdav/a/b.nc', '/webdav/{path}'],
  ['/webdavx', 'other'],
  ['/graphql?query={a}', '/graphql'],
])('%s is counted as route %s', (target, route) => {
  expect(routeOf(target)).toBe(route);
});
