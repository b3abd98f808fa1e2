/** Whether there is a database to be used. Only who is told to makes one; all others say where they looked. */
import path from 'node:path';
import pg from 'pg';
import { codeOf } from '../errors.js';
import { findCluster } from './cluster-folder.js';
import { sql } from './sql.js';

/** No database of Tapegate is where it was looked for. */
export class NoDatabaseError extends Error {}

/** @param dataDir of the embedded server @throws NoDatabaseError, or Error where something else is in its place */
export function requireCluster(dataDir: string): void {
  // the folder comes with all that is in it; what it holds another user may not see, which is told later
  if (findCluster(dataDir)) return;
  throw new NoDatabaseError(
    `there is no database: DATABASE_URL is not set, and there is none in ${path.resolve(dataDir)} (DATA_DIR); "tapegate start" makes one there, and TAPEGATE_URL names the server of one elsewhere`,
  );
}

/**
 * @param where.name in words, without a password
 * @param where.remedy which command makes one there
 * @param mayBeEmpty it is enough that there is a database
 * @throws NoDatabaseError
 */
export async function requireDatabase(
  connection: pg.ClientConfig,
  where: { name: string; remedy: string },
  mayBeEmpty: boolean,
): Promise<void> {
  const remedy = `; "tapegate ${where.remedy}" makes it`;
  const client = new pg.Client({ ...connection, ...bounds });
  client.on('error', () => {}); // the query in hand fails
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
    await client.end().catch(() => {}); // it may never have been there
  }
}

/** Makes the database that a URL names, where its server has none of that name. */
export async function makeDatabase(connectionString: string): Promise<void> {
  const probe = new pg.Client({ connectionString, ...bounds });
  probe.on('error', () => {});
  const name = probe.database ?? '';
  const isMissing = await probe.connect().then(
    () => false,
    (error) => {
      if (codeOf(error) === NO_SUCH_DATABASE) return true;
      throw error;
    },
  );
  await probe.end().catch(() => {}); // it may never have been there
  if (!isMissing) return;
  const url = new URL(connectionString);
  url.pathname = '/postgres';
  const client = new pg.Client({ connectionString: url.href, ...bounds });
  client.on('error', () => {});
  await client.connect();
  try {
    await client.query(`CREATE DATABASE ${pg.escapeIdentifier(name)}`);
  } catch (error) {
    if (!THERE_ALREADY.includes(codeOf(error) ?? '')) throw error;
  } finally {
    await client.end();
  }
}

/** A server that is silent for so long hangs. */
const ANSWER_MS = 10_000;
const bounds = { connectionTimeoutMillis: ANSWER_MS, query_timeout: ANSWER_MS };

const NO_SUCH_DATABASE = '3D000';
/** Another process was faster. */
const THERE_ALREADY = ['42P04', '23505'];
