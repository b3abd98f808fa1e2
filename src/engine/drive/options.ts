/** What a drive of an engine needs to know: its lease, its signals, and what it shares with the engine's other drives. */
import type { DriveRange } from '../../operations/recalls/drives.js';
import type { FailingDisks } from '../disk/failures.js';
import type { DiskGauge } from '../disk/space.js';
import type { LinkKeeper } from '../links/pass.js';
import type { Waker } from '../waker.js';
import type { RunningRecalls } from './running.js';
import type { DriveShare } from './share.js';
import type { VolumeFailures } from './volume-failures.js';

/** Enough to claim a drive and put it in order. */
export interface LeaseOptions {
  engineId: string;
  leaseSeconds: number;
  /** Drives that the engine holds just now. */
  held: Set<number>;
  /** No new work after this. */
  stop: AbortSignal;
  /** Work in hand is given up after this. */
  abort: AbortSignal;
  /** Nothing is waited for after this: what has not ended by then hangs. */
  leave: AbortSignal;
  disks: FailingDisks;
  /** Called when a call of the drive hangs, once that is written down and the drive is given back. */
  onHang: () => void;
}

/** Enough to work with a drive; one value serves all drives of a library. */
export interface DriveOptions extends LeaseOptions {
  /** Whose drives these are: no drive has to do with another library. */
  library: DriveRange;
  /** When other engines go first. */
  share: DriveShare;
  /** Rings when there may be work. */
  work: Waker;
  running: RunningRecalls;
  failures: VolumeFailures;
  /** How long a drive without work sleeps when no bell rings: recalls whose pause has ended ring none. */
  idleMs: number;
  /** How long a drive that this host cannot use is left to others. */
  leftMs: number;
  /** How often a drive without work looks for tape copies that are to be confirmed. */
  verifyMs: number;
  gauge: DiskGauge;
  links: LinkKeeper;
}
