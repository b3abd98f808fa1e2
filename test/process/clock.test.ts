/** Hosts with wrong clocks: all times come from the database's clock. */
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/package-root.js';
import { addSeconds, isBefore } from '../../src/time.js';
import { currentTime } from '../support/clock.js';
import { createDatabase, type TestDatabase } from '../support/database.js';
import { askData } from '../support/graphql.js';
import { cleanUp, runProgram, startServer, stop } from '../support/process.js';
import { makeRequest, readRequest } from '../support/rest.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';

let database: TestDatabase;

beforeAll(async () => {
  database = await createDatabase();
});
afterAll(async () => {
  await cleanUp();
  await database.drop();
});

const preload = pathToFileURL(path.join(packageRoot, 'test/support/shifted-clock.mjs')).href;

/** The environment of a process on a host with a wrong clock. */
function offBy(seconds: number): Record<string, string> {
  return {
    DATABASE_URL: database.url,
    DATA_DIR: makeTempDir(),
    NODE_OPTIONS: `--import=${preload}`,
    CLOCK_SECONDS: String(seconds),
  };
}

const DAY = 86_400;

test.each([
  ['ahead of', 6 * DAY],
  ['behind', -6 * DAY],
])(
  'a server on a host whose clock is six days %s the database uses the time of the database',
  async (side, seconds) => {
    const env: Record<string, string> = { ...offBy(seconds), DRIVES: '1' };
    const user = side.replace(' ', '-');
    const server = await startServer('start', { env });
    try {
      const set = await runProgram(['quota', 'set', user, '--size', '1G'], { env });
      expect(set.code).toBe(0);
      const before = currentTime();
      const lasting = await makeRequest(server, {
        quota: user,
        patterns: '/none/',
        retention: addSeconds(before, DAY).slice(0, 19),
      });
      const short = await makeRequest(server, {
        quota: user,
        patterns: '/none/',
        retention: addSeconds(before, 3).slice(0, 19),
      });
      const stateOf = async (id: number) =>
        (await askData<{ request: { state: string } }>(server, `{ request(id: ${id}) { state } }`)).request.state;
      await waitFor('a request to expire', async () => (await stateOf(short)) === 'EXPIRED');
      expect(await stateOf(lasting)).not.toBe('EXPIRED');
      const date = String((await readRequest(server, lasting)).request_date);
      expect([isBefore(date, before), isBefore(currentTime(), date)]).toEqual([false, false]);
    } finally {
      expect((await stop(server)).stderr).toBe('');
    }
  },
);
