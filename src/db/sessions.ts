/**
 * Detects a connection pooler that lends a server connection for only one transaction or statement. Tapegate requires
 * sessions, because LISTEN, advisory locks, prepared statements and settings belong to a session.
 */
import type pg from 'pg';
import { messageOf } from '../core/errors.js';
import { BareClient, connect } from './line.js';

const NO_SESSIONS =
  'a pooler between Tapegate and the database shares connections between sessions (transaction or statement mode): set pool_mode=session for this database and user in PgBouncer, or use the address of the database server itself in the URL';

const ANSWER_MS = 10_000;

/**
 * Compares an idle client's server process with the processes of two clients that have open transactions. A pooler in
 * transaction mode lets another client use the idle client's server connection. The comparison does not change the
 * state of any session.
 * @throws Error if sessions share server connections
 */
export async function requireSessions(config: pg.ClientConfig): Promise<void> {
  const clients: pg.Client[] = [];
  const open = async () => {
    const bounds = { connectionTimeoutMillis: ANSWER_MS, query_timeout: ANSWER_MS };
    const client = await connect(() => new BareClient({ ...config, ...bounds }));
    clients.push(client);
    return client;
  };
  try {
    const session = await open();
    const own = await readPid(session);
    for (let others = 0; others < 2; others++) {
      const other = await open();
      await other.query('BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY');
      const isShared = (await readPid(other)) === own || (await readPid(session)) !== own;
      if (isShared) throw new Error(NO_SESSIONS);
    }
  } catch (error) {
    if (/statement pooling/.test(messageOf(error))) throw new Error(NO_SESSIONS, { cause: error });
    throw error;
  } finally {
    await Promise.all(clients.map((client) => client.end().catch(() => {})));
  }
}

async function readPid(client: pg.Client): Promise<number | undefined> {
  const { rows } = await client.query<{ pid: number }>('SELECT pg_catalog.pg_backend_pid() AS pid');
  return rows[0]?.pid;
}
