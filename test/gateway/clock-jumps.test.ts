/** Jumps of the database's clock. A process detects a jump by comparing the clock with the elapsed time on its host. */
import { afterEach, expect, test, vi } from 'vitest';
import { addSeconds, secondsBetween } from '../../src/core/time.js';
import type { DatabaseClock } from '../../src/db/clock.js';
import { openDatabase } from '../../src/db/pools.js';
import { ClockWatch } from '../../src/domain/clock.js';
import { endFarTimes } from '../../src/domain/far-times.js';
import { claimDrive } from '../../src/domain/recalls/drives.js';
import { runJobs } from '../../src/engine/jobs/jobs.js';
import { findFaults } from '../support/faults.js';
import { readSuspensions, resume } from '../support/suspend.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const DAY = 86_400;
const app = useApp();
let closers: (() => Promise<void>)[] = [];

afterEach(async () => {
  vi.restoreAllMocks();
  for (const close of closers) await close();
  closers = [];
  await query('DELETE FROM clock_reading');
  await query('DELETE FROM suspension');
});

const query = async (text: string) => (await app.ctx.db.pool.query(text)).rows;

/** Simulates a process with its own connections that sees the database's clock `off` seconds ahead. */
async function startProcess({ off = 0, steadySeconds = 0.2 } = {}) {
  let shift = off;
  const db = openDatabase(app.ctx.db.config, { log: app.ctx.log });
  const set = db.clock.set.bind(db.clock);
  db.clock.set = (micros, asked) => set(micros + shift * 1e6, asked);
  await db.pulse.start();
  const ctx = { ...app.ctx, db, now: () => db.clock.now() };
  const watch = new ClockWatch(ctx, { steadySeconds });
  await watch.begin();
  const close = () => db.close();
  closers.push(close);
  return {
    ctx,
    clock: db.clock,
    /** Shifts the clock that this process sees, then reads and compares clocks as each heartbeat does. */
    shiftTo: async (seconds: number) => {
      shift = seconds;
      await beat(db);
    },
    beat: () => beat(db),
    close: async () => {
      closers = closers.filter((each) => each !== close);
      await close();
    },
  };
}

async function beat(db: { pulse: object; clock: DatabaseClock }): Promise<void> {
  const pulse = db.pulse as { beat(): Promise<void>; onBeat(): Promise<void> };
  await pulse.beat();
  await pulse.onBeat();
}

/** Returns by how many seconds, rounded to 5 s, a clock is ahead of the app's clock. */
const offOf = (clock: DatabaseClock) => Math.round(secondsBetween(app.ctx.db.clock.now(), clock.now()) / 5) * 5 || 0;

test.each([
  ['ahead', 6 * DAY],
  ['back', -6 * DAY],
])(
  'while the clock of the database is six days %s, time goes on as before and jobs that delete wait',
  async (side, jump) => {
    const { ctx, clock, shiftTo, beat } = await startProcess();
    expect([clock.isPlausible, await readSuspensions(app)]).toEqual([true, []]);
    await shiftTo(jump);
    expect([offOf(clock), clock.isPlausible]).toEqual([0, false]);
    const reason = `the database clock is 518,400 s ${side === 'back' ? 'behind' : 'ahead of'} the elapsed time on this host: nothing expires or is removed`;
    expect(await readSuspensions(app)).toMatchObject([{ kind: 'CLOCK', name: 'database', mode: 'IMMEDIATE', reason }]);
    const [stop, ran] = [new AbortController(), [] as string[]];
    const pass = (name: string, isByTime: boolean) => ({ name, isByTime, everyMs: 1, run: async () => ran.push(name) });
    const passes = runJobs(ctx, stop.signal, [pass('by time', true), pass('other', false)]);
    await waitFor('the other job', async () => ran.includes('other'));
    expect(ran).not.toContain('by time');

    await shiftTo(0);
    expect([offOf(clock), clock.isPlausible]).toEqual([0, false]);
    await waitFor('a plausible clock', async () => {
      await beat();
      return clock.isPlausible;
    });
    await waitFor('the job', async () => ran.includes('by time'));
    stop.abort();
    await passes;
    expect(await readSuspensions(app)).toEqual([]);
  },
);

test('an operator confirms the time of the database, and all processes take it', async () => {
  const first = await startProcess({ steadySeconds: 300 });
  const second = await startProcess({ steadySeconds: 300 });
  await first.shiftTo(DAY);
  await second.shiftTo(DAY);
  expect([offOf(first.clock), offOf(second.clock)]).toEqual([0, 0]);
  expect(await resume(app, 'CLOCK', 'database')).toMatchObject({ __typename: 'Suspension', kind: 'CLOCK' });
  for (const { beat, clock } of [first, second]) {
    await beat();
    await beat();
    expect([offOf(clock), clock.isPlausible]).toEqual([DAY, true]);
  }
  expect(await readSuspensions(app)).toEqual([]);
});

test('a process that starts after the jump knows the time from the readings of before', async () => {
  const first = await startProcess();
  await first.close();
  const later = await startProcess({ off: DAY });
  expect([offOf(later.clock), later.clock.isPlausible]).toEqual([0, false]);
  expect(await readSuspensions(app)).toMatchObject([{ kind: 'CLOCK' }]);
});

test('a jump of the host as well is not accepted, also after restarts of the process', async () => {
  const first = await startProcess();
  await first.close();
  const [now, origin] = [Date.now, performance.timeOrigin];
  vi.spyOn(Date, 'now').mockImplementation(() => now() + 6 * DAY * 1000);
  vi.spyOn(performance, 'timeOrigin', 'get').mockReturnValue(origin + 6 * DAY * 1000);
  for (const restart of [1, 2]) {
    const { clock, beat, close } = await startProcess({ off: 6 * DAY, steadySeconds: 0 });
    await beat();
    expect([restart, offOf(clock), clock.isPlausible]).toEqual([restart, 0, false]);
    await close();
  }
  await query('UPDATE clock_reading SET boot = boot || 1'); // a reboot of the host
  const { clock, beat } = await startProcess({ off: 6 * DAY, steadySeconds: 0 });
  await beat();
  expect([offOf(clock), clock.isPlausible]).toEqual([0, false]);
});

test('a large jump to the time of a host whose clock was not set is accepted, also after a restart', async () => {
  const first = await startProcess({ off: -DAY });
  await first.close();
  const { clock, beat } = await startProcess({ steadySeconds: 0 });
  await beat();
  expect([offOf(clock), clock.isPlausible]).toEqual([0, true]);
});

test('one process that sees no jump waits for the others', async () => {
  const sound = await startProcess({ steadySeconds: 60 });
  const other = await startProcess();
  await other.shiftTo(DAY);
  await sound.beat();
  expect([offOf(sound.clock), sound.clock.isPlausible]).toEqual([0, false]);
});

test('a jump of half an hour is accepted once the clock is steady', async () => {
  const { clock, shiftTo, beat } = await startProcess();
  await shiftTo(1800);
  expect([offOf(clock), clock.isPlausible]).toEqual([0, false]);
  await waitFor('the new time', async () => {
    await beat();
    return clock.isPlausible;
  });
  expect(offOf(clock)).toBe(1800);
});

test('leases and retry times that were set before the clock was set back have ended', async () => {
  const { ctx } = app;
  const now = ctx.now();
  await query(`INSERT INTO drive (name, engine_id, lease_until) VALUES ('drive-1', gen_random_uuid(), timezone('utc', now()) + interval '1 day')
    ON CONFLICT (name) DO UPDATE SET engine_id = excluded.engine_id, lease_until = excluded.lease_until`);
  const [volume] = await query(
    `INSERT INTO volume (name, retry_at) VALUES ('FAR', '${addSeconds(now, DAY)}') RETURNING name`,
  );
  expect(volume).toBeDefined();
  await query(`INSERT INTO webhook (url, events, note, secret, made_at, made_by, owner, next_try_at)
    VALUES ('https://example.org/', '{}', '', 'x', '${now}', 'ann', 'ann', '${addSeconds(now, 3 * DAY)}')`);
  expect(await findFaults(app)).toEqual([
    'drive-far-ahead: drive drive-1',
    'volume-far-ahead: volume FAR',
    expect.stringMatching('^webhook-far-ahead'),
  ]);
  const of = { id: 1, name: 'directory', drives: 1 };
  const engineId = '00000000-0000-0000-0000-000000000001';
  expect(await claimDrive(ctx, { engineId, of, leaseSeconds: 15 })).toMatchObject({ driveName: 'drive-1' });
  await endFarTimes(ctx);
  expect(await findFaults(app)).toEqual([]);
});

test('a clock that an operator holds stays so until it is resumed', async () => {
  const { clock, beat } = await startProcess();
  await query(
    `INSERT INTO suspension (kind, name, mode, reason, since) VALUES ('CLOCK', 'database', 'IMMEDIATE', '', now())`,
  );
  await beat();
  expect(clock.isPlausible).toBe(false);
  await resume(app, 'CLOCK', 'database');
  await beat();
  expect(clock.isPlausible).toBe(true);
});
