/** Hosts with wrong clocks: all times come from the database's clock, unless that clock jumps. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { addSeconds, isBefore } from '../../src/core/time.js';
import { currentTime } from '../support/clock.js';
import { createDatabase, type TestDatabase } from '../support/database.js';
import { askData } from '../support/graphql.js';
import { startMovedDatabase } from '../support/moved-clock.js';
import { cleanUp, kill, makeDataDir, runProgram, startServer, stop } from '../support/process.js';
import { makeRequest, readRequest } from '../support/rest.js';
import { hashTree, waitForEnd } from '../support/server.js';
import { readSuspensions } from '../support/suspend.js';
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

/** Returns the environment of a process whose host has a wrong clock. */
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
        (await askData<{ request: { state: string } }>(server, `{ request(requestId: ${id}) { state } }`)).request
          .state;
      await waitFor('a request to expire', async () => (await stateOf(short)) === 'EXPIRED');
      expect(await stateOf(lasting)).not.toBe('EXPIRED');
      const date = String((await readRequest(server, lasting)).request_date);
      expect([isBefore(date, before), isBefore(currentTime(), date)]).toEqual([false, false]);
    } finally {
      expect((await stop(server)).stderr).toBe('');
    }
  },
);

test('while the clock of the database is six days ahead, nothing expires, and all works on afterwards', async ({
  skip,
}) => {
  const moved = await startMovedDatabase();
  if (!moved) return skip();
  const dataDir = makeDataDir();
  const env = { DATABASE_URL: moved.url, DATA_DIR: dataDir, DRIVES: '1', LOG_LEVEL: 'fatal' };
  const server = await startServer('start', { env });
  try {
    const source = makeTempDir();
    for (const name of ['kept', 'amid', 'short']) writeFileSync(path.join(source, name), name);
    expect(await runProgram(['archive', source, '--move'], { env })).toMatchObject({ code: 0 });
    expect(await runProgram(['quota', 'set', 'ann', '--size', '1G'], { env })).toMatchObject({ code: 0 });
    const ask = async (name: string, seconds: number) => {
      const retention = addSeconds(currentTime(), seconds).slice(0, 19);
      const id = await makeRequest(server, { quota: 'ann', patterns: `/${name}`, retention });
      await waitForEnd(server, id);
      return id;
    };
    const stateOf = async (id: number) =>
      (await askData<{ request: { state: string } }>(server, `{ request(requestId: ${id}) { state } }`)).request.state;
    const names = () => Object.keys(hashTree(path.join(dataDir, 'restore'))).map((file) => path.basename(file));
    const kept = await ask('kept', DAY);
    expect(names()).toEqual(['kept']);

    moved.shiftTo(6 * DAY);
    const isSeen = async () => (await readSuspensions(server)).some(({ kind }) => kind === 'CLOCK');
    await waitFor('the jump to be seen', isSeen);
    const amid = await ask('amid', DAY);
    expect([await stateOf(kept), await stateOf(amid), names()]).toEqual(['COMPLETED', 'COMPLETED', ['amid', 'kept']]);
    const { stderr } = await runProgram(['status'], { env });
    expect(stderr).toContain('the database clock is 518,400 s ahead of the elapsed time');

    moved.shiftTo(0);
    expect(await runProgram(['resume', 'clock', 'database'], { env })).toMatchObject({ code: 0 });
    const short = await ask('short', 5);
    await waitFor('a request to expire', async () => (await stateOf(short)) === 'EXPIRED');
    await waitFor('its copy to be removed', async () => !names().includes('short'));
    expect([await stateOf(kept), names()]).toEqual(['COMPLETED', ['amid', 'kept']]);
    expect((await stop(server)).stderr).toBe('');
  } finally {
    await kill(server);
    moved.close();
  }
});
