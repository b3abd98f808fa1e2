/** Checks that a database exists. Only some commands create one; all others report where they looked. */
import path from 'node:path';
import pg from 'pg';
import { codeOf } from '../errors.js';
import { findCluster } from './cluster.js';
import { sql } from './sql.js';

class NoDatabaseError extends Error {}

/** @param dataDir of the embedded server @throws NoDatabaseError, or Error if it is not a directory */
export function requireCluster(dataDir: string): void {
  // a directory is enough: another user may not see what it contains, and gets an error later
  if (findCluster(dataDir)) return;
  throw new NoDatabaseError(
    `there is no database: DATABASE_URL is not set, and there is none in ${path.resolve(dataDir)} (DATA_DIR); "tapegate start" makes one there, and TAPEGATE_URL names the server of one elsewhere`,
  );
}

/**
 * @param where.name for people, without a password
 * @param where.remedy the command that creates it
 * @param mayBeEmpty accepts a database without Tapegate's tables
 * @throws NoDatabaseError
 */
export async function requireDatabase(
  connection: pg.ClientConfig,
  where: { name: string; remedy: string },
  mayBeEmpty: boolean,
): Promise<void> {
  const remedy = `; "tapegate ${where.remedy}" makes it`;
  const client = new pg.Client({ ...connection, ...bounds });
  client.on('error', () => {}); // the running query fails
  try {
    await client.connect();
    const { rows } = await client.query<{ isThere: boolean }>(
      sql`SELECT to_regclass('_prisma_migrations') IS NOT NULL AND to_regclass('tape_file') IS NOT NULL AS "isThere"`,
    );
    if (!rows[0]?.isThere && !mayBeEmpty) {
      throw new NoDatabaseError(`there is no database of Tapegate in ${where.name}${remedy}`);
    }
  } catch (error) {
    if (codeOf(error) !== NO_SUCH_DATABASE) throw error;
    throw new NoDatabaseError(`there is no database ${where.name}${remedy}`);
  } finally {
    await client.end().catch(() => {}); // it may never have connected
  }
}

export async function makeDatabase(connectionString: string): Promise<void> {
  const probe = new pg.Client({ connectionString, ...bounds });
  probe.on('error', () => {});
  try {
    await probe.connect();
  } catch (error) {
    if (codeOf(error) !== NO_SUCH_DATABASE) throw error;
    const url = new URL(connectionString);
    url.pathname = '/postgres';
    await createDatabase({ connectionString: url.href }, probe.database ?? '');
  } finally {
    await probe.end().catch(() => {}); // the connection may have failed
  }
}

/** Creates a database unless it exists. @param connection to another database of the server */
export async function createDatabase(connection: pg.ClientConfig, name: string): Promise<void> {
  const client = new pg.Client({ ...connection, ...bounds, query_timeout: CREATE_MS });
  client.on('error', () => {}); // the query fails
  await client.connect();
  try {
    await client.query(`CREATE DATABASE ${pg.escapeIdentifier(name)}`);
  } catch (error) {
    if (!EXISTS.includes(codeOf(error) ?? '')) throw error;
  } finally {
    await client.end();
  }
}

/** A server that does not answer for this long hangs. */
const ANSWER_MS = 10_000;
const CREATE_MS = 60_000;
const bounds = { connectionTimeoutMillis: ANSWER_MS, query_timeout: ANSWER_MS };

const NO_SUCH_DATABASE = '3D000';
/** The second if another process was faster. */
const EXISTS = ['42P04', '23505'];
