/** A database that version 1.0.0 wrote works with this version: nothing in it is lost, and its queued request is restored. */
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { afterAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { migrate } from '../../src/db/migrate.js';
import { createDatabase, type TestDatabase, withClient } from '../support/database.js';
import { askData } from '../support/graphql.js';
import { cleanUp, makeDataDir, runCli, startServer, stop } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { makeTempDir } from '../support/temp-dir.js';

const RELEASE = '1.0.0';
const LAST_MIGRATION = '20261120000000_init';

afterAll(cleanUp);

/** Creates a database with the schema and the rows of the release. `<release>.json` contains the rows of each table. */
async function createReleased(): Promise<TestDatabase> {
  const database = await createDatabase({ empty: true });
  const migrations = makeTempDir();
  for (const name of [LAST_MIGRATION, 'compatibility.json'])
    cpSync(path.join(packageRoot, 'prisma/migrations', name), path.join(migrations, name), { recursive: true });
  expect(await migrate(database.connection, pg.Client, migrations)).toEqual([LAST_MIGRATION]);
  const file = path.join(packageRoot, `test/support/releases/${RELEASE}.json`);
  const tables: Record<string, object[]> = JSON.parse(readFileSync(file, 'utf8'));
  await withClient(database.connection, async (client) => {
    await client.query('SET session_replication_role = replica'); // the rows refer to each other
    for (const [table, rows] of Object.entries(tables)) {
      await client.query(`DELETE FROM ${table}`);
      const query = `INSERT INTO ${table} SELECT * FROM json_populate_recordset(NULL::${table}, $1)`;
      await client.query(query, [JSON.stringify(rows)]);
    }
    await client.query(`SELECT setval(s.seqrelid, 1000) FROM pg_sequence s`);
  });
  return database;
}

function writeLibrary(dataDir: string): void {
  for (const [volume, position, text] of [
    ['V1', '00000001', '/one/a'],
    ['V2', '00000002', '/one/b'],
  ] as const) {
    const directory = path.join(dataDir, 'library', volume);
    mkdirSync(directory, { recursive: true });
    writeFileSync(path.join(directory, position), text);
  }
}

test('a database of version 1.0.0 keeps its objects, and its queued request is restored', async () => {
  const database = await createReleased();
  const dataDir = makeDataDir();
  writeLibrary(dataDir);
  const env = { DATABASE_URL: database.url, DATA_DIR: dataDir, LOG_LEVEL: 'fatal', DEMO: 'off' };
  const run = async (...args: string[]) => {
    const { code, stdout, stderr } = await runCli(args, { env });
    expect({ args, code, stderr }).toEqual({ args, code: 0, stderr: expect.any(String) });
    return stdout;
  };
  await run('migrate');
  await run('disk', 'add', path.join(dataDir, 'restore'), '--size', '1G', '--create');
  expect(await run('member', 'list', 'alice')).toMatch(/^user carol +manager$/m);
  expect(await run('rule', 'list')).toMatch(/^\/two +fetch +user bob$/m);
  expect(await run('token', 'list')).toMatch(/alice +user/);
  expect(await run('webhook', 'list')).toContain('https://example.org/hook');
  expect((await run('audit')).trim().split('\n').length).toBeGreaterThan(11);
  await run('resume', 'volume', 'V2');
  const gateway = await startServer('start', { env: { ...env, PORT: '0' } });
  await waitForState(gateway, 1, 'COMPLETED');
  expect(readFileSync(path.join(dataDir, 'restore/one/b'), 'utf8')).toBe('/one/b');
  const query = `{ quota(user: "alice") { notes size used requests { edges { node { label state } } } } }`;
  expect(await askData(gateway, query)).toEqual({
    quota: {
      ...{ notes: 'from 1.0.0', size: '1000000000', used: '12' },
      requests: {
        edges: [
          { node: { label: 'cancelled', state: 'CANCELLED' } },
          { node: { label: 'queued', state: 'COMPLETED' } },
        ],
      },
    },
  });
  expect(await run('doctor')).toContain('no findings');
  expect((await stop(gateway)).code).toBe(0);
  await database.drop();
});
