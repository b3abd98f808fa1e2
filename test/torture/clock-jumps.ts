/** Moves the database's clock forward or back for a while. After each jump, an operator confirms the clock. */
import { setTimeout as sleep } from 'node:timers/promises';
import { mutate } from './gateway.js';
import type { Random } from './random.js';
import type { World } from './world.js';

export interface DatabaseClock {
  /** Shifts the database's clock by this number of seconds from the host's clock, forward or backward. */
  shiftTo(seconds: number): void;
  isJumping: boolean;
  /**
   * Earliest time of the next jump, by `performance.now()`. A late confirmation of one jump must not confirm the next
   * jump.
   */
  quietUntil: number;
}

const DAY = 24 * 3600;
const JUMPS = [DAY, 6 * DAY, 400 * DAY, -3600, -DAY];
const JUMP_MS = { low: 2000, high: 20_000 };
/** Time in which all processes notice a jump. Processes check the clock every few seconds. */
const NOTICE_MS = 3000;
const CONFIRM_MS = 30_000;
const RETRY_MS = 500;
const LATE_CALL_MS = 20_000;

export async function jumpClock(world: World, random: Random): Promise<void> {
  const { clock, counts } = world;
  const seconds = random.pick(JUMPS);
  const forMs = random.integer(JUMP_MS.low, JUMP_MS.high);
  if (!clock || clock.isJumping || performance.now() < clock.quietUntil) return;
  clock.isJumping = true;
  try {
    clock.shiftTo(seconds);
    counts.clockJumps++;
    await sleep(forMs);
  } finally {
    clock.shiftTo(0);
    await confirm(world);
    clock.quietUntil = performance.now() + LATE_CALL_MS;
    clock.isJumping = false;
  }
}

/**
 * Confirms the clock like `tapegate resume clock database`. Without a confirmation, nothing expires for five minutes.
 */
async function confirm(world: World): Promise<void> {
  await sleep(NOTICE_MS);
  const input = { kind: 'CLOCK', name: 'database' };
  for (const deadline = performance.now() + CONFIRM_MS; performance.now() < deadline; await sleep(RETRY_MS)) {
    const result = await mutate(world, 'resume', input).catch(() => undefined); // the gateway or the database is down
    if (result !== undefined) return;
  }
}

/**
 * Trigger that records requests that expire before their retention by the host's clock.
 * The shift is read twice. If the values differ, the time is unknown and nothing is recorded.
 */
export const WATCH_ENDS = `
  CREATE TABLE torture_early_end (text text NOT NULL);
  CREATE FUNCTION torture_note_end() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE
    before bigint := pg_read_file('shift', 8, 24, true)::bigint;
    now timestamp := timezone('utc', clock_timestamp()) - make_interval(secs => before);
  BEGIN
    IF before = pg_read_file('shift', 8, 24, true)::bigint AND NEW.retention > now + interval '10 seconds' THEN
      INSERT INTO torture_early_end VALUES (format('request %s expired at %s, and its retention is %s', NEW.id, now, NEW.retention));
    END IF;
    RETURN NEW;
  END $$;
  CREATE TRIGGER torture_end AFTER UPDATE OF state ON request FOR EACH ROW
    WHEN (NEW.state = 'EXPIRED' AND OLD.state <> 'EXPIRED') EXECUTE FUNCTION torture_note_end();`;

export const READ_EARLY_ENDS = 'SELECT text FROM torture_early_end';
