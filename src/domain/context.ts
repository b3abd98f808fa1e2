/** The context of operations: one for each process, and one for each caller of a gateway. */
import type { Logger } from 'pino';
import type { Config } from '../config/config.js';
import type { Caller } from '../core/caller.js';
import type { Database } from '../db/client.js';
import type { Sql } from '../db/sql.js';
import type { Standbys } from '../db/standby/standbys.js';
import type { EventFeed } from '../events/events.js';
import type { Refusals } from './audit/audit.js';

/** Checks the settings of a library (src/tape/kinds.ts). @throws SettingsError */
export type CheckLibrary = (kind: string, settings: unknown) => { contract: 'drive' | 'staging' };

interface StagingTerms {
  /** Absent if staging is free. Amounts are millionths of the currency. */
  price?(files: { count: number; bytes: bigint }): {
    currency: string;
    parts: readonly { micros: bigint; what: string }[];
  };
  /** From a request to a readable file. */
  waitSeconds?: { least: number; most: number };
  prefixes?: readonly string[];
}

export type StagingTermsOf = (library: { kind: string; settings: unknown }) => StagingTerms;

/** A copy with its disk and its path below the mount point. */
export interface LocatedCopy {
  diskId: number;
  mountpoint: string;
  path: string;
}

/** Looks at the restore disks of this host (src/restore-area/missing.ts). */
export interface CopyLook {
  /** Returns those without a plain file in their place. A copy on a disk that is absent or does not answer is not missing. */
  findMissing<C extends LocatedCopy>(copies: readonly C[]): Promise<C[]>;
}

export interface Context {
  config: Config;
  db: Database;
  standbys?: Standbys | undefined;
  events: EventFeed;
  refusals: Refusals;
  checkLibrary: CheckLibrary;
  stagingTermsOf: StagingTermsOf;
  copies: CopyLook;
  /** `recordMissing` in domain/disks/missing.ts, for the operations below it. */
  recordMissing: (ctx: Context, which: Sql) => Promise<Set<bigint>>;
  log: Logger;
  caller: Caller;
  /** Rate-limit key; undefined for the program itself. */
  share?: string | undefined;
  /** Aborts if the caller disconnects or its login ends; undefined for the program itself. */
  reader?: AbortSignal | undefined;
  /** Keeps the caller's slots until the returned function is called, even after a disconnect. */
  keep?: (() => () => void) | undefined;
  /** A new request keeps this `traceparent` for the engine. */
  traceparent?: string | undefined;
  /** The database's time; tests replace it. */
  now(): string;
}
