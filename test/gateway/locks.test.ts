import { expect, test } from 'vitest';
import { advisoryKeys, lockRecalls, lockRequests } from '../../src/db/locks.js';
import { sql } from '../../src/db/sql.js';
import { transaction } from '../../src/db/transaction.js';
import { reservePositions } from '../../src/domain/catalogue/volumes.js';
import { addFiles, addQuota } from '../support/factories.js';
import { takingsOf, watchLocks } from '../support/lock-watch.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { makeRequest, put } from '../support/rest.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const app = useApp({ library: createMemoryLibrary(), watchesLocks: false }, async () => {
  await addQuota(app.ctx, 'alice', 10n ** 12n);
});

test('requests, imports and the engine take locks in order, and PostgreSQL confirms it', async () => {
  const watch = watchLocks({ verify: true });
  try {
    await reservePositions(app.ctx, { sizes: [1n], volumeSize: 10n });
    await addFiles(app.ctx, [{ path: '/locks/a' }, { path: '/locks/b' }]);
    const pattern = await makeRequest(app, { quota: 'alice', patterns: '/locks' });
    const listed = await makeRequest(app, { quota: 'alice', files: ['/locks/a', '/locks/later'] });
    // the tape is empty, so recalls start and fail
    await waitFor('recalls to begin and end', async () => watch.names.has('finishRecalls'));
    await addFiles(app.ctx, [
      { path: '/locks/later' },
      { path: '/locks/a', size: 2000n, checksum: 'md5:'.padEnd(36, '0') },
    ]);
    await put(app, listed, { quota: 'alice', retention: '2020-01-01' });
    await put(app, listed, { quota: 'alice', retention: '2099-01-01' });
    await app.ctx.db.pool.query('UPDATE request SET retention = request_date WHERE id = $1', [pattern]);
    await waitFor('the request to expire', async () => {
      const { rows } = await app.ctx.db.pool.query('SELECT state FROM request WHERE id = $1', [pattern]);
      return rows[0].state === 'EXPIRED';
    });
    expect(watch.violations).toEqual([]);
    const names = ['createRequest', 'finishRecalls', 'importRows', 'reservePositions', 'startRecalls', 'updateRequest'];
    expect([...watch.names]).toEqual(expect.arrayContaining(names));
  } finally {
    watch.stop();
  }
});

async function violationsOf(work: () => Promise<unknown>): Promise<string[]> {
  const watch = watchLocks({ verify: true });
  await work().finally(watch.stop);
  return watch.violations;
}

test('a lock out of order is reported', async () => {
  const violations = await violationsOf(() =>
    transaction(app.ctx.db.pool, 'cancelRequest', async (tx) => {
      await lockRecalls(tx, sql`false`);
      await lockRequests(tx, sql`false`);
      await tx.query(sql`UPDATE tape_file SET size = size WHERE false`);
    }),
  );
  expect(violations.map((line) => line.split(':')[0])).toEqual([
    'cancelRequest takes request after recall',
    'cancelRequest takes file after recall',
  ]);
});

test('PostgreSQL reports a change that the watch did not see', async () => {
  const hidden = sql`UPDATE /* hidden */ tape_file SET size = size WHERE false`;
  const violations = await violationsOf(() =>
    transaction(app.ctx.db.pool, 'cancelRequest', async (tx) => await tx.query(hidden)),
  );
  expect(violations).toEqual(['cancelRequest changes tape_file, and no statement was seen to']);
});

test('a lock that does not wait may be taken at any time', () => {
  const skipping = sql`UPDATE recall SET size = 1 WHERE file_id IN (SELECT c.file_id FROM recall c FOR UPDATE OF c SKIP LOCKED)`;
  expect(takingsOf(skipping).every(({ waits }) => !waits)).toBe(true);
  expect(takingsOf(sql`SELECT pg_advisory_xact_lock(${1}::int, ${advisoryKeys.catalogue}::int)`)).toEqual([
    { lock: 'catalogue', by: 'row', waits: true },
  ]);
});
