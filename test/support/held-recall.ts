/** Blocks the end of a recall on a real server until the test continues. */
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { expect } from 'vitest';
import { startEmbedded } from '../../src/db/embedded/embedded.js';
import type { Gateway } from './http.js';
import { runCli } from './process.js';
import { makeRequest } from './rest.js';
import { waitFor } from './wait.js';

const BYTES = randomBytes(100_000);

/**
 * Requests the file `/held/<volume>`, and waits until the copy is on disk. A row lock then blocks the end of the
 * recall.
 * The lock ends when `open` is called or the database server is killed.
 */
export async function holdRecall(
  gateway: Gateway,
  dataDir: string,
  volume: string,
): Promise<{ id: number; open(): Promise<void> }> {
  const file = `/held/${volume}`;
  const directory = path.join(dataDir, 'library', volume);
  mkdirSync(directory, { recursive: true });
  writeFileSync(path.join(directory, '00000001'), BYTES);
  const row = { path: file, size: BYTES.length, stage: 'T', volume, position: 1 };
  const run = async (args: string[], stdin = '') => {
    expect(await runCli(args, { env: { DATA_DIR: dataDir }, stdin })).toMatchObject({ code: 0 });
  };
  await run(['import', '-'], JSON.stringify(row));
  await run(['quota', 'set', 'held', '--size', '1G']);
  await run(['suspend', 'volume', volume]);
  const id = await makeRequest(gateway, { quota: 'held', files: [file] });
  const client = await connect(dataDir);
  await client.query('BEGIN');
  await client.query('SELECT FROM request_file WHERE request_id = $1 FOR UPDATE', [id]);
  await run(['resume', 'volume', volume]);
  await waitFor('the copy of the held recall', async () => existsSync(path.join(dataDir, 'restore', file)));
  await client.query('CHECKPOINT'); // a kill would lose recent commits, because test databases commit asynchronously
  return { id, open: () => client.end() };
}

/** Connects to the database, without keeping the server alive or restarting it later. */
async function connect(dataDir: string): Promise<pg.Client> {
  const embedded = await startEmbedded({ dataDir: path.join(dataDir, 'postgres') });
  const client = new pg.Client(embedded.config('tapegate'));
  client.on('error', () => {}); // the test may kill the server
  await client.connect();
  await embedded.close();
  return client;
}
