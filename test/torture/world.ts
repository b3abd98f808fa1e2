/** What the parts of the torture share: the system under test, and what only the test knows of it. */
import type { Context } from '../../src/context.js';
import type { Callers } from './callers.js';
import type { MoodyMail } from './mail.js';
import type { Kept } from './processes.js';
import type { RemoteSystems } from './remote.js';
import type { Stranger } from './stranger.js';
import type { Source } from './tree.js';
import type { Watch } from './watchers.js';
import type { MoodyHooks } from './webhooks.js';

/** Of files that come into the catalogue during the run. */
export interface LateTree {
  dir: string;
  prefix: string;
  isArchived: boolean;
}

/** A place on tape that a file has, or had, and the bytes there. */
export interface Version {
  volume: string;
  position: bigint;
  size: bigint;
  sha256: string;
}

export interface RestoreDisk {
  mountpoint: string;
  /** Bytes that really fit; undefined: as many as anybody will need. */
  capacity?: bigint;
  /** A place on the same file system, outside the restore area, where bytes can take room away. */
  ballast?: string;
  /** Where that file system is mounted. */
  fileSystem?: string;
}

export interface Counts {
  kills: number;
  /** Processes that stood still for longer than a lease. */
  stops: number;
  databaseRestarts: number;
  /** Of the database, a disk or the clock of an engine that were wrong for a while. */
  hangs: number;
  /** Files that were moved to another volume, or replaced. */
  moves: number;
  /** Volumes that were copied onto others. */
  volumeMoves: number;
  /** Times that a volume left the archive, or was used again. */
  retirements: number;
  /** Times that files were withdrawn, by hand or by a list, or came back. */
  withdrawals: number;
  /** Files that got other paths, and times that withdrawn ones were to be forgotten. */
  renames: number;
  forgets: number;
  /** Of another user of the host. */
  strangeDeeds: number;
  /** Tokens that were shown to see what becomes of their bearers. */
  tokensShown: number;
  requests: number;
  /** By the WLCG Tape REST API: many files under one id, and what was cancelled, released or removed of them since. */
  bulks: number;
  bulkFiles: number;
  bulkChanges: number;
  /** Files that systems behind staging libraries want under names that nobody was told: their lifetimes end that. */
  unnamedDemands: number;
  refusals: number;
  /** Calls that nobody answered. */
  unanswered: number;
  answered: number;
  /** The longest time in which no user got an answer. */
  silenceMs: number;
}

export interface World {
  ctx: Context;
  dataDir: string;
  logDir: string;
  users: readonly string[];
  /** Bytes of all files there will ever be. */
  totalBytes: bigint;
  sources: Map<string, Source>;
  lateTrees: LateTree[];
  disks: readonly RestoreDisk[];
  mail: MoodyMail;
  hooks: MoodyHooks;
  /** Below which archive paths are (`LINK_ROOT`), and what was lost there of somebody's. */
  linkRoot: string;
  linksLost: string[];
  /** Behind the staging libraries. */
  remotes: RemoteSystems;
  engines: Kept[];
  gateway: Kept;
  counts: Counts;
  /** When a user last got an answer; by the process's own clock. */
  answeredAt: number | undefined;
  /** See `Outside` in facts.ts. */
  touched: Set<string>;
  /** Of bulks that were answered with their ids; those that were asked to go are out of it. */
  bulks: Set<string>;
  acknowledged: Set<number>;
  revivals: Map<number, number>;
  asked: Map<string, { times: number; confirmed: number }>;
  watches: Watch[];
  miswritten: Set<string>;
  withdrawn: Set<string>;
  versions: Map<string, Version[]>;
  /** Volumes that somebody has asked to be retired, and may still be: nobody has told them that it is done. */
  openRetirements: Set<string>;
  /** Undefined where this process cannot be another user. */
  stranger: Stranger | undefined;
  stuck: string[];
  callers: Callers;
}

export const noCounts: Readonly<Counts> = {
  kills: 0,
  stops: 0,
  databaseRestarts: 0,
  hangs: 0,
  moves: 0,
  volumeMoves: 0,
  retirements: 0,
  withdrawals: 0,
  renames: 0,
  forgets: 0,
  strangeDeeds: 0,
  tokensShown: 0,
  requests: 0,
  bulks: 0,
  bulkFiles: 0,
  bulkChanges: 0,
  unnamedDemands: 0,
  refusals: 0,
  unanswered: 0,
  answered: 0,
  silenceMs: 0,
};

/** The second library. */
export const EAST = 'east';

/** Bytes of a volume and the most that a file may have. */
export const VOLUME_BYTES = 8_000_000;
