/** The directory tree that is to be archived, file by file. Links are never followed. */
import type { Dirent } from 'node:fs';
import { lstat, opendir } from 'node:fs/promises';
import path from 'node:path';
import { messageOf } from '../../errors.js';
import { checkPath } from '../../operations/input.js';
import type { Source } from './source.js';

/** What is passed over; both grow while the walk goes on. */
export interface PassedOver {
  /** Links and other things that are no regular files. */
  skipped: number;
  /** A line each: path and reason. */
  failed: string[];
}

/**
 * The regular files below a directory, those of a folder in order of their names.
 * @param from.prefix put before the paths below `dir`; `/` unless given
 * @throws what kept the directory itself from being read
 */
export async function* walkSources(
  from: { dir: string; prefix?: string },
  passedOver: PassedOver,
): AsyncGenerator<Source> {
  const prefix = `/${from.prefix ?? ''}/`.replace(/\/+/g, '/');
  const pending = [''];
  for (let relative = pending.pop(); relative !== undefined; relative = pending.pop()) {
    const entries = await readFolder(path.join(from.dir, relative)).catch((error: unknown) => {
      if (relative === '') throw error;
      passedOver.failed.push(`${path.join(from.dir, relative)}: ${messageOf(error)}`);
      return [];
    });
    const folders: string[] = [];
    for (const entry of entries) {
      const below = path.join(relative, entry.name);
      if (entry.isDirectory()) folders.push(below);
      else if (!entry.isFile()) passedOver.skipped++;
      else {
        const file = path.join(from.dir, below);
        try {
          yield await findSource(file, prefix + below);
        } catch (error) {
          passedOver.failed.push(`${file}: ${messageOf(error)}`);
        }
      }
    }
    for (const folder of folders.reverse()) pending.push(folder);
  }
}

async function findSource(file: string, logicalPath: string): Promise<Source> {
  const { size, ino, mtimeNs } = await lstat(file, { bigint: true });
  return { file, path: checkPath('path', logicalPath), size, ino, mtimeNs };
}

async function readFolder(dir: string): Promise<Dirent[]> {
  const entries: Dirent[] = [];
  for await (const entry of await opendir(dir)) entries.push(entry);
  return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
}
