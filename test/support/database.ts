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
  const { connection, template } = inject('postgres');
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
  await admin(`CREATE DATABASE ${name} TEMPLATE ${options.empty ? 'template0' : template} STRATEGY wal_log`);
  const host = encodeURIComponent(String(connection.host));
  return {
    connection: { ...connection, database: name },
    url: `postgresql://${connection.user}@localhost:${connection.port}/${name}?host=${host}`,
    drop: () => admin(`DROP DATABASE ${name} WITH (FORCE)`),
  };
}
