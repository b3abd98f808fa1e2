/**
 * Fences copies of a database: only one Tapegate is allowed to change the restore disks and libraries, and to send
 * email and webhooks.
 *
 * Each restore disk and library has an owner record (restore-area/owner.ts) with a stamp and the identity of the
 * owner's database. Engines replace the stamp every few seconds, and record each stamp in the database before writing
 * it to disk.
 *
 * If an owner record contains another identity, this database was restored from a backup, or another Tapegate has taken
 * over the directory.
 *
 * If an owner record contains a stamp that this database never recorded, the stamp comes from an engine that uses
 * another copy of the database.
 *
 * If the database is in another cluster or directory than before, it was copied or moved. An operator must then say
 * whether it is a copy.
 *
 * If the start time of the database server has changed, the server was restarted, promoted or cloned. Unless all
 * engines stopped cleanly, a new process then watches the stamps for a while before it changes anything. If this
 * database is a clone and the original database is still in use, the engines of the original replace the stamps. A
 * process that cannot read any stamp stays fenced, because the disks might not be mounted on the process's host.
 *
 * If an embedded database is in the same directory as before, and the host has not restarted, the database is not a
 * copy.
 */
import { randomUUID } from 'node:crypto';
import { realpath, stat } from 'node:fs/promises';
import { hostname } from 'node:os';
import path from 'node:path';
import { codeOf, FencedError } from '../core/errors.js';
import type { Context } from '../domain/context.js';
import {
  acceptLocation,
  boot,
  type DatabaseLocation,
  endStamping,
  isRecorded,
  readIdentity,
  readSystem,
  recordForeignDirectories,
  recordProblem,
  recordStamp,
  type SiteIdentity,
  type Stamp,
} from '../domain/ownership.js';
import { isEmptyLibrary, ownerName } from '../tape/directory/index.js';
import { BoundedCalls } from './call-watch.js';
import { AbsentError, isRootOf, rootOf } from './marker.js';
import { DamagedOwnerError, type OwnerRecord, readOwner, writeOwner } from './owner.js';
import { ignoreReplaced, withDirectory } from './restore-area.js';

/** Interval between ownership checks, in milliseconds. */
export const CHECK_MS = 2000;
/** Maximum age of the last ownership check, in milliseconds. If the last check is older, `confirm` repeats it. */
const FRESH_MS = 2 * CHECK_MS;
const STAMP_MS = 5000;
/**
 * Times for which engines wait before they use directories, in milliseconds. Tests replace these times with shorter
 * ones.
 */
export const watching = {
  /**
   * Time for which a process watches the stamps: long enough for a running owner to replace each stamp several times.
   */
  ms: 4 * STAMP_MS,
  /** Time after which a Tapegate has certainly noticed that another Tapegate has taken over its directory. */
  returnMs: FRESH_MS + CHECK_MS,
};
const ANSWER_MS = 2000;

/** A restore disk, or the library that `archive` writes to. */
export interface OwnedDirectory {
  /** Disk id, used as the key in `BoundedCalls`; 0 for a library. */
  id: number;
  mountpoint: string;
  isFailing: boolean;
}

interface ObservedDirectory {
  directory: OwnedDirectory;
  root: string;
  record: OwnerRecord | undefined;
  problem: string | undefined;
  /**
   * Whether the owner record was just read. If the directory does not respond, the other fields contain the results of
   * the last successful check.
   */
  isFresh: boolean;
}

const known = new WeakMap<Context['db'], Ownership>();

export function ownershipOf(ctx: Context): Ownership {
  const found = known.get(ctx.db) ?? new Ownership(ctx);
  known.set(ctx.db, found);
  return found;
}

/**
 * Checks that this Tapegate owns its restore disks and libraries, unless it has checked this in the last few seconds.
 * @throws FencedError
 */
export async function confirmOwned(ctx: Context): Promise<void> {
  await ownershipOf(ctx).confirm();
}

export class Ownership {
  private readonly ctx: Context;
  private readonly reads = new BoundedCalls();
  private readonly seen = new Map<string, ObservedDirectory>();
  private readonly stampings = new BoundedCalls();
  private readonly writing = new Set<Promise<unknown>>();
  /**
   * Messages of errors that occurred while writing owner records, keyed by directory. Random file names are removed, so
   * that the same error is logged only once.
   */
  private readonly unwritten = new Map<string, string>();
  private stampedAt = Number.NEGATIVE_INFINITY;
  /**
   * Random id that all stamps of this process contain. The process recognises its own stamps by this id, even if a
   * promoted standby database lacks the latest stamps.
   */
  private readonly epoch = randomUUID();
  private stamps = 0;
  private checking: Promise<string | undefined> | undefined;
  private checkedAt = Number.NEGATIVE_INFINITY;
  private reason: string | undefined;
  private logged: string | undefined;
  private isAccepted = false;
  private watchedSince: number | undefined;
  private returnedSince: number | undefined;
  private system: string | null | undefined;

  constructor(ctx: Context) {
    this.ctx = ctx;
  }

  async confirm(): Promise<void> {
    if (performance.now() - this.checkedAt > FRESH_MS) await this.check();
    if (this.reason !== undefined) throw new FencedError(this.reason);
  }

  /**
   * Checks whether this Tapegate owns its restore disks and libraries.
   * @param stamps whether to take ownership of directories without an owner, and to replace stamps
   * @returns the reason why this Tapegate is fenced; undefined if it is not fenced
   */
  async check({ stamps = false } = {}): Promise<string | undefined> {
    this.checking ??= this.checkNow(stamps).finally(() => {
      this.checking = undefined;
    });
    return await this.checking;
  }

  /**
   * Checks whether this Tapegate is fenced. If the database might be a copy, or another Tapegate might still use a
   * directory, first waits until the waiting period ends.
   * @param onWait called once if `require` has to wait
   * @throws FencedError
   */
  async require(onWait: () => void = () => {}): Promise<void> {
    await this.check();
    if (this.isWatching) onWait();
    while (this.isWatching) {
      await new Promise((resolve) => setTimeout(resolve, CHECK_MS));
      await this.check();
    }
    await this.confirm();
  }

  logOnce(reason: string): void {
    // compare the reasons without the time of the directory's last use, because this time changes with each stamp
    const cause = reason.replace(/, last used .*/, '');
    if (this.logged === cause) return;
    this.logged = cause;
    this.ctx.log.error(new FencedError(reason).message);
  }

  /** Whether this Tapegate is fenced only for a waiting period, which ends without action by an operator. */
  get isWatching(): boolean {
    return this.watchedSince !== undefined || this.returnedSince !== undefined;
  }

  /**
   * Whether the waiting period is about to end. If so, this process writes its own stamps before the period ends. If
   * two processes with copies of the same database wait at the same time, each of them then sees the other's stamps.
   */
  private get isClaiming(): boolean {
    return this.watchedSince !== undefined && performance.now() - this.watchedSince >= watching.ms - STAMP_MS;
  }

  /** Records that the engine has stopped cleanly, so that the next engine can start without a waiting period. */
  async release(): Promise<void> {
    await Promise.all(this.writing);
    // ignore an error, because its only effect is a waiting period at the next start
    if (this.reason === undefined && this.isAccepted) await endStamping(this.ctx).catch(() => {});
  }

  private async checkNow(stamps: boolean): Promise<string | undefined> {
    const startedAt = performance.now();
    const site = await readIdentity(this.ctx);
    const location = await this.findLocation(site);
    const seen = await this.observe(site);
    const isSeen = (mountpoint: string) => seen.some(({ directory }) => directory.mountpoint === mountpoint);
    const unseen = site.foreign.filter(({ path: mountpoint }) => !isSeen(mountpoint));
    // a disk that this process cannot read, but that has another owner according to an engine on another host
    const unseenDisk = unseen.find(({ isDisk }) => isDisk);
    const foreign = seen.find((each) => each.problem !== undefined) ?? unseenDisk;
    let problem = findMove(site.location, location);
    const returned = this.awaitFormerOwner(site, seen);
    const reason = () => site.fenced ?? problem ?? foreign?.problem ?? returned;
    if (reason() === undefined && !isSameLocation(site.location, location)) {
      problem = this.watch(site, seen);
      if (problem === undefined) await acceptLocation(this.ctx, location);
    } else this.watchedSince = undefined;
    if ((problem ?? null) !== site.problem) await recordProblem(this.ctx, problem ?? null);
    for (const each of seen)
      if (each.problem !== undefined || returned === undefined) await this.recordForeign(site, each);
    for (const { path: library, isDisk } of unseen)
      if (!isDisk) await recordForeignDirectories(this.ctx, library, null);
    this.reason = reason();
    if (this.reason === undefined) this.isAccepted = true;
    this.checkedAt = startedAt;
    if (stamps && (this.reason === undefined || this.isClaiming)) await this.stampAll(site.identity, seen);
    return this.reason;
  }

  /**
   * Makes engines wait after this Tapegate has taken a directory from another Tapegate, because the previous owner
   * might not notice this until its next check.
   * @returns why engines must still wait; undefined if they need not wait
   */
  private awaitFormerOwner({ foreign }: SiteIdentity, seen: readonly ObservedDirectory[]): string | undefined {
    const returned = seen.find(({ directory }) => foreign.some((each) => each.path === directory.mountpoint));
    if (!returned || seen.some(({ problem }) => problem !== undefined)) {
      this.returnedSince = undefined;
      return undefined;
    }
    this.returnedSince ??= performance.now();
    if (performance.now() - this.returnedSince >= watching.returnMs) {
      this.returnedSince = undefined;
      return undefined;
    }
    return `${returned.directory.mountpoint} belonged to another Tapegate: waiting ${watching.returnMs / 1000} s for the other Tapegate to stop`;
  }

  /**
   * After a restart of the database server, makes engines wait while this process watches the stamps.
   * @returns why engines must still wait; undefined if they need not wait
   */
  private watch(site: SiteIdentity, seen: readonly ObservedDirectory[]): string | undefined {
    if (this.isAccepted || site.location === null || !site.isStamping || !site.hasDirectories) return undefined;
    if (!seen.some(({ isFresh, record }) => isFresh && record)) {
      this.watchedSince = undefined;
      return 'the database server was restarted or copied, and no owner record can be read: mount a restore disk or library';
    }
    this.watchedSince ??= performance.now();
    if (performance.now() - this.watchedSince >= watching.ms) {
      this.watchedSince = undefined;
      return undefined;
    }
    return `the database server was restarted or copied: checking for ${watching.ms / 1000} s whether another Tapegate uses the restore disks`;
  }

  async findLocation({ started, database, table }: SiteIdentity): Promise<DatabaseLocation> {
    this.system ??= await readSystem(this.ctx);
    return { system: this.system, database, table, started, ...(await findDirectory(this.ctx)) };
  }

  async isIdentityShared(site: SiteIdentity, found: readonly { owner: OwnerRecord | undefined }[]): Promise<boolean> {
    const location = await this.findLocation(site);
    if (findMove(site.location, location) !== undefined || this.watchedSince !== undefined) return true;
    for (const { owner } of found) {
      if (owner?.identity === site.identity && (await this.findProblem(site, '', owner)) !== undefined) return true;
    }
    return false;
  }

  /** Reads the owner records of the restore disks and the library. Skips unavailable directories. */
  async observe(site: SiteIdentity): Promise<ObservedDirectory[]> {
    // skip failing disks, because a hung read would block one of the process's threads
    const directories = listDirectories(this.ctx, site).filter(({ isFailing }) => !(isFailing && this.isAccepted));
    const observeOne = async (directory: OwnedDirectory) => {
      const { mountpoint } = directory;
      const failure = await this.reads.run(ANSWER_MS, directory, async () => {
        const found = await this.readDirectory(site, directory);
        if (found) this.seen.set(mountpoint, found);
        else this.seen.delete(mountpoint);
      });
      const found = this.seen.get(mountpoint);
      return found ? [{ ...found, isFresh: failure === undefined }] : [];
    };
    return (await Promise.all(directories.map(observeOne))).flat();
  }

  /** @returns undefined if the directory is unavailable @throws Error if the owner record cannot be read now */
  private async readDirectory(site: SiteIdentity, directory: OwnedDirectory): Promise<ObservedDirectory | undefined> {
    const root = await findOwnedRoot(directory).catch((error: unknown) => {
      if (error instanceof AbsentError) return undefined;
      throw error;
    });
    if (root === undefined) return undefined;
    const found = { directory, root, isFresh: true };
    try {
      const record = await readOwner(root);
      const { id, mountpoint } = directory;
      const name = id === 0 ? `${mountpoint} on host ${hostname()}` : mountpoint;
      return { ...found, record, problem: record && (await this.findProblem(site, name, record)) };
    } catch (error) {
      if (!(error instanceof DamagedOwnerError)) throw error;
      return { ...found, record: undefined, problem: error.message };
    }
  }

  async findProblem(
    { identity }: SiteIdentity,
    name: string,
    { identity: owner, epoch, number, host, at }: OwnerRecord,
  ): Promise<string | undefined> {
    const last = `last used at ${at}Z on ${host}`;
    if (owner !== identity) return `${name} belongs to another Tapegate, ${last}`;
    if (epoch === this.epoch || (await isRecorded(this.ctx, { epoch, number }))) return undefined;
    return `${name} belongs to another copy of this database, ${last}`;
  }

  private async recordForeign(
    { foreign }: SiteIdentity,
    { directory: { mountpoint }, problem }: ObservedDirectory,
  ): Promise<void> {
    const isNoted = foreign.some((each) => each.path === mountpoint);
    if (problem !== undefined || isNoted) await recordForeignDirectories(this.ctx, mountpoint, problem ?? null);
  }

  /**
   * Takes ownership of directories without an owner, and replaces the stamps in this Tapegate's directories, without
   * waiting for slow disks.
   */
  private async stampAll(identity: string, all: readonly ObservedDirectory[]): Promise<void> {
    const seen = all.filter(({ isFresh }) => isFresh);
    const isNew = seen.some(({ record }) => !record);
    if (seen.length === 0 || (!isNew && performance.now() - this.stampedAt < STAMP_MS)) return;
    this.stampedAt = performance.now();
    const stamp = await this.nextStamp();
    for (const { directory, root, record } of seen) {
      const write = async () => {
        const next = { identity, ...stamp, at: this.ctx.now() };
        if (record) await writeOwner(root, next, { sync: true });
        else await writeNewOwner(directory, root, next);
      };
      const writing: Promise<unknown> = this.stampings
        .run(ANSWER_MS, directory, write)
        .then((problem) => this.reportUnwritten(directory.mountpoint, problem))
        .finally(() => this.writing.delete(writing));
      this.writing.add(writing);
    }
  }

  private reportUnwritten(directory: string, problem: string | undefined): void {
    const before = this.unwritten.get(directory);
    if (problem === undefined) this.unwritten.delete(directory);
    else this.unwritten.set(directory, problem.replace(/\S{36}/g, ''));
    const now = this.unwritten.get(directory);
    if (now !== undefined && now !== before) this.ctx.log.warn({ directory }, `owner record: ${problem}`);
  }

  /**
   * Returns a new stamp after recording it in the database. A stamp must be in the database before an engine writes it
   * to a directory.
   */
  async nextStamp(): Promise<Stamp> {
    const stamp = { epoch: this.epoch, number: ++this.stamps };
    await recordStamp(this.ctx, stamp);
    return stamp;
  }
}

/** Returns the directories that can contain an owner record. */
export function listDirectories(ctx: Context, { disks }: Pick<SiteIdentity, 'disks'>): OwnedDirectory[] {
  const library = { id: 0, mountpoint: path.resolve(ctx.config.dataDir, 'library'), isFailing: false };
  return [...disks, library];
}

/**
 * Writes an owner record to a directory that does not have one. Before writing, checks that the disk is still mounted,
 * because the empty directory under its mount point must not get a record.
 * @param how.takes whether to replace an existing record
 */
export async function writeNewOwner(
  { id, mountpoint }: OwnedDirectory,
  root: string,
  record: Omit<OwnerRecord, 'host'>,
  { takes = false } = {},
): Promise<void> {
  await withDirectory(root, '', async ({ fdPath }) => {
    const isMounted = id === 0 ? !(await isEmptyLibrary(fdPath)) : await isRootOf({ diskId: id, mountpoint }, fdPath);
    if (isMounted) await writeOwner(fdPath, record, { isFirst: !takes, takes, sync: true });
  }).catch(ignoreReplaced);
}

/**
 * Returns the path of a directory, with symbolic links resolved.
 * @returns undefined if the directory is a library that is missing, or that is empty and therefore might not be mounted
 * @throws AbsentError if the directory is a restore disk that is unavailable
 */
export async function findOwnedRoot({ id, mountpoint }: OwnedDirectory): Promise<string | undefined> {
  if (id !== 0) return await rootOf({ diskId: id, mountpoint });
  try {
    return (await isEmptyLibrary(mountpoint)) ? undefined : await realpath(mountpoint);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

async function findDirectory({ config }: Context): Promise<Pick<DatabaseLocation, 'directory' | 'inode' | 'boot'>> {
  const unknown = { directory: null, inode: null, boot: null };
  if (config.databaseUrl !== undefined) return unknown;
  // ignore an error, because some tests run without this directory
  const directory = await realpath(path.join(config.dataDir, 'postgres')).catch(() => null);
  if (directory === null) return unknown;
  const { dev, ino } = await stat(directory, { bigint: true });
  // include the device number, which identifies the file system until the host restarts
  return { directory, inode: String(ino), boot: `${boot} ${dev}` };
}

const FIELDS = ['system', 'database', 'table', 'directory', 'inode'] as const;
const differ = (from: DatabaseLocation, to: DatabaseLocation, field: keyof DatabaseLocation) =>
  (from[field] ?? null) !== null && (to[field] ?? null) !== null && from[field] !== to[field];

function isSameLocation(from: DatabaseLocation | null, to: DatabaseLocation): boolean {
  if (from === null || FIELDS.some((field) => differ(from, to, field))) return false;
  return from.started === to.started || (to.boot !== null && from.boot === to.boot);
}

/**
 * How certain it is that the database was restored from a dump, and that `tapegate restore --as-of` has not been run
 * since. `possible` means that the database might instead have been moved.
 */
export type UnsettledDump = 'certain' | 'possible';

/**
 * @param from the location of the database that was last recorded; null after `tapegate restore`, which removes the
 * record
 */
export function findUnsettledDump(from: DatabaseLocation | null, to: DatabaseLocation): UnsettledDump | undefined {
  if (from === null) return undefined;
  if (differ(from, to, 'table')) return 'certain';
  return differ(from, to, 'system') || differ(from, to, 'database') ? 'possible' : undefined;
}

function findMove(from: DatabaseLocation | null, to: DatabaseLocation): string | undefined {
  if (from === null) return undefined;
  if (differ(from, to, 'directory'))
    return `the database was copied or moved from ${from.directory} to ${to.directory}`;
  if (differ(from, to, 'inode')) return `the database directory ${to.directory} was replaced`;
  if (differ(from, to, 'table')) return 'the database was restored from a dump';
  if (differ(from, to, 'system') || differ(from, to, 'database'))
    return 'the database was copied or moved from another PostgreSQL cluster or database';
  return undefined;
}

/** @returns an error message if another Tapegate owns the restore disk; undefined if no other Tapegate owns it */
export async function findForeign(ctx: Context, mountpoint: string, root: string): Promise<string | undefined> {
  const record = await readOwner(root);
  const problem = record && (await ownershipOf(ctx).findProblem(await readIdentity(ctx), mountpoint, record));
  return problem && `${problem}: if that Tapegate no longer exists, remove ${path.join(root, ownerName)}`;
}
