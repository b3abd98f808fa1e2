/**
 * A site that changes settings of the database role for other programs. All connections are then closed and reopened.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { DATABASE_USER } from '../../src/db/embedded/cluster.js';
import { siteSettings } from '../support/site-settings.js';
import type { Random } from './random.js';
import type { World } from './world.js';

const SET_MS = { low: 2000, high: 10_000 };
const RESET_TRIES = 60;
const RETRY_MS = 500;

/** Tables that hide Tapegate's tables if a connection uses the site's `search_path`. */
const HIDE = ['request', 'request_file', 'tape_file'].map(
  (name) => `CREATE TABLE IF NOT EXISTS elsewhere.${name} (id int)`,
);

const RECONNECT = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
  WHERE backend_type = 'client backend' AND usename = '${DATABASE_USER}' AND pid <> pg_backend_pid()`;

export async function changeRole(world: World, random: Random): Promise<void> {
  const { pool } = world.ctx.db;
  const settings = Object.entries(siteSettings);
  const some = random.sample(settings, random.integer(1, settings.length));
  const forMs = random.integer(SET_MS.low, SET_MS.high);
  const reconnectsAfter = random.chance(0.5);
  const set = some.map(([name, value]) => `ALTER ROLE ${DATABASE_USER} SET ${name} TO ${value}`);
  try {
    await pool.query(['CREATE SCHEMA IF NOT EXISTS elsewhere', ...HIDE, ...set].join(';'));
    world.counts.roleChanges++;
    await pool.query(RECONNECT);
    await sleep(forMs);
  } finally {
    await reset(world);
  }
  if (reconnectsAfter) await pool.query(RECONNECT);
}

async function reset({ ctx }: World): Promise<void> {
  for (let triesLeft = RESET_TRIES; triesLeft > 0; triesLeft--) {
    const done = ctx.db.pool.query(`ALTER ROLE ${DATABASE_USER} RESET ALL`).then(
      () => true,
      () => false, // the database is down
    );
    if (await done) return;
    await sleep(RETRY_MS);
  }
}
