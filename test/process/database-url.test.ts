/** DATABASE_URL as it is written, whatever is in it. */
import { pino } from 'pino';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { openDatabase } from '../../src/database/client.js';
import { type DatabaseRelay, startDatabaseRelay } from '../support/database-relay.js';
import { cleanUp, makeDataDir, runCli } from '../support/process.js';

let relay: DatabaseRelay;
let place: string;

beforeAll(async () => {
  relay = await startDatabaseRelay(inject('postgres').connection);
  place = `127.0.0.1:${relay.through({}).port}`;
});
afterAll(async () => {
  await relay.close();
  await cleanUp();
});

const OWN = 'options=-c%20work_mem%3D5MB';

test.each([
  ['postgres:pa%ss', '', '64MB'],
  ['postgres:pa%25ss', '', '64MB'],
  ['postgres', `?${OWN}`, '5MB'],
  ['postgres:pa%25ss', `?application_name=site&${OWN}`, '5MB'],
])(
  'as %s with the options "%s" it is asked to look out, and to have room, beside what the site wants',
  async (user, query, memory) => {
    const connectionString = `postgresql://${user}@${place}/postgres${query}`;
    const db = openDatabase({ connectionString }, { log: pino({ level: 'silent' }) });
    try {
      const { rows } = await db.pool.query(
        `SELECT current_setting('client_connection_check_interval') AS look, current_setting('work_mem') AS memory`,
      );
      expect(rows).toEqual([{ look: '10s', memory }]);
    } finally {
      await db.close();
    }
  },
);

test('a password with a percent sign that escapes nothing keeps nobody from making the database', async () => {
  const env = {
    DATABASE_URL: `postgresql://postgres:pa%ss@${place}/made_by_url_${process.pid}`,
    DATA_DIR: makeDataDir(),
  };
  expect(await runCli(['migrate'], { env })).toMatchObject({ code: 0, stderr: '' });
});
