/** Errors that nobody expects while a drive works on a volume: planted as triggers of the database. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { examine } from '../../src/engine/doctor/doctor.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { createClock, currentTime } from '../support/clock.js';
import { ring } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { cleanUp, runCli } from '../support/process.js';
import { waitForState, waitThroughPauses } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

const backend = createMemoryBackend();
const clock = createClock();
let app: TestApp;

beforeAll(async () => {
  app = await startApp({ backend, now: clock.now, config: { drives: 1 } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

const query = async <Row extends object>(text: string) => (await app.ctx.db.pool.query<Row>(text)).rows;

/** What is begun of the volume fails; how often that was tried, a sequence knows. */
async function breakVolume(name: string): Promise<void> {
  await query(`CREATE SEQUENCE visits_${name};
    CREATE FUNCTION break_${name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      PERFORM nextval('visits_${name}'); RAISE 'planted in ${name}';
    END $$`);
  const [volume] = await query<{ id: number }>(`SELECT id FROM volume WHERE name = '${name.toUpperCase()}'`);
  await query(`CREATE TRIGGER break_${name} BEFORE UPDATE ON recall FOR EACH ROW
    WHEN (NEW.volume_id = ${volume?.id} AND NEW.state = 'RUNNING') EXECUTE FUNCTION break_${name}()`);
}

async function countVisits(name: string): Promise<number> {
  const [row] = await query<{ count: number }>(
    `SELECT CASE WHEN is_called THEN last_value ELSE 0 END::int AS count FROM visits_${name}`,
  );
  return row?.count ?? 0;
}

async function failuresOf(name: string): Promise<{ failures: number; problem: string | null } | undefined> {
  const [row] = await query<{ failures: number; problem: string | null }>(
    `SELECT failures, problem FROM volume WHERE name = '${name}'`,
  );
  return row;
}

interface Waiting {
  request: { waiting: { parts: { edges: { node: { reason: string; explanation: string; nextTry: string } }[] } } };
}

async function partOf(id: number) {
  const { request } = await askData<Waiting>(
    app,
    `{ request(id: ${id}) { waiting { parts { edges { node { reason explanation nextTry } } } } } }`,
  );
  return request.waiting.parts.edges.map(({ node }) => node);
}

const findKinds = async (ctx = app.ctx) => {
  const kinds: string[] = [];
  await examine(ctx, { repair: false, checksums: false }, ({ kind, thing, found }) => {
    kinds.push(`${kind} ${thing}: ${found}`);
  });
  return kinds;
};

test('a volume on which an unexpected error stops the work is left alone for a pause that grows, says why, and holds up no other', async () => {
  clock.freeze();
  await addTaped(app.ctx, backend, [
    { path: '/bad/1', volume: 'BAD' },
    { path: '/bad/2', volume: 'BAD' },
    { path: '/well/1', volume: 'WELL' },
  ]);
  await breakVolume('bad');
  const bad = await makeRequest(app, { quota: 'alice', files: ['/bad/1'], retention: '2099-01-01' });
  await waitFor('the visit to break down', async () => (await failuresOf('BAD'))?.failures === 1);
  const well = await makeRequest(app, { quota: 'alice', files: ['/well/1'], retention: '2099-01-01' });
  await waitForState(app, well, 'COMPLETED');
  const later = await makeRequest(app, { quota: 'alice', files: ['/bad/2'], retention: '2099-01-01' });
  await waitForState(app, later, 'QUEUED');
  await ring(app, 'recall');
  expect(await countVisits('bad')).toBe(1);

  const why = 'it has failed, and is tried again later: planted in bad';
  for (const id of [bad, later]) {
    expect(await partOf(id)).toEqual([{ reason: 'RETRY', explanation: why, nextTry: expect.any(String) }]);
  }
  const env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
  expect((await runCli(['plan', String(bad)], { env })).stdout).toContain(why);
  expect((await runCli(['plan'], { env })).stdout).toContain('planted in bad');
  expect(await findKinds()).toEqual([]);

  for (let tries = 2; tries <= 10; tries++) {
    clock.advance(600);
    clock.goOn();
    clock.freeze();
    await ring(app, 'recall');
    await waitFor(`visit ${tries}`, async () => (await failuresOf('BAD'))?.failures === tries);
    expect(await countVisits('bad')).toBe(tries);
  }
  const [{ pause } = { pause: 0 }] = await query<{ pause: number }>(
    `SELECT extract(epoch FROM retry_at - '${clock.now()}'::timestamp)::float8 AS pause FROM volume WHERE name = 'BAD'`,
  );
  expect(pause).toBeGreaterThanOrEqual(300);
  expect(await query("SELECT FROM suspension WHERE name = 'BAD'")).toEqual([]);

  await query(`UPDATE volume SET failing_since = failing_since - interval '1 day' WHERE name = 'BAD'`);
  expect(await findKinds()).toEqual([
    expect.stringMatching(/^volume-failing volume BAD: 10 visits since .* that have broken down: planted in bad$/),
  ]);
  await query('DROP TRIGGER break_bad ON recall');
  clock.goOn();
  await waitThroughPauses(app, clock, bad, 'COMPLETED');
  await waitThroughPauses(app, clock, later, 'COMPLETED');
  await waitFor('the count to end', async () => (await failuresOf('BAD'))?.failures === 0);
  expect(await failuresOf('BAD')).toEqual({ failures: 0, problem: null });
  expect(await findKinds()).toEqual([]);
});

test('the doctor tells of a volume whose files are ready while a drive that works does not turn to it', async () => {
  await addTaped(app.ctx, backend, [{ path: '/idle/1', volume: 'IDLE' }]);
  clock.advance(-1_000_000); // what is ready for the doctor is not ready for the engine
  const ctx = { ...app.ctx, now: currentTime };
  await query("UPDATE volume SET retry_at = 'infinity' WHERE name = 'IDLE'");
  const id = await makeRequest(app, { quota: 'alice', files: ['/idle/1'], retention: '2099-01-01' });
  await query("UPDATE recall SET not_before = timezone('utc', clock_timestamp()) - interval '10 minutes'");
  await query("UPDATE volume SET retry_at = NULL WHERE name = 'IDLE'");
  expect(await findKinds(ctx)).toEqual([]);
  await query(
    "UPDATE recall SET created_at = not_before - interval '1 hour', not_before = not_before - interval '10 minutes'",
  );
  expect(await findKinds(ctx)).toEqual(['volume-unvisited volume IDLE: drive-1, which has nothing to do']);
  await query('UPDATE recall SET not_before = NULL');
  await ring(app, 'recall');
  await waitForState(app, id, 'COMPLETED');
  expect(await findKinds(ctx)).toEqual([]);
});
