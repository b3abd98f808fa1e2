/** Metrics of real processes: of a gateway with its engine, and of an engine alone. */
import { afterAll, expect, test } from 'vitest';
import { createDatabase } from '../support/database.js';
import { readMetrics, sampleOf, samplesOf } from '../support/metrics.js';
import { cleanUp, makeDataDir, type Running, runCli, startCli, startServer, stop } from '../support/process.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';

afterAll(cleanUp);

/** Returns the URL of the metrics from the log of a process. */
async function waitForListener(running: Running): Promise<string> {
  return await waitFor('the listener for metrics', async () => {
    const [, url] = /"url":"(http:[^"]+)\/metrics"/.exec(running.stderr()) ?? [];
    if (url === undefined && running.child.exitCode !== null) throw new Error(running.stderr());
    return url;
  });
}

test('a gateway counts the work of its engine processes, and TAPEGATE_METRICS_LISTEN needs no token', async () => {
  const env = { DATA_DIR: makeDataDir(), TAPEGATE_METRICS_LISTEN: '0', LOG_LEVEL: 'info', TAPEGATE_AUTH: 'token' };
  const server = await startServer('start', { env });
  const url = await waitForListener(server);
  const tokenOf = async (...args: string[]) => (await runCli(['token', 'create', ...args], { env })).stdout.trim();
  const asked = await runCli(['request', '--quota', 'alice', '--pattern', '/demo/ocean', '--watch'], { env });
  expect(asked.code).toBe(0);
  const text = await waitFor('all of it to be counted', async () => {
    const now = await readMetrics(url);
    const ended = samplesOf(now, 'tapegate_recalls_ended_total').filter(({ labels }) => labels.outcome === 'restored');
    return ended.reduce((sum, { value }) => sum + value, 0) === 24 && now;
  });
  const sum = (name: string) => samplesOf(text, name).reduce((all, { value }) => all + value, 0);
  expect(sum('tapegate_recalled_bytes_total')).toBe(24 * 1_500_000);
  expect(sum('tapegate_recalls_started_total')).toBe(24);
  expect(sampleOf(text, 'tapegate_recall_wait_seconds_count')).toBe(24);
  expect(sum('tapegate_drive_busy_seconds_total')).toBeGreaterThan(0);
  expect(sampleOf(text, 'tapegate_engine_processes', { part: 'drive' })).toBe(2);
  expect(sampleOf(text, 'tapegate_engine_processes', { part: 'jobs' })).toBe(1);
  expect(sampleOf(text, 'tapegate_job_seconds_count', { job: 'expire' })).toBeGreaterThan(0);
  expect(sampleOf(text, 'tapegate_hung_calls_total', { device: 'tape' })).toBe(0);
  // the endpoint of the gateway requires the token of a viewer
  const viewer = await tokenOf('prometheus', '--role', 'viewer');
  expect(sampleOf(await readMetrics(server.url, viewer), 'tapegate_recall_wait_seconds_count')).toBe(24);
  await expect(readMetrics(server.url)).rejects.toThrow('answered 401');
  expect(text + server.stderr()).not.toContain(viewer);
  expect((await fetch(`${url}/`)).status).toBe(404);
  expect((await fetch(`${url}/metrics`, { method: 'POST' })).status).toBe(405);
  expect((await stop(server)).code).toBe(0);
});

test('an engine alone listens at TAPEGATE_METRICS_LISTEN only, and reports a port that is taken', async () => {
  const database = await createDatabase();
  const env = { DATA_DIR: makeTempDir(), DATABASE_URL: database.url, LOG_LEVEL: 'info', DRIVES: '1' };
  const engine = startCli(['work'], { env: { ...env, TAPEGATE_METRICS_LISTEN: '0' } });
  const url = await waitForListener(engine);
  const failed = { drive: 'drive-1', outcome: 'failed', class: 'permanent' };
  const text = await waitFor('the engine to have a drive', async () => {
    const now = await readMetrics(url);
    return sampleOf(now, 'tapegate_recalls_ended_total', failed) !== undefined && now;
  });
  expect(sampleOf(text, 'tapegate_recalls_ended_total', failed)).toBe(0);
  expect(sampleOf(text, 'tapegate_engine_processes', { part: 'jobs' })).toBe(1);
  const ends = samplesOf(text, 'tapegate_engine_process_ends_total').filter(({ labels }) => labels.part === 'drive');
  expect(ends.map(({ labels, value }) => `${labels.reason} ${value}`).sort()).toEqual([
    'failed 0',
    'gone 0',
    'hung 0',
    'silent 0',
    'stopped 0',
  ]);
  expect(samplesOf(text, 'tapegate_http_requests_in_flight')).toEqual([]);
  const other = await runCli(['work'], { env: { ...env, TAPEGATE_METRICS_LISTEN: new URL(url).port } });
  expect(other).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('(TAPEGATE_METRICS_LISTEN): another process uses the port'),
  });
  expect((await stop(engine)).code).toBe(0);
  await database.drop();
});
