/**
 * A real Prometheus, if installed, reads the metrics under load, with the alerts of deploy/. SCRAPE_MINUTES prolongs
 * the load.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { setDisk } from '../../src/domain/disks/disks.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { readMetrics } from '../support/metrics.js';
import { cleanUp } from '../support/process.js';
import { type Prometheus, RULES, startPrometheus } from '../support/prometheus.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { findProgram } from '../support/run-example.js';
import { readSuspensions } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

const has = (program: string) => findProgram(program) !== undefined;
const LOAD_MS = Number(process.env.SCRAPE_MINUTES ?? 0) * 60_000;

afterAll(cleanUp);

/** Starts two clients that send one request after another. */
function startLoad({ api, url }: TestApp): { stop(): Promise<number> } {
  let isOver = false;
  let answered = 0;
  const ask = async () => {
    while (!isOver) {
      const places = [`${api}/requests`, `${api}/quota/alice`, `${url}/graphql?query={tapeFiles{totalCount}}`];
      for (const place of places) await (await fetch(place)).arrayBuffer();
      answered += places.length;
    }
  };
  const clients = Promise.all([ask(), ask()]);
  return {
    stop: async () => {
      isOver = true;
      await clients;
      return answered;
    },
  };
}

/** Removes the delays of alert rules. */
const atOnce = (rules: string) => rules.replace(/^( +for:) .*$/gm, '$1 0s').replace('> 3600', '> 1');

test.skipIf(!has('prometheus'))(
  'a real Prometheus reads the metrics under load, and alerts fire for a drive, a disk and mail',
  { timeout: 180_000 + LOAD_MS },
  async () => {
    const library = createMemoryLibrary();
    const never = new Promise<never>(() => {});
    const app = await startApp({
      library: {
        mount: (volume, drive, signal) => (volume === 'STUCK' ? never : library.mount(volume, drive, signal)),
      },
      config: { tapeTimeout: 1, smtpUrl: 'smtp://127.0.0.1:1' },
      engine: { measureMs: 500 },
    });
    let prometheus: Prometheus | undefined;
    let load: ReturnType<typeof startLoad> | undefined;
    try {
      await addQuota(app.ctx, 'alice', 10n ** 9n);
      await addTaped(app.ctx, library, [
        { path: '/fine/a', volume: 'FINE' },
        { path: '/hang/a', volume: 'STUCK' },
      ]);
      prometheus = await startPrometheus(app.url, atOnce);
      const { firing, query, faults } = prometheus;
      load = startLoad(app);
      await waitFor('nothing to be wrong', async () => {
        const seen = await query('tapegate_site_engines');
        return seen[0]?.value === 1 && (await firing()).length === 0;
      });
      const fine = await makeRequest(app, { quota: 'alice', files: ['/fine/a'], notify_on_last_file: 'a@b.example' });
      await waitForState(app, fine, 'COMPLETED');
      await makeRequest(app, { quota: 'alice', files: ['/hang/a'] });
      await waitFor('the drive to hang', async () => (await readSuspensions(app)).some(({ kind }) => kind === 'DRIVE'));
      const [{ used } = { used: 0n }] = (await app.ctx.db.pool.query<{ used: bigint }>('SELECT used FROM restore_disk'))
        .rows;
      await setDisk(app.ctx, { mountpoint: app.restoreDir, size: BigInt(used) + 1n });
      const wanted = ['TapegateDiskFills', 'TapegateDriveHangs', 'TapegateMailStuck'];
      const ours = async () => (await firing()).filter((name) => wanted.includes(name));
      await expect.poll(ours, { timeout: 60_000, interval: 500 }).toEqual(wanted);
      const fired = await firing();
      expect(fired).not.toContain('TapegateDown');
      expect(fired).not.toContain('TapegateErrors');
      const until = performance.now() + LOAD_MS;
      await waitFor('the load to have gone on', async () => performance.now() >= until, LOAD_MS + 10_000);
      const answered = await load.stop();
      const [counted] = await query('sum(tapegate_http_request_seconds_count{route!="/metrics"})');
      const [up] = await query('min_over_time(up[10m])');
      const [series] = await query('scrape_samples_scraped');
      console.log(`${answered} answers, ${series?.value} samples a scrape`);
      expect([await faults(), up?.value]).toEqual([[], 1]);
      expect(counted?.value).toBeGreaterThan(0.5 * answered);
      expect(series?.value).toBeLessThan(3000);
      if (has('promtool')) {
        expect(
          execFileSync('promtool', ['check', 'metrics'], { input: await readMetrics(app.url), encoding: 'utf8' }),
        ).toBe('');
      }
    } finally {
      await load?.stop();
      await prometheus?.close();
      await app.close();
    }
  },
);

test.skipIf(!has('promtool'))('promtool accepts the rules and the configuration of deploy/', () => {
  const told = execFileSync('promtool', ['check', 'rules', RULES], { encoding: 'utf8' });
  expect(told).toContain('SUCCESS');
  const config = path.join(packageRoot, 'deploy/prometheus/prometheus.yml');
  expect(execFileSync('promtool', ['check', 'config', '--syntax-only', config], { encoding: 'utf8' })).toContain(
    'SUCCESS',
  );
});

test('the dashboard and the rules use existing metrics', async () => {
  const app = await startApp();
  const text = await readMetrics(app.url);
  await app.close();
  const known = new Set(
    [...text.matchAll(/^# TYPE (\w+) (\w+)$/gm)].flatMap(([, name = '', type]) =>
      type === 'histogram' ? ['_bucket', '_count', '_sum'].map((end) => name + end) : [name],
    ),
  );
  const board = readFileSync(path.join(packageRoot, 'deploy/grafana/tapegate.json'), 'utf8');
  const asked =
    `${board}\n${readFileSync(RULES, 'utf8')}`.match(/\b(tapegate|process|nodejs)_[a-z0-9_]+[a-z0-9]\b/g) ?? [];
  expect(asked.length).toBeGreaterThan(50);
  expect([...new Set(asked)].filter((name) => !known.has(name))).toEqual([]);
});
