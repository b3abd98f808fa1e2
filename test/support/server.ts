/** Reads the state of a real server, its volumes and its restore area. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { startEmbedded } from '../../src/db/embedded/embedded.js';
import { markerName } from '../../src/restore-area/marker.js';
import { queryOnce } from './database.js';
import { askData, type Edges } from './graphql.js';
import { type Gateway, send } from './http.js';
import { get } from './rest.js';
import { waitFor } from './wait.js';

/** Prefix of demo files that are on one volume. */
export const DEMO = '/demo/ocean/2024';

/**
 * Returns the SHA-256 of each regular file below a directory, by path. Ignores the marker and owner record of a restore
 * disk.
 */
export function hashTree(dir: string): Record<string, string> {
  const entries = readdirSync(dir, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile() && !entry.name.startsWith(markerName));
  const hashes = files.map((entry) => {
    const file = path.join(entry.parentPath, entry.name);
    return [`/${path.relative(dir, file)}`, createHash('sha256').update(readFileSync(file)).digest('hex')];
  });
  return Object.fromEntries(hashes.sort());
}

interface TapeFile {
  path: string;
  stage: string;
  position: string;
  volume: { name: string };
}

/** Returns the catalogue entries of files whose path contains `match`. */
export async function readFiles(gateway: Gateway, match: string): Promise<TapeFile[]> {
  const query = `{ tapeFiles(match: ${JSON.stringify(match)}, first: 100) {
    edges { node { path stage position volume { name } } } } }`;
  const { tapeFiles } = await askData<{ tapeFiles: Edges<TapeFile> }>(gateway, query);
  return tapeFiles.edges.map((edge) => edge.node);
}

/** Returns the path of a file in the directory library. */
const placeOf = (dataDir: string, file: TapeFile) =>
  path.join(dataDir, 'library', file.volume.name, file.position.padStart(8, '0'));

/**
 * Returns the SHA-256 of files on tape, by catalogue path. After a complete restore, `hashTree` returns the same for
 * the disk.
 */
export async function hashVolumes(gateway: Gateway, dataDir: string, match: string): Promise<Record<string, string>> {
  const files = await readFiles(gateway, match);
  const hash = (file: TapeFile) =>
    createHash('sha256')
      .update(readFileSync(placeOf(dataDir, file)))
      .digest('hex');
  return Object.fromEntries(files.map((file) => [file.path, hash(file)]).sort());
}

/** Ends all leases, so that recalls of killed engines continue at once. */
export async function endLeases(dataDir: string): Promise<void> {
  const embedded = await startEmbedded({ dataDir: path.join(dataDir, 'postgres') });
  const sql = `UPDATE drive SET lease_until = timezone('utc', now()) WHERE lease_until IS NOT NULL`;
  await queryOnce(embedded.config('tapegate'), sql);
  await embedded.close();
}

/** Time limit, longer than a lease: a killed process' active recall continues only after the lease has ended. */
const END_MS = 60_000;

export async function waitForEnd(gateway: Gateway, id: number): Promise<void> {
  const isOver = async () => {
    const { body } = await get(gateway, `/requests/${id}`); // the call fails while the database is down
    return (body as [{ last_files_on_disk?: string }])[0].last_files_on_disk ?? undefined;
  };
  await waitFor(`request ${id} to be complete`, isOver, END_MS);
}

export const isReady = (gateway: Gateway) =>
  send(gateway, '/health/ready').then(
    ({ status }) => status === 200,
    () => false,
  );
