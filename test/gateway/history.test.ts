/** What is kept, and for how long. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sql } from '../../src/database/sql.js';
import { EventsGoneError } from '../../src/errors.js';
import { type AnyEvent, isStageEvent, type ProgressEvent } from '../../src/event-table.js';
import { createRequest } from '../../src/operations/requests/create.js';
import { pruneEvents } from '../../src/operations/requests/history.js';
import { updateRequest } from '../../src/operations/requests/update.js';
import { watchRequest } from '../../src/operations/requests/watch.js';
import { addSeconds } from '../../src/time.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { whileLocked } from '../support/locks.js';
import { recordStatements } from '../support/statements.js';
import { drain, PROGRESS, type Progress, take, transports } from '../support/streams.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
  await addQuota(app.ctx, 'alice', 10n ** 6n);
});
afterAll(() => app.close());

const { signal } = new AbortController();
const [[, open]] = transports as [(typeof transports)[0]];

/** As the pass does it so many days later. */
async function pruneIn(days: number): Promise<void> {
  await pruneEvents({ ...app.ctx, now: () => addSeconds(app.ctx.now(), days * 24 * 3600) }, signal);
}

const countEvents = async () => {
  const { rows } = await app.ctx.db.pool.query(
    'SELECT (SELECT count(*)::int FROM event) AS events, (SELECT count(*)::int FROM event_batch) AS batches',
  );
  return rows[0];
};

test('events go after their time, and who comes back after one of these is told to begin anew', async () => {
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
  const message = `the events up to ${newest} are kept no longer: begin again without after, not after ${middle}`;
  expect(await drain(watch(middle))).toMatchObject([{ errors: [{ message, extensions: { code: 'EVENTS_GONE' } }] }]);
  const [resumed, anew] = [watch(newest), watch()];
  expect((await take(anew, 1))[0]?.requestProgress).toMatchObject({ state: 'QUEUED', eventId: String(newest) });
  await updateRequest(app.ctx, { id, label: 'told once more' });
  for (const stream of [resumed, anew]) {
    expect((await take(stream, 1))[0]?.requestProgress.eventId).toBe(String(newest + 1n));
    stream.close();
  }
});

test('very many events go in small steps, of which each may be the last', async () => {
  await app.ctx.db.pool.query(
    `INSERT INTO event (at, request_ids, request_id) SELECT now() AT TIME ZONE 'utc', '{}', 1 FROM generate_series(1, 12000)`,
  );
  await app.ctx.events.newestId();
  const stopping = new AbortController();
  stopping.abort();
  const later = { ...app.ctx, now: () => addSeconds(app.ctx.now(), 31 * 24 * 3600) };
  await pruneEvents(later, stopping.signal);
  const statements = await recordStatements(() => pruneEvents(later, signal), { isFeedToo: true });
  expect(statements.filter(({ text }) => text.includes('DELETE FROM event WHERE')).length).toBeGreaterThanOrEqual(3);
  expect(await countEvents()).toEqual({ events: 0, batches: 1 });
});

/** Adds events, each in a batch of its own. */
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

/** Prunes as far as the first deletion of events, which waits while `work` runs. */
async function whileDeleting(work: (pruned: Promise<unknown>) => Promise<void>): Promise<void> {
  await whileLocked(app, 'LOCK TABLE event IN SHARE MODE', async (waiters) => {
    const pruned = Promise.allSettled([pruneIn(31)]);
    await waiters(1);
    await work(pruned);
  });
}

test('what a pass has marked that was killed goes with a later one', async () => {
  await addBatches(1200);
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

test('of two engines one prunes: the other neither waits for it nor takes any of it away', async () => {
  await addBatches(1200);
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

test('a reader that is slower than events are kept is told so, and gets no list with a gap', async () => {
  const id = await createRequest(app.ctx, { quota: 'alice', pattern: '/history/' });
  const filter = {
    accepts: (event: AnyEvent): event is ProgressEvent => !isStageEvent(event),
    condition: sql`e.request_id IS NOT NULL`,
  };
  for (const requestId of [undefined, id]) {
    const after = await app.ctx.events.newestId();
    await app.ctx.db.pool.query(
      `INSERT INTO event (at, request_ids, request_id) SELECT now() AT TIME ZONE 'utc', '{}', $1 FROM generate_series(1, 9000)`,
      [id],
    );
    const newest = await app.ctx.events.newestId();
    const leave = new AbortController();
    const events = app.ctx.events.follow(
      after,
      requestId === undefined ? filter : { ...filter, requestId },
      leave.signal,
    );
    const told: bigint[] = [];
    const readSlowly = async () => {
      for await (const event of events) {
        told.push(event.id);
        if (told.length === 10) await pruneIn(31); // it has had the first page
      }
    };
    await expect(readSlowly()).rejects.toMatchObject({
      code: 'EVENTS_GONE',
      message: expect.stringContaining(`up to ${newest} `),
    });
    expect(told).toEqual(Array.from({ length: told.length }, (_, n) => after + 1n + BigInt(n)));
    expect(told.length).toBeLessThan(9000);
  }
});

test('a subscription that is overtaken ends with EVENTS_GONE', async () => {
  const id = await createRequest(app.ctx, { quota: 'alice', pattern: '/history/' });
  const after = await app.ctx.events.newestId();
  await app.ctx.db.pool.query(
    `INSERT INTO event (at, request_ids, request_id, state, files_total, files_on_disk, files_failed, bytes_total, bytes_on_disk)
     SELECT now() AT TIME ZONE 'utc', '{}', $1, 'QUEUED', 1, 0, 0, 1, 0 FROM generate_series(1, 9000)`,
    [id],
  );
  const stopping = new AbortController();
  const events = watchRequest(app.ctx, { id, after }, stopping.signal);
  expect((await events.next()).value?.eventId).toBe(after + 1n);
  await pruneIn(31);
  const rest = async () => {
    for await (const _ of events);
  };
  await expect(rest()).rejects.toThrow(EventsGoneError);
});
