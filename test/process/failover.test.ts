/**
 * A database of two servers. Gateways, commands and engines use the server that accepts writes, and follow the
 * promotion of the standby.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openRuntime, type Runtime } from '../../src/cli/connection/runtime.js';
import { readConfig } from '../../src/config/config.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { type Engine, startEngine } from '../../src/engine/runner.js';
import { queryOnce } from '../support/database.js';
import { type DatabasePair, startDatabasePair } from '../support/database-pair.js';
import { addQuota, addTaped } from '../support/factories.js';
import { holdReads } from '../support/held-reads.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cleanUp, type LocalServer, makeDataDir, runCli, serveHere } from '../support/process.js';
import { errorBody, makeRequest, post, readRequest } from '../support/rest.js';
import { isReady } from '../support/server.js';
import { waitFor } from '../support/wait.js';

let pair: DatabasePair;
let server: LocalServer;
let runtime: Runtime;
let engine: Engine;
let env: Record<string, string>;
let contents: Map<string, Uint8Array>;
const library = createMemoryLibrary();
const held = holdReads(library);

beforeAll(async () => {
  const dir = makeDataDir();
  pair = await startDatabasePair(dir, 'tapes');
  env = { DATABASE_URL: pair.url, DATA_DIR: path.join(dir, 'data'), DRIVES: '4', DEMO: 'off' };
  expect(await runCli(['migrate'], { env })).toMatchObject({ code: 0 });
  server = await serveHere(env);
  runtime = await openRuntime(readConfig({ ...env, LOG_LEVEL: 'fatal' }), 'schema');
  await runtime.ctx.events.open();
  await addQuota(runtime.ctx, 'alice', 10n ** 12n);
  const files = ['BEFORE', 'AMID', 'AMID2', 'AFTER'].flatMap((volume) =>
    Array.from({ length: 10 }, (_, n) => ({ path: `/over/${volume}/${n}`, volume, position: BigInt(n + 1) })),
  );
  contents = await addTaped(runtime.ctx, library, files);
});
afterAll(async () => {
  await engine?.stop();
  await runtime?.close();
  await cleanUp();
  await pair?.close();
});

const fields = (name: string) => ({ quota: 'alice', files: [`/failover/${name}`] });

const countRestored = () => runtime.ctx.db.prisma.tapeFile.count({ where: { stage: 'RESTORED' } });

/** Waits until a request completes. While no server accepts writes, queries fail and are repeated. */
const completes = (id: number) =>
  waitFor(`request ${id} to complete`, async () => {
    const look = runtime.ctx.db.prisma.request.findUnique({ where: { id } });
    return (await look.catch(() => null))?.state === 'COMPLETED';
  });

let kept: number;
let restoring: number;

test('the server that takes writes is found among several, whichever is named first', async () => {
  kept = await makeRequest(server, fields('kept'));
  expect(await readRequest(server, kept)).toMatchObject({ files: ['/failover/kept'] });
});

test('while no server takes writes gateways answer 503, and then continue with the standby', async () => {
  const { ctx } = runtime;
  restoring = await createRequest(ctx, { quota: 'alice', pattern: '/over/' });
  engine = await startEngine(ctx, library, { leaseSeconds: 5 });
  held.open('BEFORE');
  await waitFor('the first volume', async () => (await countRestored()) === 10);
  const running = () => ctx.db.prisma.recall.count({ where: { state: 'RUNNING' } });
  await waitFor('running recalls', async () => (await running()) >= 20);
  await pair.catchUp();
  await pair.primary.refuse();
  await waitFor('the gateway to notice', async () => !(await isReady(server)));
  await waitFor('the engine to notice', async () => !ctx.db.pulse.isAnswering);
  const away = errorBody('the database does not answer: try again later');
  expect(await post(server, fields('refused'))).toMatchObject({ status: 503, body: away });
  held.open('AMID'); // these reads end while the engine can record nothing
  await pair.promote();
  await waitFor('the gateway to be back', () => isReady(server));
  expect(await readRequest(server, kept)).toMatchObject({ files: ['/failover/kept'] });
  expect(await makeRequest(server, fields('after'))).toBeGreaterThan(restoring + 1_000_000);
  expect(server.stderr()).toContain('another server accepts writes now');
});

test('engines continue with the standby: no copy is lost or doubled, and nothing is written to the old server', async () => {
  const { ctx } = runtime;
  await waitFor('the engine to be back', async () => ctx.db.pulse.isAnswering);
  held.open();
  await completes(restoring);
  for (const [file, bytes] of contents) {
    expect(readFileSync(path.join(env.DATA_DIR ?? '', 'restore', file)).equals(bytes)).toBe(true);
  }
  const { rows } = await ctx.db.pool.query(
    `SELECT count(DISTINCT f.id)::int AS files, count(*)::int AS ends,
       (SELECT sum(used)::int FROM restore_disk) AS used, (SELECT sum(reserved)::int FROM restore_disk) AS reserved
     FROM tape_file f JOIN event e ON e.file_id = f.id AND e.to_stage = 'RESTORED'`,
  );
  expect(rows).toEqual([{ files: 40, ends: 40, used: 40_000, reserved: 0 }]);

  await pair.primary.accept(); // the old primary accepts writes again, but gets none
  await addTaped(ctx, library, [{ path: '/late/file', volume: 'LATE' }]);
  await completes(await createRequest(ctx, { quota: 'alice', pattern: '/late/' }));
  const seen = await queryOnce(
    pair.primary.through({ user: 'postgres', database: 'tapes' }),
    `SELECT count(*) FILTER (WHERE stage = 'RESTORED')::int AS restored, count(*) FILTER (WHERE path LIKE '/late/%')::int AS late
     FROM tape_file`,
  );
  expect(seen).toEqual([{ restored: 10, late: 0 }]);
});

test('if two servers take writes, no command starts: writes to the one that was cut off would be lost', async () => {
  const { code, stderr } = await runCli(['quota', 'list'], { env });
  const expected = /only one server may accept writes, but several do: 127\.0\.0\.1:\d+ and 127\.0\.0\.1:\d+/;
  expect([code, stderr]).toEqual([1, expect.stringMatching(expected)]);
  await pair.primary.refuse();
  expect(await runCli(['quota', 'list'], { env })).toMatchObject({ code: 0 });
  await makeRequest(server, fields('still'));
  expect((await server.stop()).code).toBe(0);
});
