/** What an engine does every so often: what fails in one pass keeps no other from its work. */
import { afterAll, beforeAll, test } from 'vitest';
import { startEngine } from '../../src/engine/runner.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { startIdleApp } from '../support/engine-by-hand.js';
import { addFiles, addQuota } from '../support/factories.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;

beforeAll(async () => {
  app = await startIdleApp();
});
afterAll(() => app.close());

test('where files cannot join for an error, what recalls have left on disks is removed all the same', async () => {
  const query = (text: string) => app.ctx.db.pool.query(text);
  await addFiles(app.ctx, [{ path: '/joins/held', size: 10n }]);
  await addQuota(app.ctx, 'narrow', 10n);
  await makeRequest(app, { quota: 'narrow', files: ['/joins/held', '/joins/late'] });
  await addFiles(app.ctx, [{ path: '/joins/late', size: 10n }]);
  await addQuota(app.ctx, 'narrow', 20n);
  await query(`CREATE SEQUENCE joins;
    CREATE FUNCTION break_join() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      PERFORM nextval('joins'); RAISE 'planted in joins';
    END $$;
    CREATE TRIGGER break_join BEFORE INSERT ON hold FOR EACH ROW EXECUTE FUNCTION break_join();
    INSERT INTO left_behind (file_id, disk_id, drive_id, epoch, size)
      SELECT f.id, k.id, d.id, 1, 10 FROM tape_file f, restore_disk k, drive d WHERE f.path = '/joins/held'`);
  const engine = await startEngine(app.ctx, createMemoryBackend(), { drainMs: 200 });
  try {
    await waitFor('a join to fail', async () => (await query('SELECT FROM joins WHERE is_called')).rowCount === 1);
    await waitFor('nothing to be left', async () => (await query('SELECT FROM left_behind')).rowCount === 0);
  } finally {
    await engine.stop();
    await query('DROP TRIGGER break_join ON hold');
  }
});
