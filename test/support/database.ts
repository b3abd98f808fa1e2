/** Databases for test files, copied from a migrated template. */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { inject } from 'vitest';

export type TestDatabase = Awaited<ReturnType<typeof createDatabase>>;

export async function createDatabase(options: { empty?: boolean } = {}) {
  const postgres = inject('postgres');
  if (!postgres) throw new Error('this run began with tests that need no database: start another one');
  const { connection, template } = postgres;
  const name = `test_${randomUUID().replaceAll('-', '')}`;
  // file_copy takes half the time of wal_log if the cluster is in memory and does not sync
  await queryOnce(
    connection,
    `CREATE DATABASE ${name} TEMPLATE ${options.empty ? 'template0' : template} STRATEGY file_copy`,
  );
  const host = encodeURIComponent(String(connection.host));
  return {
    connection: { ...connection, database: name } as pg.ClientConfig,
    /** Value for DATABASE_URL. */
    url: `postgresql://${connection.user}@localhost:${connection.port}/${name}?host=${host}`,
    /** Changes settings of the database. The changes apply to later connections. */
    set: async (settings: Readonly<Record<string, string>>): Promise<void> => {
      const changes = Object.entries(settings).map(
        ([setting, value]) => `ALTER DATABASE ${name} SET ${setting} TO ${value}`,
      );
      if (changes.length > 0) await queryOnce({ ...connection, database: name }, changes.join(';'));
    },
    drop: async (): Promise<void> => void (await queryOnce(connection, `DROP DATABASE ${name} WITH (FORCE)`)),
  };
}

/** Runs `work` with a new connection. */
export async function withClient<T>(connection: pg.ClientConfig, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client(connection);
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

/** Runs a query on a new connection. @returns the rows */
export const queryOnce = (connection: pg.ClientConfig, sql: string): Promise<Record<string, unknown>[]> =>
  withClient(connection, async (client) => (await client.query(sql)).rows);
