/**
 * Folders of links. What is missing on the way to a link is made, and noted (operations/links/folders.ts); what was noted goes when it is empty:
 * where a link is to stand in its place, and otherwise ten minutes after a link in it has gone, when nobody comes back to that
 * (operations/links/links.ts). Not at once: archives have folders of few files, which come and go.
 *
 * A note without an inode belongs to a folder that an engine was about to make: a folder of this process's user that stands there is taken for it.
 * Between two engines a folder may go while the other one makes a link in it: that one makes it again (`makeLink`).
 */
import { type BigIntStats, lstatSync, rmdirSync } from 'node:fs';
import { lstat, mkdir } from 'node:fs/promises';
import path from 'node:path';
import type { Context } from '../../context.js';
import { codeOf } from '../../errors.js';
import {
  forgetLinkFolders,
  type LinkFolder,
  noteMadeLinkFolder,
  noteMakingLinkFolder,
  readLinkFolders,
  readLinkFoldersIn,
} from '../../operations/links/folders.js';
import { isNoted, traitsOf } from '../disk/made-folders.js';
import { isNothing, syncLinkFolder } from './looks.js';

/** Makes what is missing of a folder. LINK_ROOT itself, and what is above it, is none of those that go again. @throws what the file system says */
export async function makeLinkFolder(ctx: Context, folder: string): Promise<void> {
  const root = path.resolve(ctx.config.linkRoot ?? '/');
  const missing: string[] = [];
  for (let dir = folder; dir !== root && dir !== '/'; dir = path.dirname(dir)) {
    if (await statFolder(dir)) break;
    missing.unshift(dir);
  }
  // no other one: what has gone meanwhile is made again, and noted, by the next try
  if (missing[0] !== undefined && path.dirname(missing[0]) === root) await mkdir(root, { recursive: true });
  for (const dir of missing) {
    await noteMakingLinkFolder(ctx, dir);
    try {
      await mkdir(dir);
      await noteMadeLinkFolder(ctx, { path: dir, ...traitsOf(await lstat(dir, { bigint: true })) });
    } catch (error) {
      if (codeOf(error) !== 'EEXIST') throw error; // another engine has just made it
    }
  }
}

/** Removes what is empty of the folders above a link, from the innermost on, as far as they were made for links. */
export async function tidyLinkFolders(ctx: Context, at: string): Promise<void> {
  const dirs: string[] = [];
  for (let dir = path.dirname(at); dir !== '/'; dir = path.dirname(dir)) dirs.push(dir);
  const notes = await readLinkFolders(ctx, dirs);
  const gone: LinkFolder[] = [];
  for (const dir of dirs) {
    const note = notes.get(dir);
    if (note ? !(await removeNoted(note)) : await statFolder(dir)) break;
    if (note) gone.push(note);
  }
  await forgetGoneFolders(ctx, gone);
}

/** Removes a folder in whose place a link is to stand, with all in it, where that is nothing but such folders. @returns whether it has gone */
export async function removeLinkFolder(ctx: Context, at: string): Promise<boolean> {
  const gone: LinkFolder[] = [];
  for (const note of await readLinkFoldersIn(ctx, at)) if (await removeNoted(note)) gone.push(note);
  await forgetGoneFolders(ctx, gone);
  return gone.at(-1)?.path === at;
}

/** Their going lasts before their notes go: nobody would come to one that is back after a crash of the host. */
async function forgetGoneFolders(ctx: Context, gone: readonly LinkFolder[]): Promise<void> {
  for (const above of new Set(gone.map((note) => path.dirname(note.path)))) await syncLinkFolder(above);
  await forgetLinkFolders(ctx, gone);
}

/** @returns whether it is not there any more */
async function removeNoted(note: LinkFolder): Promise<boolean> {
  if (!(await statFolder(note.path))) return true; // without waiting for a file system that hangs
  // looked at and removed in one go: what somebody puts there meanwhile is not taken for it
  try {
    const stats = lstatSync(note.path, { bigint: true });
    if (!stats.isDirectory() || !isOfThisUser(stats) || !isNoted(note, stats)) return false;
    rmdirSync(note.path);
    return true;
  } catch (error) {
    if (isNothing(error)) return true;
    if (!STAYING.includes(codeOf(error) ?? '')) throw error;
    return false;
  }
}

const STAYING = ['ENOTEMPTY', 'EEXIST', 'EBUSY', 'EACCES', 'EPERM', 'EROFS'];

/** Somebody wants it so who has given it to another user. */
function isOfThisUser({ uid }: BigIntStats): boolean {
  return uid === BigInt(process.geteuid?.() ?? 0);
}

async function statFolder(dir: string): Promise<BigIntStats | undefined> {
  return await lstat(dir, { bigint: true }).catch((error: unknown) => {
    if (!isNothing(error)) throw error;
    return undefined;
  });
}
