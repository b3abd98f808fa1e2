/** What a real server says, and what its volumes and its restore area hold. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { startEmbedded } from '../../src/database/embedded.js';
import { markerName } from '../../src/engine/disk/marker.js';
import { askData, type Edges } from './graphql.js';
import { type Gateway, send } from './http.js';
import { get } from './rest.js';
import { waitFor } from './wait.js';

/** Files of the demo, on a volume of their own. */
export const DEMO = '/demo/ocean/2024';

/** SHA-256 of every regular file below a directory, but for the marker of a restore disk, by its path there. */
export function hashTree(dir: string): Record<string, string> {
  const entries = readdirSync(dir, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile() && entry.name !== markerName);
  const hashes = files.map((entry) => {
    const file = path.join(entry.parentPath, entry.name);
    return [`/${path.relative(dir, file)}`, createHash('sha256').update(readFileSync(file)).digest('hex')];
  });
  return Object.fromEntries(hashes.sort());
}

export interface TapeFile {
  path: string;
  stage: string;
  position: string;
  volume: { name: string };
}

/** What the catalogue says of the files whose path holds a text. */
export async function readFiles(gateway: Gateway, match: string): Promise<TapeFile[]> {
  const query = `{ tapeFiles(match: ${JSON.stringify(match)}, first: 100) {
    edges { node { path stage position volume { name } } } } }`;
  const { tapeFiles } = await askData<{ tapeFiles: Edges<TapeFile> }>(gateway, query);
  return tapeFiles.edges.map((edge) => edge.node);
}

/** Where the directory library has a file. */
const placeOf = (dataDir: string, file: TapeFile) =>
  path.join(dataDir, 'library', file.volume.name, file.position.padStart(8, '0'));

/** What the restore area should hold: the bytes of the volumes under the paths of the catalogue. */
export async function hashVolumes(gateway: Gateway, dataDir: string, match: string): Promise<Record<string, string>> {
  const files = await readFiles(gateway, match);
  const hash = (file: TapeFile) =>
    createHash('sha256')
      .update(readFileSync(placeOf(dataDir, file)))
      .digest('hex');
  return Object.fromEntries(files.map((file) => [file.path, hash(file)]).sort());
}

/** Lets the leases end of what was killed, while the server of the database runs. */
export async function endLeases(dataDir: string): Promise<void> {
  const embedded = await startEmbedded({ dataDir: path.join(dataDir, 'postgres') });
  const client = new pg.Client(embedded.config('tapegate'));
  await client.connect();
  await client.query(`UPDATE drive SET lease_until = timezone('utc', now()) WHERE lease_until IS NOT NULL`);
  await client.end();
  await embedded.close();
}

/** A recall that a killed process had in hand waits for the end of its lease. */
const END_MS = 60_000;

export async function waitForEnd(gateway: Gateway, id: number): Promise<void> {
  const isOver = async () => {
    const { body } = await get(gateway, `/requests/${id}`); // an error while the database is away
    return (body as [{ last_files_on_disk?: string }])[0].last_files_on_disk ?? undefined;
  };
  await waitFor(`request ${id} to be complete`, isOver, END_MS);
}

export const isReady = (gateway: Gateway) =>
  send(gateway, '/health/ready').then(
    ({ status }) => status === 200,
    () => false,
  );
