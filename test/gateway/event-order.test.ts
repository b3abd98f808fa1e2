/** The order of events: that of the commits, whoever stays in a transaction for long, and however much another one writes. */
import pg from 'pg';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { ADVISORY_SPACE, advisoryKeys } from '../../src/database/locks.js';
import { sql } from '../../src/database/sql.js';
import { recordMoves } from '../../src/event-writes.js';
import { EventFeed } from '../../src/events.js';
import { createRequest } from '../../src/operations/requests/create.js';
import { updateRequest } from '../../src/operations/requests/update.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { recordStatements } from '../support/statements.js';
import {
  CHANGES,
  type Changes,
  PROGRESS,
  type Progress,
  take,
  transports,
  waitForReaders,
} from '../support/streams.js';
import { transaction } from '../support/transaction.js';
import { createGate } from '../support/wait.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
  await addQuota(app.ctx, 'alice', 10n ** 12n);
});
afterAll(() => app.close());

const [[, open]] = transports as [(typeof transports)[0]];

async function addFile(path: string): Promise<bigint> {
  await addFiles(app.ctx, [{ path }]);
  const { rows } = await app.ctx.db.pool.query<{ id: bigint }>('SELECT id FROM tape_file WHERE path = $1', [path]);
  return rows[0]?.id ?? 0n;
}

/** Tells that a file has begun, and stays in its transaction, with the events written, until the gate is opened. */
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

async function write(file: bigint): Promise<void> {
  const writer = startWriter(file);
  writer.commit();
  await writer.done;
}

const told = (results: Changes[]) => results.map(({ stageChanges }) => stageChanges.path);
const idsOf = (results: Changes[]) => results.map(({ stageChanges }) => Number(stageChanges.eventId));

test('a writer that stays in its transaction keeps nobody from being told, and its own event is told when it commits', async () => {
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

test('a transaction with very many events delays no watcher of others, neither before nor after its commit', async () => {
  const many = 30_000;
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
  // each watcher has read what is its own, and what was written is not written again
  expect(statements.reduce((sum, { rows }) => sum + rows, 0)).toBeLessThan(many / 100);
  const { rows } = await app.ctx.db.pool.query(
    `SELECT (b.last_number - b.first_number + 1)::int AS numbers, e.transactions
     FROM event_batch b, (SELECT batch_id, array_agg(DISTINCT xmin::text::bigint) AS transactions FROM event GROUP BY 1) e
     WHERE e.batch_id = b.id AND e.transactions = ARRAY[b.transaction_id] AND b.last_id - b.first_id >= $1`,
    [many / 2],
  );
  expect(rows).toHaveLength(1);
  expect(rows[0].numbers).toBeGreaterThanOrEqual(many);
  progress.close();
  changes.close();
});

test('a change that the present state holds, and that had no number then, is not told again', async () => {
  const file = await addFile('/present/1');
  const numbering = new pg.Client(app.ctx.db.config);
  await numbering.connect();
  // a change is committed just before the present state is read, and nobody comes to number it
  const query = pg.Client.prototype.query as (...args: unknown[]) => unknown;
  const spy = vi.spyOn(pg.Client.prototype, 'query').mockImplementation(function (this: pg.Client, ...args: unknown[]) {
    const ask = () => query.apply(this, args);
    const [question] = args as [{ text?: string; handleReadyForQuery(): void }];
    if (!question.text?.includes('unnumbered')) return ask();
    spy.mockRestore();
    const tell = question.handleReadyForQuery.bind(question);
    question.handleReadyForQuery = () => void numbering.query('COMMIT').then(tell);
    void writeUnseen().then(ask);
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

test('many that number at once give each batch one place', async () => {
  const files = await Promise.all(Array.from({ length: 8 }, (_, n) => addFile(`/crowd/${n}`)));
  const feeds = await Promise.all(files.map(async () => new EventFeed(app.ctx.db)));
  await Promise.all(feeds.map((feed) => feed.open()));
  await Promise.all(
    files.map(async (file, n) => {
      for (let round = 0; round < 20; round++) {
        await write(file);
        if (round % 4 === n % 4) await feeds[n]?.newestId();
      }
    }),
  );
  await Promise.all(feeds.map((feed) => feed.newestId()));
  const { rows } = await app.ctx.db.pool.query(
    `SELECT count(*) FILTER (WHERE last_number IS NULL)::int AS open, bool_and(is_next) AS "isInOrder" FROM (
       SELECT last_number, first_number > coalesce(lag(last_number) OVER (ORDER BY first_number), 0) AS is_next
       FROM event_batch) b`,
  );
  expect(rows).toEqual([{ open: 0, isInOrder: true }]);
  await Promise.all(feeds.map((feed) => feed.close()));
});
