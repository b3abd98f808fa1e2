/** `tapegate status` of a site of real processes: who lives, of which version, how far behind, and who was killed. */
import { hostname } from 'node:os';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { cleanUp, kill, runCli, serveHere, startCli, startServer, stop } from '../support/process.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
});
afterEach(cleanUp);
afterAll(async () => {
  await app.close();
});

interface Told {
  kind: string;
  host: string;
  pid: number;
  version: string;
  startedAt: string;
  seenAt: string;
  isAlive: boolean;
  lagSeconds: number;
}

const env = () => ({ DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, TAPEGATE_TOKEN: app.token });

interface Status {
  processes: Told[];
  /** Null where a table of it is locked. */
  kept: { kind: string; days: number; rows: number | null; bytes: number; oldest: string | null }[] | null;
}

/** As a script reads it. */
async function readStatus(gateway: { url: string }): Promise<Told[]> {
  return (await readAll(gateway)).processes;
}

async function readAll(gateway: { url: string }): Promise<Status> {
  const { code, stdout, stderr } = await runCli(['status', '--json'], { env: { ...env(), TAPEGATE_URL: gateway.url } });
  expect([code, stderr]).toEqual([0, '']);
  return JSON.parse(stdout) as Status;
}

const ofProcess = (all: readonly Told[], { pid }: { pid: number }) => all.find((each) => each.pid === pid);

/** Waits until the status of a process is as it is wanted. */
async function waitForStatus(what: string, from: { url: string }, of: { pid: number }, isIt: (told: Told) => boolean) {
  return await waitFor(
    what,
    async () => {
      const told = ofProcess(await readStatus(from), of);
      return told && isIt(told) && told;
    },
    60_000,
  );
}

/** As if it had said nothing for a minute; one that lives says something within ten seconds. */
const silence = async ({ pid }: { pid: number }) =>
  await app.ctx.db.pool.query(
    `UPDATE running_process SET seen_at = seen_at - interval '1 minute' WHERE pid = ${Number(pid)}`,
  );

test('gateways and engines are told of with their versions while they live, and one that was killed as silent', async () => {
  const first = { ...(await serveHere({ ...env(), REQUEST_DAYS: '7' })), pid: process.pid };
  const second = await startServer('serve', { env: env() });
  const engine = startCli(['work'], { env: { ...env(), TAPE_BACKEND: 'memory' } });
  await waitForStatus('the engine', first, engine, () => true);
  const all = await readStatus(second);
  const expected = { host: hostname(), version: '0.1.0', isAlive: true, lagSeconds: expect.any(Number) };
  const times = { startedAt: expect.stringMatching(/Z$/), seenAt: expect.stringMatching(/Z$/) };
  expect([...all].sort((a, b) => a.pid - b.pid)).toEqual(
    [
      { ...expected, ...times, kind: 'GATEWAY', pid: first.pid },
      { ...expected, ...times, kind: 'GATEWAY', pid: second.pid },
      { ...expected, ...times, kind: 'ENGINE', pid: engine.pid },
    ].sort((a, b) => a.pid - b.pid),
  );

  await kill(engine);
  for (const each of [engine, second]) await silence(each);
  await waitForStatus('the gateway to say that it lives', first, second, ({ isAlive }) => isAlive);
  expect(ofProcess(await readStatus(first), engine)).toMatchObject({ isAlive: false });
  const table = await runCli(['status'], { env: { ...env(), TAPEGATE_URL: first.url } });
  expect(table.stdout).toMatch(new RegExp(`^engine +\\S+ +${engine.pid} +0\\.1\\.0 +silent `, 'm'));
  expect(table.stdout).toMatch(new RegExp(`^gateway +\\S+ +${second.pid} +0\\.1\\.0 +lives +0\\.\\d s `, 'm'));

  const kept = (await readAll(first)).kept ?? [];
  expect(kept.map(({ kind, days }) => [kind, days])).toEqual([
    ['REQUESTS', 7],
    ['EVENTS', 30],
    ['MAIL', 7],
    ['AUDIT', 400],
    ['WEBHOOK_MESSAGES', 30],
    ['CURVES', 90],
  ]);
  expect(kept.find(({ kind }) => kind === 'AUDIT')).toMatchObject({
    bytes: expect.any(Number),
    oldest: expect.stringMatching(/^2\d{3}-.*Z$/), // of the token by which the test comes in
  });
  expect(kept.every(({ bytes }) => bytes > 0)).toBe(true);
  expect(table.stdout).toMatch(/^KEPT +FOR +ROWS +SIZE +SINCE\n(.*\n)*audit +400 days +\S+ +[\d.]+ \wB +\d{4}-/m);

  expect((await stop(second)).code).toBe(0);
  expect(ofProcess(await readStatus(first), second)).toBeUndefined(); // it has ended in good order
}, 180_000);

test('a process that cannot read what happens tells by how much it is behind, and that it is not any more', async () => {
  const gateway = { ...(await serveHere(env())), pid: process.pid };
  await waitForStatus('the gateway', gateway, gateway, ({ lagSeconds }) => lagSeconds === 0);
  const client = await app.ctx.db.pool.connect();
  try {
    await client.query('BEGIN');
    await client.query('LOCK TABLE event_batch IN ACCESS EXCLUSIVE MODE');
    await app.ctx.db.pool.query("SELECT pg_notify('tapegate', 'event')");
    const behind = await waitForStatus('it to be behind', gateway, gateway, ({ lagSeconds }) => lagSeconds > 1);
    expect(behind.isAlive).toBe(true);
    expect((await readAll(gateway)).kept).toBeNull(); // and what can be told is told
  } finally {
    await client.query('ROLLBACK');
    client.release();
  }
  await waitForStatus('it to be up to date', gateway, gateway, ({ lagSeconds }) => lagSeconds === 0);
}, 180_000);
