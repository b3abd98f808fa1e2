/** What the parts of the torture share: the system under test, the servers around it, and what the test observed. */
import type { Context } from '../../src/domain/context.js';
import type { DatabaseClock } from './clock-jumps.js';
import type { Observed } from './facts.js';
import type { Clients } from './gateway.js';
import type { KeptProcess } from './processes.js';
import type { FaultyMail, FaultyWebhooks } from './receivers.js';
import type { StagingSystems } from './staging-systems.js';

/** Files that are archived during the run. */
export interface LateTree {
  dir: string;
  prefix: string;
  isArchived: boolean;
}

export interface TortureDisk {
  mountpoint: string;
  /** Bytes that really fit; undefined if all do. */
  capacity?: bigint;
  /** A path on the same file system, outside the restore area, for a file that takes room away. */
  ballast?: string;
  /** Where that file system is mounted. */
  fileSystem?: string;
}

export const noCounts = {
  kills: 0,
  /** Processes that were paused for longer than a lease. */
  pauses: 0,
  databaseRestarts: 0,
  /** Times that the database or a disk did not respond for a while. */
  hangs: 0,
  /** Moved or replaced files. */
  moves: 0,
  /** Volumes that were copied to others. */
  volumeMoves: 0,
  /** Volumes that were retired or reinstated. */
  retirements: 0,
  /** Times that files were withdrawn or restored to the catalogue. */
  withdrawals: 0,
  renames: 0,
  purges: 0,
  /** Times that the clock of the database was moved. */
  clockJumps: 0,
  /** Copies of the database that were started. */
  clones: 0,
  /** Restored copies that were removed outside Tapegate. */
  removedCopies: 0,
  /** Times that the settings of the database's role were changed. */
  roleChanges: 0,
  tokenChecks: 0,
  requests: 0,
  stageRequests: 0,
  stageRequestFiles: 0,
  stageRequestChanges: 0,
  /** Files that a staging system keeps for a demand whose name was lost with a response: they leave with their lifetimes. */
  unnamedDemands: 0,
  rejections: 0,
  /** Calls without a response. */
  unanswered: 0,
  answered: 0,
  /** The longest time without a response to any user. */
  silenceMs: 0,
};

export type Counts = typeof noCounts;

export interface World {
  ctx: Context;
  dataDir: string;
  logDir: string;
  users: readonly string[];
  /** Bytes of all files that there will ever be. */
  totalBytes: bigint;
  lateTrees: LateTree[];
  disks: readonly TortureDisk[];
  mail: FaultyMail;
  webhooks: FaultyWebhooks;
  linkRoot: string;
  /** Undefined without a C compiler. */
  clock: DatabaseClock | undefined;
  stagingSystems: StagingSystems;
  engines: KeptProcess[];
  gateway: KeptProcess;
  counts: Counts;
  /** When a user last got a response, by `performance.now()`. */
  answeredAt: number | undefined;
  observed: Observed;
  clients: Clients;
}

/** The name of the second library. */
export const EAST = 'east';

/** Bytes of a volume, and the most that a file has. */
export const VOLUME_BYTES = 8_000_000;

let last: Promise<unknown> = Promise.resolve();

/** Runs catalogue changes one after another: each sends sizes that another one may change. */
export function inTurn(work: () => Promise<void>): Promise<void> {
  const done = last.then(work, work);
  last = done.catch(() => {});
  return done;
}
