/**
 * Another user of the host, who may write in some folders of the restore areas, and does there what a user can do: puts things in the
 * way, exchanges files and folders, moves them away, and has things of his own. Only root can be somebody else.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { chownSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { isRoot, UNPRIVILEGED_UID } from '../support/unprivileged-user.js';
import { strangerScript } from './stranger-script.js';
import type { RestoreDisk } from './world.js';

/** Something that the stranger has made; it is his wherever it stands. */
export interface Belonging {
  ino: bigint;
  kind: 'file' | 'folder' | 'link' | 'pipe' | 'socket' | 'device';
  /** A file's checksum, a link's target. */
  content: string;
}

export interface Stranger {
  /** Outside of all restore areas, on the same file system. */
  home: string;
  /** Where he may write: folders of the restore areas that are his, and what is below them is Tapegate's or his. */
  grounds: readonly Ground[];
  /** By the place where each stands. */
  belongings: Map<string, Belonging>;
  /** Folders of his own, or of the site's, that were there before Tapegate. */
  folders: Map<string, bigint>;
  /** Inodes of Tapegate's copies that he has moved out of a restore area himself. */
  carried: Set<bigint>;
  /** What was found to be gone, or another one, in between. */
  losses: Set<string>;
  /** @returns what came of it; undefined where it could not be done */
  ask(deed: string, given: object): Promise<Answer | undefined>;
  end(): void;
}

export interface Answer {
  made: (Omit<Belonging, 'ino'> & { ino: string }) | string[] | null;
}

export interface Ground {
  folder: string;
  mountpoint: string;
  /** Files are restored into it, or folders with files in them. */
  has: 'files' | 'folders';
}

/** One of three folders of the archive is his on the second disk; on the first, the folder above them is. */
const ONE_OF = 3;

/** @returns undefined where this process cannot be another user */
export function startStranger(
  dir: string,
  disks: readonly RestoreDisk[],
  folders: readonly string[],
): Stranger | undefined {
  if (!isRoot || process.platform !== 'linux') return undefined;
  const home = path.join(dir, 'outside');
  mkdirSync(home);
  chownSync(home, UNPRIVILEGED_UID, UNPRIVILEGED_UID);
  const child = spawn(process.execPath, ['-e', strangerScript, home], {
    uid: UNPRIVILEGED_UID,
    gid: UNPRIVILEGED_UID,
    cwd: home,
    env: { PATH: process.env.PATH, DATA_DIR: path.join(dir, 'stranger') }, // known by that when all is swept away
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const answers = createInterface({ input: child.stdout as NonNullable<ChildProcess['stdout']> })[
    Symbol.asyncIterator
  ]();
  let last: Promise<unknown> = Promise.resolve();
  const ask = async (deed: string, given: object): Promise<Answer | undefined> => {
    child.stdin?.write(`${JSON.stringify({ deed, ...given })}\n`);
    const { value, done } = await answers.next();
    const answer: Partial<Answer> = done ? {} : JSON.parse(value);
    return answer.made === undefined ? undefined : { made: answer.made };
  };
  child.stdin?.on('error', () => {}); // it has ended
  return {
    home,
    grounds: makeGrounds(disks, folders),
    belongings: new Map(),
    folders: new Map(),
    carried: new Set(),
    losses: new Set(),
    ask: (deed, given) => {
      const answer = last.then(() => ask(deed, given));
      last = answer;
      return answer;
    },
    end: () => child.stdin?.end(),
  };
}

function makeGrounds([first, second]: readonly RestoreDisk[], folders: readonly string[]): Ground[] {
  const grounds: Ground[] = [];
  const make = (ground: Ground) => {
    mkdirSync(ground.folder, { recursive: true });
    chownSync(ground.folder, UNPRIVILEGED_UID, UNPRIVILEGED_UID);
    grounds.push(ground);
  };
  if (first) make({ folder: path.join(first.mountpoint, 'data'), mountpoint: first.mountpoint, has: 'folders' });
  for (const [index, folder] of folders.entries()) {
    if (!second || index % ONE_OF !== 0) continue;
    make({ folder: second.mountpoint + folder, mountpoint: second.mountpoint, has: 'files' });
  }
  return grounds;
}
