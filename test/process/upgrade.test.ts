/**
 * An upgrade without downtime to a version with one more migration. Old and new gateways and engines share a database
 * under load.
 */
import { randomBytes } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { type Balancer, startBalancer } from '../support/balancer.js';
import { createDatabase, queryOnce, type TestDatabase } from '../support/database.js';
import { makeNextProgram } from '../support/next-program.js';
import { takePort } from '../support/ports.js';
import { cleanUp, makeDataDir, type Running, runCli, startCli, startServer, stop } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { startLoad, watchToTheEnd } from '../support/rolling-load.js';
import { waitForEnd } from '../support/server.js';

const CLIENTS = 2;
const CALLS = 8;
/** Number of directories. One directory is requested before and after each exchange of engines. */
const DIRECTORIES = 5;

/** A schema change with which older versions still work. */
const MIGRATION = `ALTER TABLE "request" ADD COLUMN "next" TEXT NOT NULL DEFAULT 'made by an older version';
CREATE INDEX "request_next_idx" ON "request" ("next") WHERE "next" <> '';`;

afterAll(cleanUp);

test('an upgrade with old and new versions side by side fails no call, ends no subscription and restores everything', async () => {
  const next = { program: makeNextProgram(MIGRATION) };
  const database = await createDatabase();
  const dataDir = makeDataDir();
  const env = { DATABASE_URL: database.url, DATA_DIR: dataDir, LOG_LEVEL: 'warn', DRIVES: '1' };
  const run = async (args: string[]) => {
    const { code, stdout, stderr } = await runCli(args, { env });
    expect({ args, code, stderr }).toEqual({ args, code: 0, stderr: expect.any(String) });
    return stdout;
  };
  const startEngine = async (which = {}): Promise<Running> => {
    const engine = startCli(['work'], { env, ...which });
    await engine.waitForOutput(/engine is running/);
    return engine;
  };
  await fillArchive(run, database, dataDir);

  const ports = await Promise.all([takePort(), takePort()]);
  for (const { letGo } of ports) await letGo();
  const startGateway = (n: number, which = {}) =>
    startServer('serve', { env: { ...env, PORT: String(ports[n]?.port), TAPEGATE_LEAVE_SECONDS: '1' }, ...which });
  const gateways = await Promise.all([startGateway(0), startGateway(1)]);
  const balancer: Balancer = await startBalancer(ports.map(({ port }) => port));
  let engine = await startEngine();
  const ask = (directory: number) => makeRequest(balancer, { quota: 'alice', patterns: `/tape/${directory}/` });
  const asked = [await ask(1)];
  await run(['suspend', 'user', 'bob']);
  const watched = await makeRequest(balancer, { quota: 'bob', patterns: `/tape/${DIRECTORIES}/` });
  const watcher = watchToTheEnd(balancer, watched);
  const load = startLoad(balancer, CLIENTS);
  const exchange = async (n: number, which = {}) => {
    await load.more(CALLS);
    expect((await stop(gateways[n] as Running)).code).toBe(0);
    await load.more(CALLS); // served by the other gateway
    gateways[n] = await startGateway(n, which);
    await load.more(CALLS);
  };
  const exchangeEngine = async (which = {}) => {
    const started = await startEngine(which);
    asked.push(await ask(asked.length + 1));
    await stop(engine);
    engine = started;
  };

  await exchange(0, next); // migrates the database while the old gateway and engine run
  asked.push(await ask(2));
  await exchange(1); // the old version starts with the new schema
  await exchangeEngine(next);
  await exchangeEngine(); // downgrades the engine to the old version
  await exchange(1, next);

  const labels = await load.end();
  for (const id of asked) await waitForEnd(balancer, id);
  expect(await readLabels(database)).toEqual([...labels].sort());
  expect(labels.length).toBeGreaterThan(CALLS);
  await run(['cancel', String(watched)]);
  expect(await watcher).toBe('CANCELLED');
  expect(await run(['doctor'])).toContain('no findings');
  for (const each of [...gateways, engine]) expect((await stop(each)).code).toBe(0);
  await balancer.close();
  await database.drop();
});

async function fillArchive(
  run: (args: string[]) => Promise<string>,
  database: TestDatabase,
  dataDir: string,
): Promise<void> {
  const tree = path.join(dataDir, 'tree');
  for (let directory = 1; directory <= DIRECTORIES; directory++) {
    mkdirSync(path.join(tree, String(directory)), { recursive: true });
    for (let n = 0; n < 4; n++) writeFileSync(path.join(tree, String(directory), `${n}.nc`), randomBytes(100_000));
  }
  await run(['archive', tree, '--prefix', '/tape', '--new-library']);
  await run(['disk', 'add', path.join(dataDir, 'restore'), '--size', '1G', '--create']);
  await queryOnce(
    database.connection,
    `INSERT INTO quota ("user", size, email) SELECT u, 1e9, u || '@example.org' FROM unnest('{alice,bob}'::text[]) u`,
  );
}

async function readLabels(database: TestDatabase): Promise<unknown[]> {
  const rows = await queryOnce(database.connection, `SELECT label FROM request WHERE label LIKE 'client %'`);
  return rows.map(({ label }) => label).sort();
}
