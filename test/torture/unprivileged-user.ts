/**
 * Another user of the host who may write in some directories of the restore disks, as a process that performs one action after the other.
 * Only root can start it. What it makes must stay as it is.
 */
import { spawn } from 'node:child_process';
import { chownSync, mkdirSync } from 'node:fs';
import { readlink } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { isRoot, UNPRIVILEGED_UID } from '../support/unprivileged-user.js';
import { hashFile, statOrNone, walk } from './disk-scan.js';
import type { TortureDisk } from './world.js';

/** Something that the user made. */
export interface Possession {
  ino: bigint;
  kind: 'file' | 'folder' | 'link' | 'pipe' | 'socket' | 'device';
  /** A file's checksum, a link's target. */
  content: string;
}

/** What the checker compares. */
export interface Foreign {
  /** By absolute path. */
  possessions: ReadonlyMap<string, Pick<Possession, 'ino' | 'kind'>>;
  /** Inodes of directories that existed before Tapegate used the disks. */
  directories: ReadonlyMap<string, bigint>;
  /** Sentences on possessions that are gone or replaced. */
  losses: readonly string[];
  /** Files that root wrote outside the restore disks. */
  outside: readonly string[];
}

export const noForeign: Foreign = { possessions: new Map(), directories: new Map(), losses: [], outside: [] };

export interface UnprivilegedUser {
  /** Outside all restore disks, on the same file system. */
  home: string;
  /** Directories of restore disks that belong to the user. */
  grounds: readonly Ground[];
  possessions: Map<string, Possession>;
  directories: Map<string, bigint>;
  /** Inodes of copies that the user moved from a restore disk. */
  moved: Set<bigint>;
  /** Losses that were found during the run. */
  losses: Set<string>;
  /** Performs an action. @returns what was made; undefined if it was not possible */
  perform(action: string, input: object): Promise<Made | null | undefined>;
  end(): void;
}

export type Made = Omit<Possession, 'ino'> & { ino: string };

export interface Ground {
  directory: string;
  mountpoint: string;
  /** Files are restored into it, or directories with files. */
  contains: 'files' | 'directories';
}

/** The actions by name. Each reports what it made, or throws. */
const SCRIPT = String.raw`
const fs = require('node:fs'); const net = require('node:net'); const path = require('node:path');
const crypto = require('node:crypto'); const { execFileSync } = require('node:child_process');
const home = process.argv[1]; process.chdir(home); let count = 0;
const fresh = () => path.join(home, 'new-' + process.pid + '-' + ++count);
const hash = (bytes) => crypto.createHash('sha256').update(bytes).digest('hex');
const file = (bytes) => { const at = fresh(); fs.writeFileSync(at, bytes, { mode: 0o644 }); return { at, kind: 'file', content: hash(bytes) }; };
const make = {
  file: () => file(crypto.randomBytes(1 + Math.floor(Math.random() * 3000))),
  link: ({ target }) => { const at = fresh(); fs.symlinkSync(target, at); return { at, kind: 'link', content: target }; },
  pipe: () => { const at = fresh(); execFileSync('mkfifo', [at]); return { at, kind: 'pipe', content: '' }; },
  socket: async () => {
    const at = fresh(); const server = net.createServer(); server.unref();
    await new Promise((done, fail) => { server.once('error', fail); server.listen(path.basename(at), done); });
    return { at, kind: 'socket', content: '' };
  },
  // the size and the modification time of what is there
  twin: ({ place }) => {
    const { size, mtime, atime } = fs.statSync(place); const twin = file(crypto.randomBytes(size));
    fs.utimesSync(twin.at, atime, mtime); return twin;
  },
};
const known = (made) => ({ kind: made.kind, content: made.content, ino: String(fs.lstatSync(made.at, { bigint: true }).ino) });
const actions = {
  put: async (input) => { const made = await make[input.kind](input); const own = known(made); fs.linkSync(made.at, input.place); fs.unlinkSync(made.at); return own; },
  replace: async (input) => { const made = await make[input.kind](input); const own = known(made); fs.renameSync(made.at, input.place); return own; },
  folder: ({ place }) => { fs.mkdirSync(place, 0o755); return known({ at: place, kind: 'folder', content: '' }); },
  rename: ({ place, to }) => { if (fs.existsSync(to)) throw new Error('taken'); fs.renameSync(place, to); },
  remove: ({ place }) => { fs.lstatSync(place).isDirectory() ? fs.rmdirSync(place) : fs.unlinkSync(place); },
  chmod: ({ place, mode }) => fs.chmodSync(place, mode),
  write: ({ place }) => fs.writeFileSync(place, 'by an unprivileged user', { flag: 'r+' }),
};
(async () => {
  for await (const line of require('node:readline').createInterface({ input: process.stdin })) {
    const { action, ...input } = JSON.parse(line);
    let result;
    try { result = { made: (await actions[action](input)) ?? null }; } catch { result = {}; }
    process.stdout.write(JSON.stringify(result) + '\n');
  }
  process.exit(0);
})();
`;

/** @returns undefined if this process cannot act as another user */
export async function startUnprivileged(
  dir: string,
  disks: readonly TortureDisk[],
  directories: readonly string[],
): Promise<UnprivilegedUser | undefined> {
  if (!isRoot || process.platform !== 'linux') return undefined;
  const home = path.join(dir, 'outside');
  mkdirSync(home);
  chownSync(home, UNPRIVILEGED_UID, UNPRIVILEGED_UID);
  const grounds = makeGrounds(disks, directories);
  const existing = new Map<string, bigint>();
  for (const { mountpoint } of disks) {
    for await (const { place, entry } of walk(mountpoint)) {
      const stats = entry.isDirectory() ? await statOrNone(place) : undefined;
      if (stats) existing.set(place, stats.ino);
    }
  }
  const child = spawn(process.execPath, ['-e', SCRIPT, home], {
    uid: UNPRIVILEGED_UID,
    gid: UNPRIVILEGED_UID,
    cwd: home,
    env: { PATH: process.env.PATH, DATA_DIR: path.join(dir, 'unprivileged') }, // so that the sweeper ends it
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  child.stdin.on('error', () => {}); // it has ended
  const results = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  let last: Promise<unknown> = Promise.resolve();
  const perform = async (action: string, input: object): Promise<Made | null | undefined> => {
    child.stdin.write(`${JSON.stringify({ action, ...input })}\n`);
    const { value, done } = await results.next();
    return done ? undefined : JSON.parse(value).made;
  };
  return {
    home,
    grounds,
    possessions: new Map(),
    directories: existing,
    moved: new Set(),
    losses: new Set(),
    perform: (action, input) => {
      const result = last.then(() => perform(action, input));
      last = result;
      return result;
    },
    end: () => child.stdin.end(),
  };
}

/** On the first disk, the directory above all others belongs to the user, on the second disk one of three of the directories. */
function makeGrounds([first, second]: readonly TortureDisk[], directories: readonly string[]): Ground[] {
  const grounds: Ground[] = [];
  if (first)
    grounds.push({
      directory: path.join(first.mountpoint, 'data'),
      mountpoint: first.mountpoint,
      contains: 'directories',
    });
  for (const directory of second ? directories.filter((_, index) => index % 3 === 0) : []) {
    const { mountpoint } = second as TortureDisk;
    grounds.push({ directory: mountpoint + directory, mountpoint, contains: 'files' });
  }
  for (const { directory } of grounds) {
    mkdirSync(directory, { recursive: true });
    chownSync(directory, UNPRIVILEGED_UID, UNPRIVILEGED_UID);
  }
  return grounds;
}

export async function lookAtForeign(user: Omit<UnprivilegedUser, 'perform' | 'end'>): Promise<Foreign> {
  const { possessions, directories, losses } = user;
  const all = new Set([...losses, ...(await findLosses(user))]);
  return { possessions, directories, losses: [...all], outside: await findOutside(user) };
}

/** @returns a sentence for each possession that is gone or replaced */
export async function findLosses({
  possessions,
  directories,
}: Pick<UnprivilegedUser, 'possessions' | 'directories'>): Promise<string[]> {
  const losses: string[] = [];
  for (const [place, possession] of possessions) {
    const loss = await findLoss(place, possession).catch((error: Error) => error.message);
    const isStillOwn = possessions.get(place) === possession; // the user may have removed it meanwhile
    if (loss !== undefined && isStillOwn) losses.push(`${possession.kind} ${place}: ${loss}`);
  }
  for (const [place, ino] of directories) {
    const stats = await statOrNone(place);
    if (stats?.ino !== ino) losses.push(`directory ${place}: it ${stats ? 'was replaced' : 'is gone'}`);
  }
  return losses;
}

async function findLoss(place: string, { ino, kind, content }: Possession): Promise<string | undefined> {
  const stats = await statOrNone(place);
  if (!stats) return 'it is gone';
  if (stats.ino !== ino) return `it was replaced, and has inode ${stats.ino} and not ${ino}`;
  const found = kind === 'file' ? await hashFile(place) : kind === 'link' ? await readlink(place) : content;
  return found === content ? undefined : 'it has other bytes';
}

/** Finds files of root in the user's home that the user did not move there. Partial files move with their directory. */
async function findOutside({
  home,
  possessions,
  moved,
}: Pick<UnprivilegedUser, 'home' | 'possessions' | 'moved'>): Promise<string[]> {
  const own = new Set([...possessions.values()].map(({ ino }) => ino));
  const outside: string[] = [];
  for await (const { place, entry } of walk(home)) {
    if (!entry.isFile() || /^new-|\.part$/.test(entry.name)) continue;
    const stats = await statOrNone(place);
    if (stats?.uid === 0n && !own.has(stats.ino) && !moved.has(stats.ino)) outside.push(place);
  }
  return outside;
}
