/**
 * Finds the source's copies, and adds a hard link to each copy at its path in Tapegate. The copy also keeps its old
 * name.
 */
import { link, lstat, readlink, realpath, stat, unlink } from 'node:fs/promises';
import path from 'node:path';
import type { PoolClient } from 'pg';
import { codeOf, FencedError, messageOf, UnavailableError } from '../core/errors.js';
import type { Context } from '../domain/context.js';
import { checksumOf } from '../restore-area/checksum.js';
import { storedStats } from '../restore-area/copies/copy.js';
import { openCopyDirectory } from '../restore-area/made-directories.js';
import { confirmOwned } from '../restore-area/ownership.js';
import { withDirectory } from '../restore-area/restore-area.js';
import { readSourceCopies, type SourceCopy, type TakenCopy, takeOverCopies } from './adopted-copies.js';
import { type Adopting, readPages } from './report.js';

const PAGE = 200;

interface Finding {
  adopting: Adopting;
  archiveRoot: string;
  refusedDisks: ReadonlySet<string>;
}

type FoundCopy = TakenCopy & Pick<SourceCopy, 'path'>;

export async function adoptSourceCopies(ctx: Context, client: PoolClient, finding: Finding): Promise<void> {
  const { isTrial, counts } = finding.adopting;
  const pages = readPages<SourceCopy>(PAGE, (last) =>
    readSourceCopies(client, { after: last?.path ?? '', limit: PAGE, isTrial }),
  );
  for await (const page of pages) {
    const found: FoundCopy[] = [];
    for (const copy of page) found.push(...(await tryTake(ctx, copy, finding)));
    const done = isTrial || found.length === 0 ? undefined : await takeOverCopies(ctx, found);
    for (const { fileId, size } of found) {
      if (done && !done.has(fileId)) continue;
      counts.copies++;
      counts.bytes += size;
    }
  }
}

/**
 * Checks a copy, and adds a hard link at the copy's path in Tapegate.
 * @returns the copy; an empty list if the copy was rejected and reported
 */
async function tryTake(
  ctx: Context,
  copy: SourceCopy,
  { adopting, archiveRoot, refusedDisks }: Finding,
): Promise<[FoundCopy] | []> {
  const there = `restored, ${copy.size} bytes`;
  const refuse = (kind: string, problem: string): [] => {
    adopting.report({ kind, object: copy.path, there, here: `on tape: ${problem}` });
    return [];
  };
  const { diskId, mountpoint, checksum } = copy;
  if (mountpoint === null || diskId === null || refusedDisks.has(mountpoint)) {
    const problem = mountpoint === null ? 'is not recorded in the source' : `${mountpoint} was not adopted`;
    return refuse('copy-disk', `its restore disk ${problem}`);
  }
  try {
    const source = await findCopy(copy.path, mountpoint, archiveRoot);
    if (source === undefined) return refuse('copy-missing', `no file found on ${mountpoint}`);
    const { sourcePath, real } = source;
    // access the copy through an open directory, because users of the source system might replace directories meanwhile
    return await withDirectory('/', path.dirname(real), async (directory) => {
      const file = path.join(directory.fdPath, path.basename(real));
      const before = await lstat(file, { bigint: true });
      if (before.size !== copy.size)
        return refuse('copy-size', `${sourcePath} has ${before.size} bytes, not ${copy.size}`);
      const found = checksum === null ? null : await checksumOf(file, checksum);
      if (found !== checksum)
        return refuse('copy-checksum', `${sourcePath} has checksum ${found}, but the catalogue contains ${checksum}`);
      if (!adopting.isTrial) {
        await confirmOwned(ctx);
        await giveName(ctx, { ...copy, diskId, mountpoint }, { sourcePath, file, ino: before.ino });
      }
      const after = await lstat(file, { bigint: true });
      if (after.ino !== before.ino || after.mtimeNs !== before.mtimeNs || after.size !== before.size) {
        return refuse('copy-changing', `${sourcePath} was changed while it was being adopted`);
      }
      const traits = { ...storedStats(after), checksum };
      const old = (await isSameName(sourcePath, mountpoint + copy.path)) ? null : sourcePath;
      return [{ ...copy, diskId, sourcePath: old, ...traits }];
    });
  } catch (error) {
    if (error instanceof UnavailableError || error instanceof FencedError) throw error;
    return refuse('copy-refused', messageOf(error));
  }
}

interface FoundSource {
  sourcePath: string;
  real: string;
}

/**
 * Returns the file to which the link at the archive path points, if that file is a regular file on the disk. Otherwise
 * returns the file at the copy's path in Tapegate.
 */
async function findCopy(
  logicalPath: string,
  mountpoint: string,
  archiveRoot: string,
): Promise<FoundSource | undefined> {
  const root = await realpath(mountpoint);
  const target = await targetOf(path.join(archiveRoot, logicalPath));
  for (const candidate of [target, mountpoint + logicalPath]) {
    if (candidate === undefined) continue;
    const stats = await lstat(candidate).catch(ignoreNone);
    if (!stats?.isFile()) continue;
    const real = await realpath(candidate);
    if (real.startsWith(`${root}/`)) return { sourcePath: candidate, real };
  }
  return undefined;
}

/** @throws Error if another file is at the copy's path in Tapegate */
async function giveName(
  ctx: Context,
  copy: SourceCopy & { diskId: number; mountpoint: string },
  { sourcePath, file, ino }: { sourcePath: string; file: string; ino: bigint },
): Promise<void> {
  if (await isSameName(sourcePath, copy.mountpoint + copy.path)) return;
  const directory = await openCopyDirectory(ctx, copy);
  try {
    const name = path.join(directory.fdPath, path.basename(copy.path));
    const isMade = await link(file, name).then(
      () => true,
      (error: unknown) => {
        if (codeOf(error) !== 'EEXIST') throw error;
        return false;
      },
    );
    if ((await lstat(name, { bigint: true })).ino !== ino) {
      if (!isMade) throw new Error(`another file exists at ${copy.mountpoint}${copy.path}`);
      await unlink(name);
      throw new Error(`${sourcePath} was replaced while it was being adopted`);
    }
    await directory.handle.sync();
  } finally {
    await directory.handle.close();
  }
}

async function targetOf(sourcePath: string): Promise<string | undefined> {
  const linked = await readlink(sourcePath).catch(ignoreNone);
  return linked === undefined ? undefined : path.resolve(path.dirname(sourcePath), linked);
}

/**
 * Returns whether two paths lead to the same directory entry. If the entry is the same, a caller that removes one path
 * also removes the other.
 */
export async function isSameName(one: string, other: string): Promise<boolean> {
  if (path.resolve(one) === path.resolve(other)) return true;
  if (path.basename(one) !== path.basename(other)) return false;
  const [a, b] = await Promise.all(
    [one, other].map((name) => stat(path.dirname(name), { bigint: true }).catch(ignoreNone)),
  );
  return a !== undefined && b !== undefined && a.ino === b.ino && a.dev === b.dev;
}

function ignoreNone(error: unknown): undefined {
  if (!['ENOENT', 'ENOTDIR', 'EINVAL', 'ELOOP'].includes(codeOf(error) ?? '')) throw error;
}
