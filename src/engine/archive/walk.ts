/** The directory tree that is to be archived, file by file. Links are never followed. */
import { isUtf8 } from 'node:buffer';
import type { Dirent } from 'node:fs';
import { lstat, opendir, realpath } from 'node:fs/promises';
import path from 'node:path';
import { messageOf } from '../../errors.js';
import { attributesOf } from '../../operations/catalogue/attributes.js';
import { findPathProblem } from '../../operations/input.js';
import { inFolder, type Source } from './source.js';

/** What is passed over; both grow while the walk goes on. */
export interface PassedOver {
  /** Links and other things that are no regular files. */
  skipped: number;
  /** A line each: path and reason. */
  failed: string[];
}

/** Told of each thing that is passed over since it is no regular file, and of what it is. */
export type OnSkip = (file: string, kind: string) => void;

/**
 * The regular files below a directory, those of a folder in order of their names.
 * @param from.prefix put before the paths below `dir`; `/` unless given
 * @throws what kept the directory itself from being read
 */
export async function* walkSources(
  from: { dir: string; prefix?: string },
  passedOver: PassedOver,
  onSkip: OnSkip = () => {},
): AsyncGenerator<Source> {
  const prefix = `/${from.prefix ?? ''}/`.replace(/\/+/g, '/');
  const root = await realpath(from.dir);
  const pending = [''];
  for (let relative = pending.pop(); relative !== undefined; relative = pending.pop()) {
    const dir = path.join(from.dir, relative);
    const folder = path.join(root, relative);
    const entries = await inFolder(folder, (at) => readFolder(at, dir, passedOver)).catch((error: unknown) => {
      if (relative === '') throw error;
      passedOver.failed.push(`${dir}: ${messageOf(error)}`);
      return [];
    });
    const folders: string[] = [];
    for (const { name, entry } of entries) {
      const below = path.join(relative, name);
      const file = path.join(from.dir, below);
      if (entry.isDirectory()) folders.push(below);
      else if (!entry.isFile()) {
        passedOver.skipped++;
        onSkip(file, describeKind(entry));
      } else {
        try {
          yield await findSource({ file, folder, path: prefix + below });
        } catch (error) {
          passedOver.failed.push(`${file}: ${messageOf(error)}`);
        }
      }
    }
    for (const below of folders.reverse()) pending.push(below);
  }
}

async function findSource(found: Pick<Source, 'file' | 'folder' | 'path'>): Promise<Source> {
  const problem = findPathProblem(found.path);
  if (problem) throw new Error(`its path ${problem}`);
  const name = path.basename(found.file);
  const stats = await inFolder(found.folder, (at) => lstat(path.join(at, name), { bigint: true }));
  const { size, ino, mtimeNs } = stats;
  return { ...found, size, ino, mtimeNs, ...attributesOf(stats) };
}

type Entry = Dirent<Buffer>;

/** A name is bytes, and a path of the catalogue is text: what is no UTF-8 would come back under another name. */
async function readFolder(at: string, dir: string, { failed }: PassedOver): Promise<{ name: string; entry: Entry }[]> {
  const entries: { name: string; entry: Entry }[] = [];
  // the types do not know that names may be bytes
  const open = (await opendir(at, { encoding: 'buffer' as BufferEncoding })) as unknown as AsyncIterable<Entry>;
  for await (const entry of open) {
    if (isUtf8(entry.name)) entries.push({ name: entry.name.toString('utf8'), entry });
    else failed.push(`${path.join(dir, escapeBytes(entry.name))}: its name is not UTF-8`);
  }
  return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** Bytes that are no ASCII as \xE9, as a shell takes them in $'…'. */
function escapeBytes(name: Buffer): string {
  return [...name]
    .map((byte) =>
      byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, '0')}`,
    )
    .join('');
}

function describeKind(entry: Entry): string {
  if (entry.isSymbolicLink()) return 'a link';
  if (entry.isFIFO()) return 'a pipe';
  if (entry.isSocket()) return 'a socket';
  return entry.isBlockDevice() || entry.isCharacterDevice() ? 'a device' : 'no regular file';
}
