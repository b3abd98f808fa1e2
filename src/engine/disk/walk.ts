/** Everything that stands on a restore disk and is no folder, a batch at a time. Links are never followed. */
import type { Dirent } from 'node:fs';
import { lstat, opendir, realpath } from 'node:fs/promises';
import path from 'node:path';
import { codeOf } from '../../errors.js';
import { describeUntrusted, findProblem, readTrusted } from './exposure.js';
import { type MarkedDisk, markerName, rootOf } from './marker.js';

/** Something on a disk; `path` is below the mount point, as a logical path is. */
export interface Entry {
  path: string;
  kind: 'file' | 'link' | 'other';
}

export interface MetFolder {
  /** On disk. */
  folder: string;
  /** Below the mount point. */
  path: string;
  /** Why it cannot be read. */
  error?: unknown;
  /** Why it is not trusted; undefined for a trusted one, and for the mount point. */
  untrusted?: string | undefined;
  isEmpty: boolean;
}

const BATCH = 500;

/** Of the file system itself, in its root. */
const FOREIGN = 'lost+found';

/**
 * @param of.others mount points that may be below this one, and are walked by themselves; `group`: RESTORE_GROUP
 * @param onFolder told of each folder; one that has just gone is passed over
 * @throws TapeError TRANSIENT when the disk is not there
 */
export async function* walkDisk(
  disk: MarkedDisk,
  { others, group }: { others: readonly string[]; group: number | undefined },
  onFolder: (folder: MetFolder) => void,
): AsyncGenerator<Entry[]> {
  const root = await rootOf(disk);
  const apart = new Set(await Promise.all(others.map((other) => realpath(other).catch(() => other))));
  apart.delete(root);
  const trusted = await readTrusted(root, group);
  let batch: Entry[] = [];
  const pending = ['/'];
  for (let folder = pending.pop(); folder !== undefined; folder = pending.pop()) {
    const at = path.join(root, folder);
    let isEmpty = true;
    try {
      for await (const entry of await opendir(at)) {
        isEmpty = false;
        const below = path.join(folder, entry.name);
        if (folder === '/' && (entry.name.startsWith(markerName) || entry.name === FOREIGN)) continue;
        if (entry.isDirectory()) {
          if (!apart.has(path.join(root, below))) pending.push(below);
          continue;
        }
        batch.push({ path: below, kind: kindOf(entry) });
        if (batch.length < BATCH) continue;
        yield batch;
        batch = [];
      }
      const problem = folder === '/' ? undefined : findProblem({ directory: at, root }, await lstat(at), trusted);
      onFolder({ folder: at, path: folder, untrusted: problem && describeUntrusted(problem), isEmpty });
    } catch (error) {
      // a name that is no UTF-8 cannot be opened under what it was read as
      if (codeOf(error) !== 'ENOENT' || folder.includes('\uFFFD'))
        onFolder({ folder: at, path: folder, error, isEmpty: false });
    }
  }
  if (batch.length > 0) yield batch;
}

function kindOf(entry: Dirent): Entry['kind'] {
  if (entry.isFile()) return 'file';
  return entry.isSymbolicLink() ? 'link' : 'other';
}
