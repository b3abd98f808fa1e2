/** A database of its own for each test file that asks for one. */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { inject } from 'vitest';

export interface TestDatabase {
  connection: pg.ClientConfig;
  /** The same as DATABASE_URL takes it, for processes. */
  url: string;
  drop(): Promise<void>;
}

export async function createDatabase(options: { empty?: boolean } = {}): Promise<TestDatabase> {
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
  // half as expensive as by the log, in memory and without syncs
  await admin(`CREATE DATABASE ${name} TEMPLATE ${options.empty ? 'template0' : template} STRATEGY file_copy`);
  const host = encodeURIComponent(String(connection.host));
  return {
    connection: { ...connection, database: name },
    url: `postgresql://${connection.user}@localhost:${connection.port}/${name}?host=${host}`,
    drop: () => admin(`DROP DATABASE ${name} WITH (FORCE)`),
  };
}
