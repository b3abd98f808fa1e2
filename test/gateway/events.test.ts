/** Events are in the order of their commits, and are removed after their retention. */
import pg from 'pg';
import { expect, test, vi } from 'vitest';
import { addSeconds } from '../../src/core/time.js';
import { ADVISORY_SPACE, advisoryKeys } from '../../src/db/locks.js';
import { openDatabase } from '../../src/db/pools.js';
import { sql } from '../../src/db/sql.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { updateRequest } from '../../src/domain/requests/update.js';
import { pruneEvents } from '../../src/domain/site/pruning.js';
import { type AnyEvent, isStageEvent, type ProgressEvent } from '../../src/events/event-table.js';
import { recordMoves } from '../../src/events/event-writes.js';
import { addFiles, addQuota } from '../support/factories.js';
import { whileLocked } from '../support/locks.js';
import { recordStatements } from '../support/statements.js';
import {
  CHANGES,
  type Changes,
  drain,
  PROGRESS,
  type Progress,
  take,
  transports,
  waitForReaders,
} from '../support/streams.js';
import { transaction } from '../support/transaction.js';
import { useApp } from '../support/use-app.js';
import { createGate, waitFor } from '../support/wait.js';

const app = useApp({}, async () => {
  await addQuota(app.ctx, 'alice', 10n ** 12n);
});

const [[, open]] = transports as [(typeof transports)[0]];

async function addFile(path: string): Promise<bigint> {
  await addFiles(app.ctx, [{ path }]);
  const { rows } = await app.ctx.db.pool.query<{ id: bigint }>('SELECT id FROM tape_file WHERE path = $1', [path]);
  return rows[0]?.id ?? 0n;
}

/** Writes events of a file in a transaction, which commits when `commit` is called. */
function startWriter(file: bigint, copies = 1) {
  const [written, gate] = [createGate(), createGate()];
  const done = transaction(app.ctx.db.pool, async (tx) => {
    if (copies === 1) recordMoves(app.ctx, tx, [file], { from: 'ONTAPE', to: 'RESTORING' });
    else {
      await tx.query(sql`INSERT INTO event (at, file_id, from_stage, to_stage, request_ids)
        SELECT now(), ${file}, 'ONTAPE', 'RESTORING', '{}' FROM generate_series(1, ${copies}::int)`);
    }
    tx.beforeCommit('wait', async () => {
      written.open();
      await gate.opened;
    });
  });
  return { written: written.opened, commit: gate.open, done };
}

test('notifications and the check of the database share one connection, and heartbeats and new events use the pool', async () => {
  const { db } = app.ctx;
  await write(await addFile('/connections/1'));
  await db.vitalRows(sql`SELECT`);
  const sessions = sql`SELECT FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'`;
  const { rowCount } = await db.pool.query(sessions);
  expect(rowCount).toBe(1 + db.pool.totalCount + db.streamPool.totalCount + db.importPool.totalCount);
  expect(db.vitalPool.totalCount).toBe(0);
});

test('a database that is closed while its check connects keeps no connection', async () => {
  const { config, pool } = app.ctx.db;
  const db = openDatabase({ ...config, application_name: 'closed early' }, { log: app.ctx.log });
  db.pulse.follow();
  await db.close();
  await waitFor('no connection', async () => {
    const { rowCount } = await pool.query(`SELECT FROM pg_stat_activity WHERE application_name = 'closed early'`);
    return rowCount === 0;
  });
});

test('a server that refuses to listen, such as a standby, is checked on one connection, which listens later', async () => {
  const { config, pool } = app.ctx.db;
  const query = pg.Client.prototype.query as (this: pg.Client, ...given: unknown[]) => unknown;
  const clients: pg.Client[] = [];
  const refusal = `DO $$ BEGIN RAISE SQLSTATE '25006' USING MESSAGE = 'cannot execute LISTEN during recovery'; END $$`;
  const spy = vi.spyOn(pg.Client.prototype, 'query').mockImplementation(function (
    this: pg.Client,
    ...given: unknown[]
  ) {
    const isListen = (given[0] as pg.QueryConfig | undefined)?.text?.includes('LISTEN tapegate');
    if (isListen) clients.push(this);
    return query.apply(this, isListen && clients.length < 2 ? [refusal] : given) as never;
  });
  const db = openDatabase(config, { log: app.ctx.log });
  try {
    const beats = vi.fn(async () => {});
    db.pulse.onBeat = beats;
    const notified = vi.fn();
    const begun = vi.fn();
    await db.pulse.start();
    await db.pulse.listen({ onBegin: begun, onNotification: notified, onEnd: () => {} });
    await waitFor('the connection to listen', async () => begun.mock.calls.length > 0);
    expect([clients.length, new Set(clients).size]).toEqual([2, 1]);
    expect(beats.mock.calls.length).toBeLessThan(4);
    await pool.query(`SELECT pg_notify('tapegate', 'once')`);
    await waitFor('the notification', async () => notified.mock.calls.some(([payload]) => payload === 'once'));
    expect(notified.mock.calls.filter(([payload]) => payload === 'once')).toHaveLength(1);
  } finally {
    spy.mockRestore();
    await db.close();
  }
});

test('heartbeats do not wait for a connection of the pool', async () => {
  const { db } = app.ctx;
  const clients = await Promise.all(Array.from({ length: db.pool.options.max }, () => db.pool.connect()));
  try {
    expect(await db.vitalRows(sql`SELECT 1::int AS one`)).toEqual([{ one: 1 }]);
  } finally {
    for (const client of clients) client.release();
  }
});

async function write(file: bigint): Promise<void> {
  const writer = startWriter(file);
  writer.commit();
  await writer.done;
}

const told = (results: Changes[]) => results.map(({ stageChanges }) => stageChanges.path);
const idsOf = (results: Changes[]) => results.map(({ stageChanges }) => Number(stageChanges.eventId));

test('an open transaction delays no events of others, and its own events follow its commit', async () => {
  const [frozen, other] = [await addFile('/order/frozen'), await addFile('/order/other')];
  const after = Number(await app.ctx.events.newestId());
  const watch = () => open<Changes>(app, { query: CHANGES, variables: { match: '/order/', after } });
  const watching = watch();
  const writer = startWriter(frozen);
  await writer.written;
  await write(other);
  await write(other);
  const first = await take(watching, 2);
  const between = idsOf(first).at(-1);
  writer.commit();
  await writer.done;
  const second = await take(watching, 1);
  await write(other);
  const results = [...first, ...second, ...(await take(watching, 1))];
  expect(told(results)).toEqual(['/order/other', '/order/other', '/order/frozen', '/order/other']);
  expect(idsOf(results)).toEqual([...new Set(idsOf(results))].sort((a, b) => Number(a) - Number(b)));
  expect(idsOf(await take(watch(), 4))).toEqual(idsOf(results));
  const resumed = open<Changes>(app, { query: CHANGES, variables: { match: '/order/', after: between } });
  expect(told(await take(resumed, 2))).toEqual(['/order/frozen', '/order/other']);
});

test('a transaction with very many events delays no subscriptions to others', async () => {
  const many = 12_000;
  const [huge, small] = [await addFile('/huge/1'), await addFile('/small/1')];
  const id = await createRequest(app.ctx, { quota: 'alice', pattern: '/small/' });
  const before = app.ctx.events.readers;
  const progress = open<Progress>(app, { query: PROGRESS, variables: { id } });
  const after = await app.ctx.events.newestId();
  const changes = open<Changes>(app, { query: CHANGES, variables: { match: '/small/', after: Number(after) } });
  await take(progress, 1);
  const changing = take(changes, 2);
  await waitForReaders(app, before + 2);
  const relabel = () => updateRequest(app.ctx, { id, label: 'told again' });

  const writer = startWriter(huge, many);
  await writer.written;
  await write(small);
  await relabel();
  await take(progress, 1);
  writer.commit();
  await writer.done;
  let last = 0;
  const statements = await recordStatements(
    async () => {
      await write(small);
      await relabel();
      last = Number((await take(progress, 1))[0]?.requestProgress.eventId);
      expect(told(await changing)).toEqual(['/small/1', '/small/1']);
    },
    { isFeedToo: true },
  );
  expect(last).toBeGreaterThan(Number(after) + many);
  // each subscription reads only its own events, and numbering events does not rewrite them
  expect(statements.reduce((sum, { rows }) => sum + rows, 0)).toBeLessThan(many / 100);
  progress.close();
  changes.close();
});

test('a change that the initial state contains is not reported again, even if it was not yet numbered', async () => {
  const file = await addFile('/present/1');
  const numbering = new pg.Client(app.ctx.db.config);
  await numbering.connect();
  // commits a change just before the initial state is read, and prevents other connections from numbering the change
  const query = pg.Client.prototype.query as (...args: unknown[]) => unknown;
  type Asked = [question: { text?: string }, answer: (...given: unknown[]) => void];
  const isInitial = ([{ text }]: Asked) => text?.includes('unnumbered') === true;
  /** The statements that each client sends together, starting with BEGIN. */
  const waitingOf = new Map<pg.Client, Asked[]>();
  const send = (client: pg.Client, [question, answer]: Asked) => {
    const end = (...given: unknown[]) => void numbering.query('COMMIT').then(() => answer(...given));
    query.call(client, question, isInitial([question, answer]) ? end : answer);
  };
  const release = (client: pg.Client) => {
    const asked = waitingOf.get(client) ?? [];
    waitingOf.delete(client);
    const sendAll = () => {
      for (const each of asked) send(client, each);
    };
    if (!asked.some(isInitial)) return sendAll();
    spy.mockRestore();
    void writeUnseen().then(sendAll);
  };
  const spy = vi.spyOn(pg.Client.prototype, 'query').mockImplementation(function (this: pg.Client, ...args: unknown[]) {
    const asked = args as Asked;
    const waiting = waitingOf.get(this);
    if (waiting) return void waiting.push(asked);
    if (asked[0].text !== 'BEGIN' && !isInitial(asked)) return query.apply(this, args);
    waitingOf.set(this, [asked]);
    queueMicrotask(() => release(this));
    return undefined;
  } as never);
  const writeUnseen = async () => {
    await numbering.query('BEGIN');
    await numbering.query('SELECT pg_advisory_xact_lock($1, $2)', [ADVISORY_SPACE, advisoryKeys.eventNumbers]);
    await write(file);
  };
  const before = app.ctx.events.readers;
  const watching = open<Changes>(app, { query: CHANGES, variables: { match: '/present/' } });
  const [present] = await take(watching, 1);
  expect(present).toMatchObject({ stageChanges: { path: '/present/1', from: null } });
  await waitForReaders(app, before + 1);
  const held = await app.ctx.events.newestId();
  await write(file);
  const [next] = await take(watching, 1);
  expect(BigInt(next?.stageChanges.eventId ?? 0)).toBe(await app.ctx.events.newestId());
  expect(BigInt(present?.stageChanges.eventId ?? 0)).toBeLessThan(held);
  watching.close();
  await numbering.end();
});

const { signal } = new AbortController();
/** Runs the pruning job as if `days` had passed. */
async function pruneIn(days: number): Promise<void> {
  await pruneEvents({ ...app.ctx, now: () => addSeconds(app.ctx.now(), days * 24 * 3600) }, signal);
}

const countEvents = async () => {
  const { rows } = await app.ctx.db.pool.query(
    'SELECT (SELECT count(*)::int FROM event) AS events, (SELECT count(*)::int FROM event_batch) AS batches',
  );
  return rows[0];
};

test('old events are removed, and a client that resumes after one of them must start again', async () => {
  await addFiles(app.ctx, [{ path: '/history/1' }]);
  const id = await createRequest(app.ctx, { quota: 'alice', pattern: '/history/' });
  const middle = await app.ctx.events.newestId();
  await updateRequest(app.ctx, { id, label: 'told again' });
  const newest = await app.ctx.events.newestId();
  const watch = (after?: bigint) =>
    open<Progress>(app, { query: PROGRESS, variables: { id, after: after?.toString() } });

  await pruneIn(29);
  const early = watch(middle);
  expect((await take(early, 1))[0]?.requestProgress.eventId).toBe(String(newest));
  early.close();

  await pruneIn(31);
  expect(await countEvents()).toEqual({ events: 0, batches: 1 });
  const message = `events up to ${newest} are no longer stored, so a subscription cannot start after event ${middle}: subscribe without "after"`;
  expect(await drain(watch(middle))).toMatchObject([{ errors: [{ message, extensions: { code: 'EVENTS_GONE' } }] }]);
  const [resumed, anew] = [watch(newest), watch()];
  expect((await take(anew, 1))[0]?.requestProgress).toMatchObject({ state: 'QUEUED', eventId: String(newest) });
  await updateRequest(app.ctx, { id, label: 'told once more' });
  for (const stream of [resumed, anew]) {
    expect((await take(stream, 1))[0]?.requestProgress.eventId).toBe(String(newest + 1n));
    stream.close();
  }
});

/** Adds events of a request, in one batch. */
async function addEvents(requestId: number, count: number): Promise<void> {
  await app.ctx.db.pool.query(
    `INSERT INTO event (at, request_ids, request_id) SELECT now() AT TIME ZONE 'utc', '{}', $1 FROM generate_series(1, $2::int)`,
    [requestId, count],
  );
  await app.ctx.events.newestId();
}

test('a reader that leaves ends its search in old events', async () => {
  const newest = await app.ctx.events.newestId();
  await addEvents(1, 12_000);
  const left = new AbortController();
  let pages = 0;
  const filter = {
    accepts: (event: AnyEvent): event is ProgressEvent => !event,
    get condition() {
      pages++;
      left.abort();
      return sql`false`;
    },
  };
  const reader = app.ctx.events.follow(newest, filter, left.signal);
  expect(await reader.next()).toEqual({ done: true, value: undefined });
  expect(pages).toBe(1);
});

test('very many events are removed in small steps, and the job may stop after each', async () => {
  await addEvents(1, 12_000);
  const stopping = new AbortController();
  stopping.abort();
  const later = { ...app.ctx, now: () => addSeconds(app.ctx.now(), 31 * 24 * 3600) };
  await pruneEvents(later, stopping.signal);
  const statements = await recordStatements(() => pruneEvents(later, signal), { isFeedToo: true });
  expect(statements.filter(({ text }) => text.includes('DELETE FROM event WHERE')).length).toBeGreaterThanOrEqual(3);
  expect(await countEvents()).toEqual({ events: 0, batches: 1 });
});

/** Adds events, each in its own batch. */
async function addBatches(count: number): Promise<void> {
  await app.ctx.db.pool.query(
    `DO $$ BEGIN
       FOR n IN 1..${count} LOOP
         INSERT INTO event (at, request_ids, request_id) VALUES (now() AT TIME ZONE 'utc', '{}', 1);
       END LOOP;
     END $$`,
  );
  await app.ctx.events.newestId();
}

/** Starts the pruning job, and runs `work` while its first deletion waits for a lock. */
async function whileDeleting(work: (pruned: Promise<unknown>) => Promise<void>): Promise<void> {
  await whileLocked(app, 'LOCK TABLE event IN SHARE MODE', async (waiters) => {
    const pruned = Promise.allSettled([pruneIn(31)]);
    await waiters(1);
    await work(pruned);
  });
}

test('a later job removes the events that a killed job has marked', async () => {
  await addBatches(400);
  const killed = async (pruned: Promise<unknown>) => {
    await app.ctx.db.pool.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
    );
    await pruned;
  };
  await whileDeleting(killed);
  await whileDeleting(killed);
  await pruneIn(31);
  expect(await countEvents()).toEqual({ events: 0, batches: 1 });
});

test('while one engine removes events, another does not wait', async () => {
  await addBatches(400);
  let first: Promise<unknown> | undefined;
  await whileDeleting(async (pruned) => {
    first = pruned;
    const before = await countEvents();
    await pruneIn(31);
    expect(await countEvents()).toEqual(before);
  });
  await first;
  expect(await countEvents()).toEqual({ events: 0, batches: 1 });
});

const filter = {
  accepts: (event: AnyEvent): event is ProgressEvent => !isStageEvent(event),
  condition: sql`e.request_id IS NOT NULL`,
};

test.each([true, false])(
  'a slow reader gets EVENTS_GONE instead of a gap (of one request: %s)',
  async (isOfRequest) => {
    const requestId = await createRequest(app.ctx, { quota: 'alice', pattern: '/history/' });
    const after = await app.ctx.events.newestId();
    await addEvents(requestId, 9000);
    const newest = await app.ctx.events.newestId();
    const events = app.ctx.events.follow(after, isOfRequest ? { ...filter, requestId } : filter, signal);
    const told: bigint[] = [];
    const readSlowly = async () => {
      for await (const event of events) {
        told.push(event.id);
        if (told.length === 10) await pruneIn(31); // the subscription has read its first page
      }
    };
    const message = expect.stringContaining(`up to ${newest} `);
    await expect(readSlowly()).rejects.toMatchObject({ code: 'EVENTS_GONE', message });
    expect(told).toEqual(Array.from({ length: told.length }, (_, n) => after + 1n + BigInt(n)));
    expect(told.length).toBeLessThan(9000);
  },
);

test.each([true, false])(
  'a read from the middle of a batch repeats no event (of one request: %s)',
  async (isOfRequest) => {
    const requestId = await createRequest(app.ctx, { quota: 'alice', pattern: '/middle/' });
    const before = await app.ctx.events.newestId();
    await addEvents(requestId, 5);
    const events = app.ctx.events.follow(before + 2n, isOfRequest ? { ...filter, requestId } : filter, signal);
    const ids: bigint[] = [];
    for await (const { id } of events) if (ids.push(id) === 3) break;
    expect(ids).toEqual([before + 3n, before + 4n, before + 5n]);
  },
);
