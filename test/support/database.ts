/** A database for a test file, copied from a migrated template. */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { inject } from 'vitest';

export type TestDatabase = Awaited<ReturnType<typeof createDatabase>>;

export async function createDatabase(options: { empty?: boolean } = {}) {
  const postgres = inject('postgres');
  if (!postgres) throw new Error('this run began with tests that need no database: start another one');
  const { connection, template } = postgres;
  const name = `test_${randomUUID().replaceAll('-', '')}`;
  const admin = async (sql: string) => {
    const client = new pg.Client(connection);
    await client.connect();
    try {
      await client.query(sql);
    } finally {
      await client.end();
    }
  };
  // costs half of the strategy wal_log, in memory and without syncs
  await admin(`CREATE DATABASE ${name} TEMPLATE ${options.empty ? 'template0' : template} STRATEGY file_copy`);
  const host = encodeURIComponent(String(connection.host));
  return {
    connection: { ...connection, database: name } as pg.ClientConfig,
    /** For DATABASE_URL. */
    url: `postgresql://${connection.user}@localhost:${connection.port}/${name}?host=${host}`,
    drop: (): Promise<void> => admin(`DROP DATABASE ${name} WITH (FORCE)`),
  };
}
