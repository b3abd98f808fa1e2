/** One PostgreSQL server for the whole run, thrown away afterwards, with a migrated template for each test file. */
import { rmSync } from 'node:fs';
import path from 'node:path';
import type { ClientConfig } from 'pg';
import type { TestProject } from 'vitest/node';
import { startEmbedded } from '../../src/database/embedded.js';
import { migrate } from '../../src/database/migrate.js';
import { makeTempDir } from './temp-dir.js';

declare module 'vitest' {
  export interface ProvidedContext {
    postgres: { connection: ClientConfig; template: string };
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const dir = makeTempDir();
  // nothing of it has to survive a power cut
  const settings = { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off', max_connections: 300 };
  const server = await startEmbedded({ dataDir: path.join(dir, 'postgres'), settings });
  const template = 'template_tapegate';
  await server.ensureDatabase(template);
  await migrate(server.config(template));
  project.provide('postgres', { connection: server.config('postgres'), template });
  return async () => {
    await server.close();
    rmSync(dir, { recursive: true, force: true });
  };
}
