/**
 * Measures how fast one event reaches many watchers, and the server memory for each watcher. WATCHERS (default 2000)
 * clients in another process watch a request on event streams. ROUNDS (default 15) events are committed one by one. The
 * reference is a plain graphql-sse server that executes and sends the same payloads.
 *
 * Prints the delivery rate of an event, and the time from the commit until 99 % of the watchers have the event. Also
 * prints the time until all watchers are connected, and the memory of a watcher. Memory is heap and resident size after
 * garbage collection. The first fifth of the watchers connects before the first reading of memory.
 *
 * Each process needs a file descriptor for each watcher, and 200 more (`ulimit -Hn`).
 *
 * Usage: npm run compile && node dist/bench/watchers.js
 */
import { execFileSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from '../src/db/sql.js';
import { transaction } from '../src/db/transaction.js';
import type { Context } from '../src/domain/context.js';
import { setQuota } from '../src/domain/quotas/quotas.js';
import { createRequest } from '../src/domain/requests/create.js';
import { recordProgress } from '../src/events/event-writes.js';
import { inTurns, tellFigure } from './figures.js';
import { median, withBench } from './kit.js';
import { type Memory, type Part, startPart, type Told } from './watchers-parts.js';

const watchers = Number(process.env.WATCHERS ?? 2000);
const rounds = Number(process.env.ROUNDS ?? 15);
/** Number of watchers that connect before the first reading of memory: a fifth. */
const FIRST = Math.floor(watchers / 5);
/** File descriptors of a process besides the connections of watchers. */
const OTHER_DESCRIPTORS = 200;
/**
 * Pause before the last reading of memory. Meanwhile V8 releases memory that only the opening of connections needed.
 */
const REST_MS = 15_000;
/**
 * Minimum number of watchers for a comparison of resident size, which changes in steps too coarse for fewer watchers.
 */
const RESIDENT_FROM = 5000;

const DOCUMENT =
  'subscription ($id: Int!) { requestProgress(requestId: $id) { state filesTotal filesOnDisk filesFailed bytesTotal bytesOnDisk end { planned } at eventId } }';

interface Side {
  server: Part;
  load: Part;
  url: string;
  before: Memory;
  connectSeconds: number;
  /** 99th percentile of the delivery time of each event, in milliseconds from the commit. */
  p99: number[];
}

async function openSide(server: Part, id: number): Promise<Side> {
  const url = await server.ask<string>('open');
  const load = startPart('load');
  const query = new URLSearchParams({ query: DOCUMENT, variables: JSON.stringify({ id }) });
  const connect = (count: number) => load.ask<number>('connect', { url: `${url}/graphql?${query}`, count });
  // the first watchers make the server load and compile code, which is not memory of a watcher
  const firstSeconds = await connect(FIRST);
  const before = await server.ask<Memory>('memory');
  const connectSeconds = firstSeconds + (await connect(watchers - FIRST));
  return { server, load, url, before, connectSeconds, p99: [] };
}

async function closeSide({ server, load }: Side): Promise<void> {
  await load.close();
  await server.close();
}

/**
 * Measures the delivery of one event.
 * @param tell sends the event, and returns the time of sending
 * @returns watchers reached per second, from sending until the last watcher has the event
 */
async function round(side: Side, tell: () => Promise<number>): Promise<number> {
  await side.load.ask('expect');
  const at = await tell();
  const { last, p99 } = await side.load.ask<Told>('told');
  side.p99.push(p99 - at);
  return watchers / ((last - at) / 1000);
}

/** @returns the time just before the commit */
async function commitProgress(ctx: Context, id: number): Promise<number> {
  let at = 0;
  await transaction(ctx.db.pool, 'finishRecalls', async (tx) => {
    await tx.query(sql`UPDATE request SET files_on_disk = files_on_disk + 1 WHERE id = ${id}`);
    recordProgress(ctx, tx, [id]);
    tx.beforeCommit('bench', async () => {
      at = now();
    });
  });
  return at;
}

const now = () => performance.timeOrigin + performance.now();

function tellMemory(what: keyof Memory, ours: Side & { after: Memory }, plain: Side & { after: Memory }): void {
  const kB = (side: Side & { after: Memory }) => (side.after[what] - side.before[what]) / 1000 / (watchers - FIRST);
  const common = { unit: 'kB', beside: 'plain graphql-sse', isCost: true, bound: 1.3 };
  tellFigure({ work: `a watcher's memory (${what})`, ours: kB(ours), reference: kB(plain), ...common });
}

const descriptors = Number(execFileSync('sh', ['-c', 'ulimit -Hn'], { encoding: 'utf8' }));
if (descriptors < watchers + OTHER_DESCRIPTORS) {
  throw new Error(
    `${watchers} watchers need ${watchers + OTHER_DESCRIPTORS} descriptors a process, and there are ${descriptors}`,
  );
}
await withBench(async (ctx) => {
  await setQuota(ctx, { user: 'alice', size: 10n ** 12n });
  const id = await createRequest(ctx, { quota: 'alice', files: ['/bench/1', '/bench/2'] });
  await ctx.db.pool.query(sql`UPDATE request SET state = 'RESTORING', files_total = 1000000 WHERE id = ${id}`);
  const ours = await openSide(startPart('gateway', { DATA_DIR: ctx.config.dataDir }), id);
  await ours.load.ask('expect');
  await commitProgress(ctx, id);
  const { message } = await ours.load.ask<Told>('told');
  const plain = await openSide(startPart('plain', { MESSAGE: message }), id);
  try {
    const ways = {
      ours: () => round(ours, () => commitProgress(ctx, id)),
      plain: () => round(plain, () => plain.server.ask<number>('write')),
    };
    await inTurns(ways, 2); // warm-up, not measured
    for (const side of [ours, plain]) side.p99 = [];
    const rates = await inTurns(ways, rounds);
    const work = `one event to ${watchers.toLocaleString('en-US')} watchers`;
    const beside = 'plain graphql-sse';
    tellFigure({ work, ours: rates.ours.median, reference: rates.plain.median, beside, unit: '/s', bound: 0.8 });
    tellFigure({
      work: '… from commit, p99',
      ours: median(ours.p99),
      reference: 300,
      beside: 'bound',
      unit: 'ms',
      isCost: true,
      bound: 1,
    });
    console.log(`… from when it is written, p99, ${beside}: ${median(plain.p99).toFixed(0)} ms`);
    const connecting = { unit: 's', beside, isCost: true };
    tellFigure({
      work: 'until all are connected',
      ours: ours.connectSeconds,
      reference: plain.connectSeconds,
      ...connecting,
    });
    await sleep(REST_MS);
    const rested = { ours: await ours.server.ask<Memory>('memory'), plain: await plain.server.ask<Memory>('memory') };
    for (const what of watchers < RESIDENT_FROM ? (['heap'] as const) : (['heap', 'resident'] as const))
      tellMemory(what, { ...ours, after: rested.ours }, { ...plain, after: rested.plain });
    const mb = ({ peak, resident }: Memory) =>
      `${(resident / 1e6).toFixed(0)} MB, ${(peak / 1e6).toFixed(0)} at the peak`;
    console.log(`resident in all: ${mb(rested.ours)}; ${beside} ${mb(rested.plain)}`);
  } finally {
    await closeSide(ours);
    await closeSide(plain);
  }
});
