/**
 * Requests with wrong or missing table statistics. The rows that a transaction touches depend on the files of the
 * request, never on a product of tables.
 */
import { beforeEach, describe, expect, test } from 'vitest';
import { createRequest } from '../../src/domain/requests/create.js';
import { cancelRequest, expireRequests, releaseFiles } from '../../src/domain/requests/ends.js';
import { addFiles, addQuota } from '../support/factories.js';
import { emptyTables } from '../support/tables.js';
import { useApp } from '../support/use-app.js';
import { countRows } from '../support/writes.js';

const TABLES = ['tape_file', 'request', 'request_file', 'recall', 'quota', 'unresolved_path', 'event', 'notification'];

const app = useApp({ watchesLocks: false }, async () => {
  for (const table of TABLES) await app.ctx.db.pool.query(`ALTER TABLE ${table} SET (autovacuum_enabled = off)`);
});

interface Belief {
  what: string;
  /** Returns the SQL statement to run for a table before or after the files are added. */
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
    what: 'takes all tables for nearly empty',
    after: (table) =>
      `SELECT pg_restore_relation_stats('schemaname', 'public', 'relname', '${table}', 'relpages', 1000, 'reltuples', 1::real)`,
  },
  { what: 'believes that nothing is there yet', before: (table) => `ANALYZE ${table}` },
];

const FILES = 300;

describe.each(beliefs)('if PostgreSQL $what', (belief) => {
  const paths = Array.from({ length: FILES }, (_, n) => `/misled/${n}.nc`);
  const make = (quota = 'alice') => createRequest(app.ctx, { quota, files: paths });

  async function runFor(statement: Belief['before']): Promise<void> {
    for (const table of statement ? TABLES : []) await app.ctx.db.pool.query(statement?.(table) ?? '');
  }

  beforeEach(async () => {
    await emptyTables(app.ctx);
    for (const table of TABLES) await app.ctx.db.pool.query(`VACUUM ${table}`); // removes dead rows of earlier tests
    await addQuota(app.ctx, 'alice', 10n ** 12n);
    await addQuota(app.ctx, 'bob', 10n ** 12n);
    await addQuota(app.ctx, 'carol', 10n ** 12n);
    await runFor(belief.before);
    await addFiles(
      app.ctx,
      [...paths, '/another'].map((path) => ({ path, size: 1n })),
    );
    await runFor(belief.after);
    await make('bob');
  });

  async function expectLinear(work: () => Promise<unknown>): Promise<void> {
    const done = (await countRows(work)).flatMap(({ transaction, ...counts }) =>
      Object.entries(counts).flatMap(([what, tables]) =>
        Object.entries(tables).map(([table, rows]) => ({ transaction, what, table, rows })),
      ),
    );
    expect(done).not.toEqual([]);
    // each file is in two requests, and several statements read the file
    expect(done.filter(({ rows, what }) => rows > (what === 'read' ? 24 : 6) * FILES)).toEqual([]);
  }

  test('requests are made, cancelled and expired in linear time', async () => {
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

  test('files are released in linear time', async () => {
    const id = await make();
    await expectLinear(() => releaseFiles(app.ctx, { id, paths: paths.slice(1) }));
    await expectLinear(() => releaseFiles(app.ctx, { id, match: '/misled/' }));
  });
});
