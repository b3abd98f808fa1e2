/**
 * Finds, opens and removes the source files for an archive. Never follows symbolic links. Rejects directories in which
 * Tapegate stores its own files.
 */
import type { BigIntStats, Dirent } from 'node:fs';
import { type FileHandle, lstat, realpath, unlink } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, messageOf } from '../../core/errors.js';
import { type NamedEntry, readEntries } from '../../core/text/file-names.js';
import { attributesOf, type FileAttributes } from '../../domain/catalogue/attributes.js';
import {
  type Access,
  type DirectoryMode,
  restrictAccess,
  restrictFile,
} from '../../domain/catalogue/directory-modes.js';
import type { Context } from '../../domain/context.js';
import { listDisks } from '../../domain/disks/disks.js';
import { findPathProblem } from '../../domain/input.js';
import { openPlain } from '../../restore-area/checksum.js';
import { withDirectory } from '../../restore-area/restore-area.js';

export interface ExcludedEntries {
  skipped: number;
  failed: string[];
}

export type OnSkip = (file: string, kind: string) => void;

/** Called for each directory, before the directory's files are yielded. */
export type OnDirectory = (directory: DirectoryMode) => void;

interface PendingDirectory {
  relative: string;
  /**
   * Access that the parent directories grant. Parent directories of the archived tree are not restored, so their access
   * rights must be applied to the restored files.
   */
  parentAccess: Access | undefined;
}

/**
 * Yields the regular files below a directory, sorted by name within each directory. The directory's parents are not
 * restored, and the directory itself is restored only if a prefix is given. If a directory is not restored, its access
 * rights are applied to its entries.
 * @param from.prefix logical directory into which the files below `dir` are archived. Default: `/`
 * @throws the system's error if `dir` itself cannot be read
 */
export async function* walkSources(
  from: { dir: string; prefix?: string },
  excluded: ExcludedEntries,
  { onSkip = () => {}, onDirectory = () => {} }: { onSkip?: OnSkip | undefined; onDirectory?: OnDirectory } = {},
): AsyncGenerator<Source> {
  const prefix = `/${from.prefix ?? ''}/`.replace(/\/+/g, '/');
  const root = await realpath(from.dir);
  const pending: PendingDirectory[] = [{ relative: '', parentAccess: await accessAbove(root) }];
  for (let visit = pending.pop(); visit !== undefined; visit = pending.pop()) {
    const { relative, parentAccess: above } = visit;
    const dir = path.join(from.dir, relative);
    const directory = path.join(root, relative);
    const entries = await inDirectory(directory, (at) => listEntries(at, dir, excluded)).catch((error: unknown) => {
      if (relative === '') throw error;
      excluded.failed.push(`${dir}: ${messageOf(error)}`);
      return [];
    });
    const logical = (prefix + relative).replace(/\/+$/, '');
    // grant no access if the directory was removed or replaced
    const access = await accessOf(directory).catch(() => CLOSED);
    const effective = above ? restrictAccess(above, access) : access;
    if (logical !== '' && findPathProblem(logical) === undefined) onDirectory({ path: logical, ...effective });
    const outerAccess = logical === '' ? effective : undefined;
    const directories: string[] = [];
    for (const { name, entry } of entries) {
      const below = path.join(relative, name);
      const file = path.join(from.dir, below);
      if (entry.isDirectory()) directories.push(below);
      else if (!entry.isFile()) {
        excluded.skipped++;
        onSkip(file, describeKind(entry));
      } else {
        try {
          yield await findSource({ file, directory, path: prefix + below }, outerAccess);
        } catch (error) {
          excluded.failed.push(`${file}: ${messageOf(error)}`);
        }
      }
    }
    for (const below of directories.reverse()) pending.push({ relative: below, parentAccess: outerAccess });
  }
}

const CLOSED: Access = { mode: 0o700, gid: null };

async function accessOf(directory: string): Promise<Access> {
  const { mode, gid } = await lstat(directory);
  return { mode: mode & 0o777, gid: BigInt(gid) };
}

async function accessAbove(root: string): Promise<Access | undefined> {
  if (root === '/') return undefined;
  const parent = path.dirname(root);
  const [above, own] = [await accessAbove(parent), await accessOf(parent)];
  return above ? restrictAccess(above, own) : own;
}

/**
 * Reads a source file's stats. The returned mode contains only access that `outerAccess` grants. The file itself is not
 * changed.
 * @param outerAccess access that the parent directories grant, if these directories are not restored; undefined for no
 *   limit
 */
async function findSource(
  found: Pick<Source, 'file' | 'directory' | 'path'>,
  outerAccess: Access | undefined,
): Promise<Source> {
  const problem = findPathProblem(found.path);
  if (problem) throw new Error(`its path ${problem}`);
  const name = path.basename(found.file);
  const stats = await inDirectory(found.directory, (at) => lstat(path.join(at, name), { bigint: true }));
  const { size, ino, mtimeNs } = stats;
  const attributes = attributesOf(stats);
  const { mode, gid } = attributes;
  const closed = outerAccess && mode !== null ? { mode: restrictFile(outerAccess, { mode, gid }) } : {};
  return { ...found, size, ino, mtimeNs, ...attributes, ...closed };
}

/**
 * Reads a directory's entries in name order. Reports entries whose names are not valid UTF-8 as failed, because the
 * restored names would differ.
 */
async function listEntries(at: string, dir: string, { failed }: ExcludedEntries): Promise<NamedEntry[]> {
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
  return entry.isBlockDevice() || entry.isCharacterDevice() ? 'a device' : 'not a regular file';
}

/**
 * Rejects a directory that contains, or is within, one of Tapegate's own directories, because removing the sources
 * would remove Tapegate's files.
 * @throws Error
 */
export async function refuseOwnDirectories(ctx: Context, dir: string): Promise<void> {
  const { dataDir } = ctx.config;
  const own = [path.resolve(dataDir, 'library'), path.resolve(dataDir, 'postgres')];
  for (const { mountpoint } of await listDisks(ctx)) own.push(mountpoint);
  const real = await realpath(dir);
  for (const ownDirectory of own) {
    const ownReal = await realpath(ownDirectory).catch((error: unknown) => {
      if (['ENOENT', 'ENOTDIR', 'EACCES'].includes(codeOf(error) ?? '')) return undefined;
      throw error;
    });
    if (ownReal === undefined || !(isWithin(ownReal, real) || isWithin(real, ownReal))) continue;
    throw new Error(`cannot archive ${dir}: Tapegate stores its own files in ${ownDirectory}`);
  }
}

function isWithin(inner: string, outer: string): boolean {
  return `${inner}/`.startsWith(`${outer.replace(/\/+$/, '')}/`);
}

export interface Source extends Partial<FileAttributes> {
  file: string;
  directory: string;
  path: string;
  size: bigint;
  ino: bigint;
  mtimeNs: bigint;
}

/** Returns whether the file was replaced or changed. Compares the inode, the size and the mtime. */
export function isChanged(source: Source, { size, ino, mtimeNs }: BigIntStats): boolean {
  return size !== source.size || ino !== source.ino || mtimeNs !== source.mtimeNs;
}

/**
 * Opens a source file, and passes its handle to `use`.
 * @throws TapeError POLICY if a link or pipe has replaced the file
 */
export async function withSource<T>(source: Source, use: (handle: FileHandle) => Promise<T>): Promise<T> {
  const handle = await inDirectory(source.directory, (at) =>
    openPlain(path.join(at, path.basename(source.file)), source.file),
  );
  try {
    return await use(handle);
  } finally {
    await handle.close();
  }
}

/** Removes a source. @throws Error if the source changed after it was read, because the new bytes are not on tape */
export async function removeSource(source: Source): Promise<void> {
  await inDirectory(source.directory, async (at) => {
    const file = path.join(at, path.basename(source.file));
    if (isChanged(source, await lstat(file, { bigint: true }))) throw new Error('the file changed after it was read');
    await unlink(file);
  });
}

/**
 * Opens a directory in the archived tree, checks that the directory is still at its path, and calls `use`. Without the
 * check, a user could replace the directory with a link to a directory that only root is allowed to access.
 * @param directory path without symbolic links
 * @param use function that is called with a path to the open directory. On Linux, the path leads to the same directory
 *   even after a rename
 * @throws TapeError POLICY if a link or another file is at the path; an error with code ENOENT if the directory is
 *   missing
 */
async function inDirectory<T>(directory: string, use: (at: string) => Promise<T>): Promise<T> {
  return await withDirectory('/', directory, ({ fdPath }) => use(fdPath));
}
