/** What is there of all that the stranger has made, and what has landed where only he puts things. */
import { createHash } from 'node:crypto';
import { lstat, readdir, readFile, readlink } from 'node:fs/promises';
import path from 'node:path';
import type { Belonging, Stranger } from './stranger.js';

/** As the checker is told of it. */
export interface Strange {
  belongings: ReadonlyMap<string, Pick<Belonging, 'ino' | 'kind'>>;
  /** Folders that were there before Tapegate, by their places. */
  folders: ReadonlyMap<string, bigint>;
  /** What is gone of it, or was, or is another thing: sentences. */
  losses: readonly string[];
  landed: readonly string[];
}

export const nothingStrange: Strange = { belongings: new Map(), folders: new Map(), losses: [], landed: [] };

export async function lookAtStranger(stranger: Stranger | undefined): Promise<Strange> {
  if (!stranger) return nothingStrange;
  const { belongings, folders, losses } = stranger;
  const now = await findLosses(stranger);
  return { belongings, folders, losses: [...new Set([...losses, ...now])], landed: await findLanded(stranger) };
}

/** @returns for each thing that is gone, or another one, a sentence */
export async function findLosses({ belongings, folders }: Pick<Stranger, 'belongings' | 'folders'>): Promise<string[]> {
  const losses: string[] = [];
  for (const [place, belonging] of belongings) {
    const loss = await findLoss(place, belonging).catch((error: Error) => error.message);
    // a deed may have taken it away meanwhile
    if (loss !== undefined && belongings.get(place) === belonging) losses.push(`${belonging.kind} ${place}: ${loss}`);
  }
  for (const [place, ino] of folders) {
    const stats = await lstat(place, { bigint: true }).catch(() => undefined);
    if (stats?.ino !== ino) losses.push(`folder ${place}: ${stats ? 'it is another one' : 'it is gone'}`);
  }
  return losses;
}

async function findLoss(place: string, { ino, kind, content }: Belonging): Promise<string | undefined> {
  const stats = await lstat(place, { bigint: true }).catch(() => undefined);
  if (!stats) return 'it is gone';
  if (stats.ino !== ino) return `it is another one, with inode ${stats.ino} and not ${ino}`;
  const found = kind === 'file' ? hashOf(await readFile(place)) : kind === 'link' ? await readlink(place) : content;
  return found === content ? undefined : 'it has other bytes';
}

const hashOf = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

/** Files below a folder outside that he has neither made nor moved there; partial files go with their folder. */
export async function findLanded({
  home,
  belongings,
  carried,
}: Pick<Stranger, 'home' | 'belongings' | 'carried'>): Promise<string[]> {
  const his = new Set([...belongings.values()].map(({ ino }) => ino));
  const landed: string[] = [];
  const pending = [home];
  for (let dir = pending.pop(); dir !== undefined; dir = pending.pop()) {
    for (const entry of await readdir(dir, { withFileTypes: true }).catch(() => [])) {
      const place = path.join(dir, entry.name);
      if (entry.isDirectory()) pending.push(place);
      if (!entry.isFile() || /^new-|\.part$/.test(entry.name)) continue;
      const stats = await lstat(place, { bigint: true }).catch(() => undefined);
      if (stats && stats.uid === 0n && !his.has(stats.ino) && !carried.has(stats.ino)) landed.push(place);
    }
  }
  return landed;
}
