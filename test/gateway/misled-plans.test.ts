/**
 * Requests where PostgreSQL knows nothing of its tables, or has it wrong: what their transactions read and write goes by what there is, never
 * by one thing times another.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { planFor, plannedByKeys, plannedFreely } from '../../src/database/planning.js';
import { sql } from '../../src/database/sql.js';
import { type Transaction, transaction } from '../../src/database/transaction.js';
import { createRequest } from '../../src/operations/requests/create.js';
import { cancelRequest, expireRequests } from '../../src/operations/requests/ends.js';
import { releaseFiles } from '../../src/operations/requests/releases.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { emptyTables } from '../support/tables.js';
import { countRows } from '../support/writes.js';

const TABLES = ['tape_file', 'request', 'hold', 'recall', 'quota', 'awaited_path', 'event', 'notification'];

let app: TestApp;
beforeAll(async () => {
  app = await startApp({ watchesLocks: false });
  for (const table of TABLES) await app.ctx.db.pool.query(`ALTER TABLE ${table} SET (autovacuum_enabled = off)`);
});
afterAll(() => app.close());

interface Belief {
  what: string;
  /** Statements on a table, before there is anything and once the files are there. */
  before?: (table: string) => string;
  after?: (table: string) => string;
}

const beliefs: Belief[] = [
  {
    what: 'knows nothing',
    after: (
      table,
    ) => `SELECT pg_clear_relation_stats('public', '${table}'), pg_clear_attribute_stats('public', '${table}', attname::text, false)
      FROM pg_attribute WHERE attrelid = '${table}'::regclass AND attnum > 0 AND NOT attisdropped`,
  },
  {
    what: 'takes all tables for nearly empty ones',
    after: (table) =>
      `SELECT pg_restore_relation_stats('schemaname', 'public', 'relname', '${table}', 'relpages', 1000, 'reltuples', 1::real)`,
  },
  { what: 'believes that nothing is there yet', before: (table) => `ANALYZE ${table}` },
  { what: 'knows how it is', after: (table) => `ANALYZE ${table}` },
];

/** Few are looked up by keys, for many the tables are read once. */
const sizes = [300, 1100];

const cases = beliefs.flatMap(({ what, ...belief }) => sizes.map((files) => ({ what, belief, files })));

describe.each(cases)('where PostgreSQL $what, $files files', ({ belief, files }) => {
  const paths = Array.from({ length: files }, (_, n) => `/misled/${n}.nc`);
  const make = (quota = 'alice') => createRequest(app.ctx, { quota, files: paths });

  async function tell(statement: Belief['before']): Promise<void> {
    for (const table of statement ? TABLES : []) await app.ctx.db.pool.query(statement?.(table) ?? '');
  }

  beforeEach(async () => {
    await emptyTables(app.ctx);
    for (const table of TABLES) await app.ctx.db.pool.query(`VACUUM ${table}`); // gives back what others have used
    await addQuota(app.ctx, 'alice', 10n ** 12n);
    await addQuota(app.ctx, 'bob', 10n ** 12n);
    await addQuota(app.ctx, 'carol', 10n ** 12n);
    await tell(belief.before);
    await addFiles(
      app.ctx,
      [...paths, '/another'].map((path) => ({ path, size: 1n })),
    );
    await tell(belief.after);
    await make('bob');
  });

  async function expectLinear(work: () => Promise<unknown>): Promise<void> {
    const done = (await countRows(work)).flatMap(({ transaction, ...counts }) =>
      Object.entries(counts).flatMap(([what, tables]) =>
        Object.entries(tables).map(([table, rows]) => ({ transaction, what, table, rows })),
      ),
    );
    expect(done).not.toEqual([]);
    // each file is held by two requests, and looked at by some statements
    expect(done.filter(({ rows, what }) => rows > (what === 'read' ? 24 : 6) * files)).toEqual([]);
  }

  test('requests are made, cancelled and expire by what they hold', async () => {
    await expectLinear(() => createRequest(app.ctx, { quota: 'alice', pattern: '/misled/' }));
    let id = 0;
    await expectLinear(async () => {
      id = await make('carol');
    });
    await expectLinear(() => cancelRequest(app.ctx, id));
    await app.ctx.db.pool.query(`UPDATE request SET retention = '2000-01-01'`);
    await expectLinear(() => expireRequests(app.ctx));
    const { rows } = await app.ctx.db.pool.query('SELECT count(*)::int AS left FROM recall');
    expect(rows).toEqual([{ left: 0 }]);
  });

  test('files are released by what they are', async () => {
    const id = await make();
    await expectLinear(() => releaseFiles(app.ctx, { id, paths: paths.slice(1) }));
    await expectLinear(() => releaseFiles(app.ctx, { id, match: '/misled/' }));
  });
});

test('what is told how to be planned is compiled in no case, and read by bitmaps as PostgreSQL likes it only, up to the commit', async () => {
  const read = sql`SELECT current_setting('jit') AS compiles, current_setting('enable_bitmapscan') AS bitmaps`;
  const before = (await app.ctx.db.pool.query(read)).rows;
  const planned: [string, (tx: Transaction) => unknown, unknown][] = [
    ['keys', (tx) => tx.send(plannedByKeys()), { compiles: 'off', bitmaps: 'off' }],
    ['freely', (tx) => tx.send(plannedFreely()), { compiles: 'off', bitmaps: 'on' }],
    ['few', (tx) => planFor(tx, 1, ['hold']), { compiles: 'off', bitmaps: 'off' }],
    ['many', (tx) => planFor(tx, 10 ** 9, ['hold']), { compiles: 'off', bitmaps: 'on' }],
  ];
  await transaction(app.ctx.db.pool, 'test', async (tx) => {
    for (const [what, plan, settings] of planned) {
      await plan(tx);
      expect([what, ...(await tx.query(read))]).toEqual([what, settings]);
    }
  });
  expect((await app.ctx.db.pool.query(read)).rows).toEqual(before);
});
