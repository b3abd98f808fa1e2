/** Finds, opens and removes the sources of an archive. Never follows links; rejects Tapegate's own directories. */
import type { BigIntStats, Dirent } from 'node:fs';
import { type FileHandle, lstat, realpath, unlink } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, messageOf } from '../../core/errors.js';
import { type NamedEntry, readEntries } from '../../core/file-names.js';
import { attributesOf, type FileAttributes } from '../../domain/catalogue/attributes.js';
import { type Access, type FolderMode, restrictAccess, restrictFile } from '../../domain/catalogue/folder-modes.js';
import type { Context } from '../../domain/context.js';
import { listDisks } from '../../domain/disks/disks.js';
import { findPathProblem } from '../../domain/input.js';
import { openPlain } from '../../restore-area/checksum.js';
import { withFolder } from '../../restore-area/restore-area.js';

/** Excluded entries; grows during the walk. */
export interface PassedOver {
  skipped: number;
  failed: string[];
}

/** Called for each entry that is not a regular file, with its type. */
export type OnSkip = (file: string, kind: string) => void;

/** Called for each directory before its files, with its logical path and the access that users have to it. */
export type OnFolder = (folder: FolderMode) => void;

interface Visit {
  relative: string;
  /** Set if the directory above has no logical path that could protect it. */
  above: Access | undefined;
}

/**
 * Yields the regular files below a directory, sorted by name within each directory.
 * The protection by `dir` and the directories above it is passed on to what is restored without them.
 * @param from.prefix prepended to the paths below `dir`; default `/`
 * @throws the error of reading `dir` itself
 */
export async function* walkSources(
  from: { dir: string; prefix?: string },
  passedOver: PassedOver,
  { onSkip = () => {}, onFolder = () => {} }: { onSkip?: OnSkip | undefined; onFolder?: OnFolder } = {},
): AsyncGenerator<Source> {
  const prefix = `/${from.prefix ?? ''}/`.replace(/\/+/g, '/');
  const root = await realpath(from.dir);
  const pending: Visit[] = [{ relative: '', above: await accessAbove(root) }];
  for (let visit = pending.pop(); visit !== undefined; visit = pending.pop()) {
    const { relative, above } = visit;
    const dir = path.join(from.dir, relative);
    const folder = path.join(root, relative);
    const entries = await inFolder(folder, (at) => readFolder(at, dir, passedOver)).catch((error: unknown) => {
      if (relative === '') throw error;
      passedOver.failed.push(`${dir}: ${messageOf(error)}`);
      return [];
    });
    const logical = (prefix + relative).replace(/\/+$/, '');
    const access = await accessOf(folder).catch(() => CLOSED); // it was removed or replaced, and lists no files
    const effective = above ? restrictAccess(above, access) : access;
    if (logical !== '' && findPathProblem(logical) === undefined) onFolder({ path: logical, ...effective });
    const outer = logical === '' ? effective : undefined;
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
          yield await findSource({ file, folder, path: prefix + below }, outer);
        } catch (error) {
          passedOver.failed.push(`${file}: ${messageOf(error)}`);
        }
      }
    }
    for (const below of folders.reverse()) pending.push({ relative: below, above: outer });
  }
}

const CLOSED: Access = { mode: 0o700, gid: null };

async function accessOf(folder: string): Promise<Access> {
  const { mode, gid } = await lstat(folder);
  return { mode: mode & 0o777, gid: BigInt(gid) };
}

/** Returns the access to what is in the directory above, through all above that one. */
async function accessAbove(root: string): Promise<Access | undefined> {
  if (root === '/') return undefined;
  const parent = path.dirname(root);
  const [above, own] = [await accessAbove(parent), await accessOf(parent)];
  return above ? restrictAccess(above, own) : own;
}

/** @param outer the access to a directory above it that will not be restored */
async function findSource(found: Pick<Source, 'file' | 'folder' | 'path'>, outer: Access | undefined): Promise<Source> {
  const problem = findPathProblem(found.path);
  if (problem) throw new Error(`its path ${problem}`);
  const name = path.basename(found.file);
  const stats = await inFolder(found.folder, (at) => lstat(path.join(at, name), { bigint: true }));
  const { size, ino, mtimeNs } = stats;
  const attributes = attributesOf(stats);
  const { mode, gid } = attributes;
  const closed = outer && mode !== null ? { mode: restrictFile(outer, { mode, gid }) } : {};
  return { ...found, size, ino, mtimeNs, ...attributes, ...closed };
}

/** Reads a directory in the order of names, without those that would be restored differently. */
async function readFolder(at: string, dir: string, { failed }: PassedOver): Promise<NamedEntry[]> {
  const entries: NamedEntry[] = [];
  for await (const each of readEntries(at)) {
    if (each.isText) entries.push(each);
    else failed.push(`${path.join(dir, each.name)}: its name is not UTF-8`);
  }
  return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function describeKind(entry: Dirent<Buffer>): string {
  if (entry.isSymbolicLink()) return 'a link';
  if (entry.isFIFO()) return 'a pipe';
  if (entry.isSocket()) return 'a socket';
  return entry.isBlockDevice() || entry.isCharacterDevice() ? 'a device' : 'no regular file';
}

/** Rejects Tapegate's own directories: removing their files would remove tape copies. @throws Error */
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

export interface Source extends Partial<FileAttributes> {
  file: string;
  /** Its directory, without links. */
  folder: string;
  path: string;
  /** Bytes. */
  size: bigint;
  /** Inode and mtime in nanoseconds, to detect changes. */
  ino: bigint;
  mtimeNs: bigint;
}

/** Whether the file was replaced or changed, as far as inode, size and mtime show. */
export function isChanged(source: Source, { size, ino, mtimeNs }: BigIntStats): boolean {
  return size !== source.size || ino !== source.ino || mtimeNs !== source.mtimeNs;
}

/** Uses an open source. @throws TapeError POLICY if a link or pipe has replaced it */
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

/** Removes a source. @throws Error if it changed after it was read: the new bytes are not on tape */
export async function removeSource(source: Source): Promise<void> {
  await inFolder(source.folder, async (at) => {
    const file = path.join(at, path.basename(source.file));
    if (isChanged(source, await lstat(file, { bigint: true }))) throw new Error('it changed since it was read');
    await unlink(file);
  });
}

/**
 * Uses an open directory of the tree, if it is still at its path. Its owner could replace it by a link to a directory
 * that only root may read or write.
 * @param folder without links
 * @param use gets a path that no later rename or link can redirect (on Linux)
 * @throws TapeError POLICY if a link or another file is in its place; code ENOENT if it is missing
 */
async function inFolder<T>(folder: string, use: (at: string) => Promise<T>): Promise<T> {
  return await withFolder('/', folder, ({ at }) => use(at));
}
