/** What a real server says, and what its volumes and its restore area hold. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect } from 'vitest';
import { markerName } from '../../src/engine/disk/marker.js';
import { waitFor } from './app.js';

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
  position: number;
  volume: { name: string };
}

export async function ask<T>(url: string, query: string): Promise<T> {
  const response = await fetch(`${url}/graphql`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ query }),
  });
  const { data, errors } = (await response.json()) as { data: T; errors?: unknown };
  if (errors) throw new Error(JSON.stringify(errors));
  return data;
}

/** What the catalogue says of the files whose path holds a text. */
export async function readFiles(url: string, match: string): Promise<TapeFile[]> {
  const query = `{ tapeFiles(match: ${JSON.stringify(match)}, first: 100) {
    edges { node { path stage position volume { name } } } } }`;
  const { tapeFiles } = await ask<{ tapeFiles: { edges: { node: TapeFile }[] } }>(url, query);
  return tapeFiles.edges.map((edge) => edge.node);
}

/** Where the directory library has a file. */
const placeOf = (dataDir: string, file: TapeFile) =>
  path.join(dataDir, 'library', file.volume.name, String(file.position).padStart(8, '0'));

/** What the restore area should hold: the bytes of the volumes under the paths of the catalogue. */
export async function hashVolumes(url: string, dataDir: string, match: string): Promise<Record<string, string>> {
  const files = await readFiles(url, match);
  const hash = (file: TapeFile) =>
    createHash('sha256')
      .update(readFileSync(placeOf(dataDir, file)))
      .digest('hex');
  return Object.fromEntries(files.map((file) => [file.path, hash(file)]).sort());
}

export async function post(url: string, body: object): Promise<number> {
  const response = await fetch(`${url}/tape_control/api/v1/requests`, { method: 'POST', body: JSON.stringify([body]) });
  const [answer] = (await response.json()) as [{ req_id: number }];
  expect(response.status).toBe(200);
  return answer.req_id;
}

/** A recall that a killed process had in hand waits for the end of its lease. */
const END_MS = 60_000;

export async function waitForEnd(url: string, id: number): Promise<void> {
  const isOver = async () => {
    const response = await fetch(`${url}/tape_control/api/v1/requests/${id}`);
    const [request] = (await response.json()) as [{ last_files_on_disk?: string }];
    return request.last_files_on_disk;
  };
  await waitFor(`request ${id} to be complete`, isOver, END_MS);
}

export const isReady = (url: string) =>
  fetch(`${url}/health/ready`).then(
    (response) => response.status === 200,
    () => false,
  );
