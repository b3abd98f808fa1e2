/** Unexpected errors, raised by database triggers, with one drive: the engine retries a volume after growing pauses. */
import { afterEach, expect, test } from 'vitest';
import { examine } from '../../src/engine/doctor/doctor.js';
import { ring, ringUntilSeen } from '../support/engine-watch.js';
import { addTaped } from '../support/factories.js';
import { askData, type Edges } from '../support/graphql.js';
import { useMemorySite } from '../support/memory-site.js';
import { runCli } from '../support/process.js';
import { waitForState, waitThroughPauses } from '../support/request-view.js';
import { waitFor } from '../support/wait.js';

const { app, library, clock, ask, query } = useMemorySite({ drives: 1 });

// a recall that one test leaves to the drive would change the next test
afterEach(async () => {
  expect(await query('SELECT file_id FROM recall')).toEqual([]);
});

const endOf = (id: number, state: string) => waitThroughPauses(app, clock, id, state);

/** Makes each start of a recall from volume BROKEN fail. A sequence counts the starts. */
const breakStarts = () =>
  query(`CREATE SEQUENCE starts;
    CREATE FUNCTION break_start() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF NEW.volume_id <> (SELECT id FROM volume WHERE name = 'BROKEN') THEN RETURN NEW; END IF;
      PERFORM nextval('starts'); RAISE 'planted';
    END $$;
    CREATE TRIGGER break_start BEFORE UPDATE ON recall FOR EACH ROW WHEN (NEW.state = 'RUNNING') EXECUTE FUNCTION break_start()`);

const countStarts = async () => (await query('SELECT last_value::int AS count FROM starts'))[0]?.count;

const readFailures = async () =>
  (
    await query<{ failures: number; problem: string | null }>(
      `SELECT failures, problem FROM volume WHERE name = 'BROKEN'`,
    )
  )[0];

const waitForFailures = (count: number) =>
  waitFor(`${count} failures`, async () => (await readFailures())?.failures === count);

async function readParts(id: number) {
  type Part = { reason: string; explanation: string; nextTryAt: string };
  const { request } = await askData<{ request: { waiting: { parts: Edges<Part> } } }>(
    app,
    `{ request(requestId: ${id}) { waiting { parts { edges { node { reason explanation nextTryAt } } } } } }`,
  );
  return request.waiting.parts.edges.map(({ node }) => node);
}

const findFindings = async () => {
  const findings: string[] = [];
  await examine(app.ctx, { repair: false, checksums: false }, ({ kind, object, found }) => {
    findings.push(`${kind} ${object}: ${found}`);
  });
  return findings;
};

test('after an unexpected error a volume is tried again after growing pauses, with the reason, and delays no other', async () => {
  clock.freeze();
  await addTaped(app.ctx, library, [
    { path: '/broken/1', volume: 'BROKEN' },
    { path: '/broken/2', volume: 'BROKEN' },
    { path: '/sound/1', volume: 'SOUND' },
  ]);
  await breakStarts();
  const bad = await ask('/broken/1');
  await waitForFailures(1);
  await waitForState(app, await ask('/sound/1'), 'COMPLETED');
  const later = await ask('/broken/2');
  await waitForState(app, later, 'QUEUED');
  await ringUntilSeen(app, 'recall', 'drives');
  expect(await countStarts()).toBe(1);

  const why = 'the files are waiting for a retry after a failed attempt: planted';
  for (const id of [bad, later]) {
    expect(await readParts(id)).toEqual([{ reason: 'RETRY', explanation: why, nextTryAt: expect.any(String) }]);
  }
  const env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
  expect((await runCli(['plan', String(bad)], { env })).stdout).toContain(why);
  expect((await runCli(['plan'], { env })).stdout).toContain('planted');
  expect(await findFindings()).toEqual([]);

  for (const [n, failures] of [2, 3, 10].entries()) {
    await query(`UPDATE volume SET failures = ${failures - 1} WHERE name = 'BROKEN'`); // skips some failures
    clock.advance(600);
    await ring(app, 'recall');
    await waitForFailures(failures);
    expect(await countStarts()).toBe(n + 2);
  }
  const [{ pause } = { pause: 0 }] = await query<{ pause: number }>(
    `SELECT extract(epoch FROM retry_at - '${clock.now()}'::timestamp)::float8 AS pause FROM volume WHERE name = 'BROKEN'`,
  );
  expect(pause).toBeGreaterThanOrEqual(300);
  expect(await query("SELECT FROM suspension WHERE name = 'BROKEN'")).toEqual([]);

  await query(`UPDATE volume SET failing_since = failing_since - interval '1 day' WHERE name = 'BROKEN'`);
  expect(await findFindings()).toEqual([
    expect.stringMatching(/^volume-failing volume BROKEN: 10 failed visits since .*: planted$/),
  ]);
  await query('DROP TRIGGER break_start ON recall');
  clock.goOn();
  await endOf(bad, 'COMPLETED');
  await endOf(later, 'COMPLETED');
  await waitForFailures(0);
  expect(await readFailures()).toEqual({ failures: 0, problem: null });
  expect(await findFindings()).toEqual([]);
});
