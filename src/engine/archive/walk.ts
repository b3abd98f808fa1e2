/**
 * Finds the files below a directory that is to be archived, and opens, recognises and removes them.
 *
 * Links are never followed. Directories that Tapegate keeps itself are no sources: their files are its own copies.
 */
import { isUtf8 } from 'node:buffer';
import { type BigIntStats, constants, type Dirent } from 'node:fs';
import { type FileHandle, lstat, open, opendir, readlink, realpath, unlink } from 'node:fs/promises';
import path from 'node:path';
import type { Context } from '../../context.js';
import { codeOf, messageOf } from '../../errors.js';
import { attributesOf, type FileAttributes } from '../../operations/catalogue/attributes.js';
import { listDisks } from '../../operations/disks/disks.js';
import { findPathProblem } from '../../operations/input.js';
import { openPlain } from '../checksum.js';

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

/**
 * Removing the sources of such a tree would remove tape copies as files that are safe on tape.
 * @throws Error when the directory holds, or lies in, the library, the embedded database or a restore disk
 */
export async function refuseOwnFolders(ctx: Context, dir: string): Promise<void> {
  const { dataDir } = ctx.config;
  const own = [path.resolve(dataDir, 'library'), path.resolve(dataDir, 'postgres')];
  for (const { mountpoint } of await listDisks(ctx)) own.push(mountpoint);
  const real = await realpath(dir);
  for (const folder of own) {
    const place = await realpath(folder).catch((error: unknown) => {
      if (['ENOENT', 'ENOTDIR', 'EACCES'].includes(codeOf(error) ?? '')) return undefined;
      throw error;
    });
    if (place === undefined || !(isWithin(place, real) || isWithin(real, place))) continue;
    throw new Error(`${dir} cannot be archived: Tapegate keeps its own files in ${folder}`);
  }
}

function isWithin(place: string, folder: string): boolean {
  return `${place}/`.startsWith(`${folder.replace(/\/+$/, '')}/`);
}

/** A regular file as the walk found it. */
export interface Source extends Partial<FileAttributes> {
  file: string;
  /** Where it was found, without links. */
  folder: string;
  /** The logical path that it gets. */
  path: string;
  /** Bytes. */
  size: bigint;
  /** What tells the file as it was found from a changed one: inode, and modification time in nanoseconds. */
  ino: bigint;
  mtimeNs: bigint;
}

/** Is it another file, or were other bytes written to it? Only as far as inode, size and time tell. */
export function isChanged(source: Source, { size, ino, mtimeNs }: BigIntStats): boolean {
  return size !== source.size || ino !== source.ino || mtimeNs !== source.mtimeNs;
}

/** Uses a source while it is open for reading. @throws TapeError POLICY when a link or a pipe has taken its place since */
export async function withSource<T>(source: Source, use: (handle: FileHandle) => Promise<T>): Promise<T> {
  const handle = await inFolder(source.folder, (at) =>
    openPlain(path.join(at, path.basename(source.file)), source.file),
  );
  try {
    return await use(handle);
  } finally {
    await handle.close();
  }
}

/** What was written to a source since it was read is on no tape: such a source stays. @throws Error then */
export async function removeSource(source: Source): Promise<void> {
  await inFolder(source.folder, async (at) => {
    const file = path.join(at, path.basename(source.file));
    if (isChanged(source, await lstat(file, { bigint: true }))) throw new Error('it changed since it was read');
    await unlink(file);
  });
}

const HAS_FD_PATHS = process.platform === 'linux';

/**
 * Uses a folder of the tree while it is open. Its owner may exchange it for a link at any moment, to a folder that only root may read,
 * or write in, for one: it is used only if it is where it was found.
 * @param folder without links
 * @param use is given a path to it that no later change of names or links can bend (on Linux)
 * @throws Error where it is not there any more
 */
async function inFolder<T>(folder: string, use: (at: string) => Promise<T>): Promise<T> {
  const handle = await open(folder, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    const at = HAS_FD_PATHS ? `/proc/self/fd/${handle.fd}` : folder;
    const place = HAS_FD_PATHS ? await readlink(at) : await realpath(folder);
    if (place !== folder) throw new Error(`a link has taken the place of the folder ${folder}: it leads to ${place}`);
    return await use(at);
  } finally {
    await handle.close();
  }
}
