/** `tapegate status`: live processes of the site, their versions, and their lag. */
import { hostname } from 'node:os';
import { afterAll, expect, test, vi } from 'vitest';
import { BEAT_MS } from '../../src/domain/site/processes.js';
import { cleanUp, kill, type LocalServer, runCli, serveHere, startCli } from '../support/process.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

let gateway: LocalServer & { pid: number };
let env: Record<string, string>;

const app = useApp({}, async () => {
  env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, TAPEGATE_TOKEN: app.token, TAPEGATE_URL: app.url };
  const timer = globalThis.setInterval;
  // processes inside this test process send a heartbeat every 50 ms
  const quick = (run: () => void, ms?: number) => timer(run, ms === BEAT_MS ? 50 : ms);
  const spy = vi.spyOn(globalThis, 'setInterval').mockImplementation(quick as typeof setInterval);
  gateway = { ...(await serveHere(env)), pid: process.pid };
  spy.mockRestore();
});
afterAll(cleanUp);

interface ProcessStatus {
  pid: number;
  isAlive: boolean;
  lagSeconds: number;
}

interface Status {
  processes: ProcessStatus[];
}

async function readStatus(url = gateway.url): Promise<Status> {
  const { code, stdout, stderr } = await runCli(['status', '--json'], { env: { ...env, TAPEGATE_URL: url } });
  expect([code, stderr]).toEqual([0, '']);
  return JSON.parse(stdout);
}

async function readProcess({ pid }: { pid: number }): Promise<ProcessStatus | undefined> {
  return (await readStatus(app.url)).processes.find((each) => each.pid === pid);
}

async function waitForProcess(what: string, { pid }: { pid: number }, isIt: (status: ProcessStatus) => boolean) {
  return await waitFor(what, async () => {
    const status = await readProcess({ pid });
    return status && isIt(status) && status;
  });
}

test('status shows gateways and engines with their versions, and a killed engine as silent', async () => {
  const engine = startCli(['work'], { env });
  await waitForProcess('the engine', engine, () => true);
  const { processes } = await readStatus();
  const shown = {
    ...{ host: hostname(), version: '1.0.0', isAlive: true, lagSeconds: expect.any(Number) },
    ...{ startedAt: expect.stringMatching(/Z$/), seenAt: expect.stringMatching(/Z$/) },
  };
  expect(processes).toEqual([
    { ...shown, kind: 'ENGINE', pid: engine.pid },
    { ...shown, kind: 'GATEWAY', pid: gateway.pid },
  ]);

  await kill(engine);
  await app.ctx.db.pool.query("UPDATE running_process SET seen_at = seen_at - interval '1 minute'");
  await waitForProcess('the gateway to report that it is alive', gateway, ({ isAlive }) => isAlive);
  expect(await readProcess(engine)).toMatchObject({ isAlive: false });
  const { stdout } = await runCli(['status'], { env });
  expect(stdout).toMatch(new RegExp(`^engine +\\S+ +${engine.pid} +1\\.0\\.0 +silent `, 'm'));
  expect(stdout).toMatch(new RegExp(`^gateway +\\S+ +${gateway.pid} +1\\.0\\.0 +alive +0\\.\\d s `, 'm'));

  const successor = startCli(['work'], { env });
  await waitForProcess('its successor', successor, ({ isAlive }) => isAlive);
  expect(await readProcess(engine)).toBeUndefined();
});

test('a gateway that cannot read events reports how far it is behind, and when it has caught up', async () => {
  const client = await app.ctx.db.pool.connect();
  try {
    await client.query('BEGIN');
    await client.query('LOCK TABLE event_batch IN ACCESS EXCLUSIVE MODE');
    await app.ctx.db.pool.query("SELECT pg_notify('tapegate', 'event')");
    const behind = await waitForProcess('it to be behind', gateway, ({ lagSeconds }) => lagSeconds > 1);
    expect(behind.isAlive).toBe(true);
  } finally {
    await client.query('ROLLBACK');
    client.release();
  }
  await waitForProcess('it to be up to date', gateway, ({ lagSeconds }) => lagSeconds === 0);
});

test('a gateway that stops in good order is not shown any more', async () => {
  expect((await gateway.stop()).code).toBe(0);
  expect(await readProcess(gateway)).toBeUndefined();
});
