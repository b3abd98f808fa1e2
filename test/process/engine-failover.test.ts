/** A database that fails over to its standby while an engine is in the middle of restores. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readConfig } from '../../src/config.js';
import { type Engine, startEngine } from '../../src/engine/runner.js';
import { createRequest } from '../../src/operations/requests/create.js';
import { openRuntime, type Runtime } from '../../src/runtime.js';
import { backendNames } from '../../src/tape/index.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { type DatabasePair, startDatabasePair } from '../support/database-pair.js';
import { addQuota, addTaped } from '../support/factories.js';
import { holdReads } from '../support/held-reads.js';
import { cleanUp, makeDataDir, runCli } from '../support/process.js';
import { waitFor } from '../support/wait.js';

let pair: DatabasePair;
let runtime: Runtime;
let engine: Engine;
let dataDir: string;
let contents: Map<string, Uint8Array>;
const backend = createMemoryBackend();

beforeAll(async () => {
  const dir = makeDataDir();
  dataDir = path.join(dir, 'data');
  pair = await startDatabasePair(dir, 'tapes');
  const env = { DATABASE_URL: pair.url, DATA_DIR: dataDir, DRIVES: '4', LOG_LEVEL: 'fatal' };
  expect(await runCli(['migrate'], { env })).toMatchObject({ code: 0 });
  runtime = await openRuntime(readConfig(env, backendNames), 'schema');
  await runtime.ctx.events.open();
  await addQuota(runtime.ctx, 'alice', 10n ** 9n);
  const files = ['BEFORE', 'AMID', 'AMID2', 'AFTER'].flatMap((volume) =>
    Array.from({ length: 20 }, (_, n) => ({ path: `/over/${volume}/${n}`, volume, position: BigInt(n + 1) })),
  );
  contents = await addTaped(runtime.ctx, backend, files);
}, 120_000);
afterAll(async () => {
  await engine?.stop();
  await runtime?.close();
  await pair?.close();
  await cleanUp();
});

const countRestored = () => runtime.ctx.db.prisma.tapeFile.count({ where: { stage: 'RESTORED' } });
const isOver = async (id: number) =>
  (await runtime.ctx.db.prisma.request.findUnique({ where: { id } }))?.state === 'COMPLETED';
/** What is asked in vain while nobody takes writes is asked again. */
const patiently = (look: () => Promise<boolean>) => () => look().catch(() => false);

test('recalls go on at the server that takes over: nothing is lost, doubled or written to the old one', async () => {
  const { ctx } = runtime;
  const held = holdReads(backend);
  const id = await createRequest(ctx, { quota: 'alice', pattern: '/over/' });
  engine = await startEngine(ctx, backend, { leaseSeconds: 5 });
  held.open('BEFORE');
  await waitFor('the first volume', async () => (await countRestored()) === 20);
  await waitFor('reads in hand', async () => (await ctx.db.prisma.recall.count({ where: { state: 'RUNNING' } })) >= 40);
  await pair.catchUp();
  await pair.primary.refuse();
  await waitFor('the engine to notice', async () => !ctx.db.pulse.isAnswering);
  held.open('AMID'); // read while nobody can be told
  await pair.promote();
  await waitFor('the engine to be back', async () => ctx.db.pulse.isAnswering, 60_000);
  held.open();
  await waitFor(
    'the request to be complete',
    patiently(() => isOver(id)),
    90_000,
  );
  for (const [file, bytes] of contents) {
    expect(readFileSync(path.join(dataDir, 'restore', file)).equals(bytes)).toBe(true);
  }
  const { rows } = await ctx.db.pool.query<{ files: number; ends: number; used: bigint; reserved: bigint }>(
    `SELECT count(DISTINCT f.id)::int AS files, count(*)::int AS ends,
       (SELECT sum(used)::bigint FROM restore_disk) AS used, (SELECT sum(reserved)::bigint FROM restore_disk) AS reserved
     FROM tape_file f JOIN event e ON e.file_id = f.id AND e.to_stage = 'RESTORED'`,
  );
  const bytes = [...contents.values()].reduce((sum, { length }) => sum + BigInt(length), 0n);
  expect(rows).toEqual([{ files: 80, ends: 80, used: bytes, reserved: 0n }]);

  // the old one comes back, takes writes, and is given none
  await pair.primary.accept();
  await addTaped(ctx, backend, [{ path: '/late/file', volume: 'LATE' }]);
  const late = await createRequest(ctx, { quota: 'alice', pattern: '/late/' });
  await waitFor(
    'the late request',
    patiently(() => isOver(late)),
  );
  const old = new pg.Client(pair.primary.through({ user: 'postgres', database: 'tapes' }));
  await old.connect();
  const seen = await old.query(`SELECT count(*)::int AS restored FROM tape_file WHERE stage = 'RESTORED'`);
  const known = await old.query(`SELECT FROM tape_file WHERE path LIKE '/late/%'`);
  await old.end();
  expect([seen.rows, known.rowCount]).toEqual([[{ restored: 20 }], 0]);
}, 240_000);
