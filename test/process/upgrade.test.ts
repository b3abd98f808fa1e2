/**
 * An upgrade without downtime, from the program before the latest migration (or `UPGRADE_FROM`): old and new gateways and engines side by side on one
 * database, one after the other exchanged under load, the old ones restarted in the middle.
 */
import { randomBytes } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { afterAll, expect, test } from 'vitest';
import { type Balancer, startBalancer } from '../support/balancer.js';
import { createDatabase, type TestDatabase } from '../support/database.js';
import { buildOldProgram, findOldCommit } from '../support/old-program.js';
import { takePort } from '../support/ports.js';
import { cleanUp, makeDataDir, type Running, runCli, startCli, startServer, stop } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { startLoad, watchToTheEnd } from '../support/rolling-load.js';
import { waitForEnd } from '../support/server.js';

const commit = findOldCommit();
if (commit === undefined) console.warn('this checkout has no history: no older program is run beside this one');

const CLIENTS = 6;
const WATCHERS = 4;
const CALLS = 40;
const FILES = 28;

afterAll(cleanUp);

test.skipIf(commit === undefined)(
  'an upgrade with old and new programs side by side fails no call, ends no watcher and restores everything',
  { timeout: 600_000 },
  async () => {
    const old = { program: buildOldProgram(commit ?? '') };
    const database = await createDatabase({ empty: true });
    const dataDir = makeDataDir();
    const env = { DATABASE_URL: database.url, DATA_DIR: dataDir, LOG_LEVEL: 'warn' };
    const run = async (args: string[], which = {}) => {
      const { code, stdout, stderr } = await runCli(args, { env, ...which });
      expect({ args, code, stderr }).toEqual({ args, code: 0, stderr: expect.any(String) });
      return stdout;
    };
    const startEngine = async (which = {}): Promise<Running> => {
      const engine = startCli(['work'], { env, ...which });
      await engine.waitForOutput(/engine is working/);
      return engine;
    };
    await fillArchive(run, old, dataDir);

    const ports = await Promise.all([takePort(), takePort()]);
    for (const { letGo } of ports) await letGo();
    const startGateway = (n: number, which = {}) =>
      startServer('serve', { env: { ...env, PORT: String(ports[n]?.port), LEAVE_SECONDS: '2' }, ...which });
    const gateways = [await startGateway(0, old), await startGateway(1, old)];
    const balancer: Balancer = await startBalancer(ports.map(({ port }) => port));
    let engine = await startEngine(old);
    const ask = (folder: string) => makeRequest(balancer, { quota: 'alice', patterns: `/tape/${folder}/` });
    const asked = [await ask('1')];
    const operator = { env: { ...env, TAPEGATE_URL: gateways[0]?.url ?? '' } };
    await run(['hold', 'user', 'bob'], operator);
    const watched = await makeRequest(balancer, { quota: 'bob', patterns: '/tape/7/' });
    const watchers = Array.from({ length: WATCHERS }, () => watchToTheEnd(balancer, watched));
    const load = startLoad(balancer, CLIENTS);
    const exchange = async (n: number, which = {}) => {
      await load.more(CALLS);
      expect((await stop(gateways[n] as Running)).code).toBe(0);
      await load.more(CALLS); // of the other one
      gateways[n] = await startGateway(n, which);
      await load.more(CALLS);
    };
    const exchangeEngine = async (which = {}) => {
      const next = await startEngine(which);
      asked.push(await ask(String(asked.length + 1)));
      await stop(engine);
      engine = next;
    };

    await exchange(0); // which brings the database to the new schema, under the old gateway and engine
    asked.push(await ask('2'));
    await exchange(1, old); // the old program, on the new schema
    await exchangeEngine(old);
    await exchangeEngine();
    await exchange(1);
    await exchangeEngine(old); // back, as who has doubts does
    await exchangeEngine();
    await exchange(0);

    const labels = await load.end();
    for (const id of asked) await waitForEnd(balancer, id);
    const made = await readLabels(database);
    expect(made).toEqual([...labels].sort());
    expect(labels.length).toBeGreaterThan(CALLS);
    await run(['cancel', String(watched)], operator);
    expect(await Promise.all(watchers)).toEqual(watchers.map(() => 'CANCELLED'));
    expect(await run(['doctor'])).toContain('nothing is wrong');
    for (const each of [...gateways, engine]) expect((await stop(each)).code).toBe(0);
    await balancer.close();
    await database.drop();
  },
);

/** By the old program, as a site has done that is upgraded now. */
async function fillArchive(
  run: (args: string[], which?: object) => Promise<string>,
  old: { program: string },
  dataDir: string,
): Promise<void> {
  await run(['migrate'], old);
  const tree = path.join(dataDir, 'tree');
  for (let n = 0; n < FILES; n++) {
    const folder = path.join(tree, String((n % 7) + 1));
    mkdirSync(folder, { recursive: true });
    writeFileSync(path.join(folder, `${n}.nc`), randomBytes(100_000));
  }
  await run(['archive', tree, '--prefix', '/tape', '--new-library'], old);
  await run(['disk', 'add', path.join(dataDir, 'restore'), '--size', '1G', '--create'], old);
  for (const user of ['alice', 'bob']) {
    await run(['quota', 'set', user, '--size', '1G', '--email', `${user}@example.org`], old);
  }
}

async function readLabels({ connection }: TestDatabase): Promise<string[]> {
  const client = new pg.Client(connection);
  await client.connect();
  const { rows } = await client.query(`SELECT label FROM request WHERE label LIKE 'client %'`);
  await client.end();
  return rows.map(({ label }) => label).sort();
}
