/** Shared state of a torture test: the tested system, the servers around the system, and the test's observations. */
import type { Context } from '../../src/domain/context.js';
import type { DatabaseClock } from './clock-jumps.js';
import type { Observed } from './facts.js';
import type { Clients } from './gateway.js';
import type { KeptProcess } from './processes.js';
import type { FaultyMail, FaultyWebhooks } from './receivers.js';
import type { StagingSystems } from './staging-systems.js';

/** A tree of files that is archived during the run. */
export interface LateTree {
  dir: string;
  prefix: string;
  isArchived: boolean;
}

export interface TortureDisk {
  mountpoint: string;
  /** Bytes that really fit on the disk; undefined if all files fit. */
  capacity?: bigint;
  /** Path of a file that takes space from the disk. The path is outside the restore area, on the same file system. */
  ballast?: string;
  /** Mount point of the file system. */
  fileSystem?: string;
}

export const noCounts = {
  kills: 0,
  /** Number of processes that were paused for longer than a lease. */
  pauses: 0,
  databaseRestarts: 0,
  /** Number of times that the database or a disk did not respond for a while. */
  hangs: 0,
  /** Number of moved or replaced files. */
  moves: 0,
  /** Number of volumes that were copied to other volumes. */
  volumeMoves: 0,
  /** Number of volumes that were retired or reinstated. */
  retirements: 0,
  /** Number of times that files were withdrawn or restored to the catalogue. */
  withdrawals: 0,
  renames: 0,
  purges: 0,
  /** Number of times that the database's clock was moved. */
  clockJumps: 0,
  /** Number of database copies that were started. */
  clones: 0,
  /** Number of restored copies that were removed outside Tapegate. */
  removedCopies: 0,
  /** Number of times that settings of the database role were changed. */
  roleChanges: 0,
  tokenChecks: 0,
  requests: 0,
  stageRequests: 0,
  stageRequestFiles: 0,
  stageRequestChanges: 0,
  /** Number of files that only expire, because the id of their demand was lost with a response. */
  unnamedDemands: 0,
  rejections: 0,
  /** Number of calls without a response. */
  unanswered: 0,
  answered: 0,
  /** Longest time in which no user got a response. */
  silenceMs: 0,
};

export type Counts = typeof noCounts;

export interface World {
  ctx: Context;
  dataDir: string;
  logDir: string;
  users: readonly string[];
  /** Size of all files, including files that are archived later. */
  totalBytes: bigint;
  lateTrees: LateTree[];
  disks: readonly TortureDisk[];
  mail: FaultyMail;
  webhooks: FaultyWebhooks;
  linkRoot: string;
  /** Clock of the database, which the test can shift; undefined if there is no C compiler. */
  clock: DatabaseClock | undefined;
  stagingSystems: StagingSystems;
  engines: KeptProcess[];
  gateway: KeptProcess;
  counts: Counts;
  /** Time of the last response to any user, by `performance.now()`. */
  answeredAt: number | undefined;
  observed: Observed;
  clients: Clients;
}

/** Name of the second library. */
export const EAST = 'east';

/** Size of a volume, and maximum size of a file, in bytes. */
export const VOLUME_BYTES = 8_000_000;

let last: Promise<unknown> = Promise.resolve();

/** Runs catalogue changes one after another, because each change sends file sizes that another change may alter. */
export function inTurn(work: () => Promise<void>): Promise<void> {
  const done = last.then(work, work);
  last = done.catch(() => {});
  return done;
}
