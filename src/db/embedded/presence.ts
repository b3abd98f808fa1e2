/** Checks that a database exists, for commands that do not create a database. */
import path from 'node:path';
import pg from 'pg';
import { codeOf, messageOf } from '../../core/errors.js';
import { BareClient, connect, SocketClient } from '../line.js';
import { checkRequirements } from '../requirements.js';
import { requireSessions } from '../sessions.js';
import { sql } from '../sql.js';
import { findCluster } from './cluster.js';

class NoDatabaseError extends Error {}

/**
 * @throws NoDatabaseError if the embedded server's directory `dataDir` does not exist
 * @throws Error if `dataDir` is not a directory
 */
export function requireCluster(dataDir: string): void {
  if (findCluster(dataDir)) return;
  throw new NoDatabaseError(
    `there is no database: DATABASE_URL is not set, and ${path.resolve(dataDir)} (DATA_DIR) does not exist; run "tapegate start" to create one there, or set TAPEGATE_URL to use a remote server`,
  );
}

/**
 * @param where.name text that names the database in error messages: its address without a password, or its directory
 * @param where.remedy the command that creates the database
 * @param mayBeEmpty whether to accept a database without Tapegate's tables
 * @throws NoDatabaseError if the database is missing
 * @throws Error if the database does not meet Tapegate's requirements
 */
export async function requireDatabase(
  connection: pg.ClientConfig,
  where: { name: string; remedy: string },
  mayBeEmpty: boolean,
): Promise<void> {
  const remedy = `; run "tapegate ${where.remedy}" to create it`;
  let client: pg.Client | undefined;
  try {
    if (connection.connectionString !== undefined) await requireSessions(connection);
    client = await connect(() => new SocketClient({ ...connection, ...bounds }));
    await checkRequirements(client);
    const { rows } = await client.query<{ isThere: boolean }>(
      sql`SELECT to_regclass('_prisma_migrations') IS NOT NULL AND to_regclass('tape_file') IS NOT NULL AS "isThere"`,
    );
    if (!rows[0]?.isThere && !mayBeEmpty) {
      throw new NoDatabaseError(`there is no Tapegate database in ${where.name}${remedy}`);
    }
  } catch (error) {
    if (!isMissing(error)) throw error;
    throw new NoDatabaseError(`there is no database ${where.name}${remedy}`);
  } finally {
    await client?.end().catch(() => {}); // ignore errors while closing, because the connection might have failed
  }
}

export async function makeDatabase(connectionString: string): Promise<void> {
  try {
    const probe = await connect(() => new BareClient({ connectionString, ...bounds }));
    await probe.end().catch(() => {}); // ignore errors while closing, because the connection might have failed
  } catch (error) {
    if (!isMissing(error)) throw error;
    const { database = '' } = new SocketClient({ connectionString });
    const url = new URL(connectionString);
    url.pathname = '/postgres';
    await createDatabase({ connectionString: url.href }, database);
  }
}

/**
 * Creates a database if it does not exist.
 * @param connection connection settings for another database on the same server
 */
export async function createDatabase(connection: pg.ClientConfig, name: string): Promise<void> {
  const client = await connect(() => new SocketClient({ ...connection, ...bounds, query_timeout: CREATE_MS }));
  try {
    await client.query(`CREATE DATABASE ${pg.escapeIdentifier(name)}`);
  } catch (error) {
    if (!EXISTS.includes(codeOf(error) ?? '')) throw error;
  } finally {
    await client.end();
  }
}

const ANSWER_MS = 10_000;
const CREATE_MS = 60_000;
const bounds = { connectionTimeoutMillis: ANSWER_MS, query_timeout: ANSWER_MS };

const NO_SUCH_DATABASE = '3D000';

/**
 * Returns whether an error says that the database does not exist. PgBouncer reports a missing database as a protocol
 * violation.
 */
function isMissing(error: unknown): boolean {
  return (
    codeOf(error) === NO_SUCH_DATABASE || /^(no such database|database ".*" does not exist)/.test(messageOf(error))
  );
}

/**
 * Error codes for a database that already exists. The second code occurs if two processes create a database at the same
 * time.
 */
const EXISTS = ['42P04', '23505'];
