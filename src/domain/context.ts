/**
 * The context in which operations run. Each process has a context, and a gateway also has a context for each caller.
 */
import type { Logger } from 'pino';
import type { Config } from '../config/config.js';
import type { Caller } from '../core/caller.js';
import type { Database } from '../db/pools.js';
import type { Sql } from '../db/sql.js';
import type { Standbys } from '../db/standby/standbys.js';
import type { EventFeed } from '../events/events.js';
import type { Refusals } from './audit/audit.js';

/** Checks a library's settings (src/tape/kinds.ts). @throws SettingsError */
export type CheckLibrary = (kind: string, settings: unknown) => { contract: 'drive' | 'staging' };

interface StagingTerms {
  /**
   * Returns the price of staging files, in millionths of the currency unit. This function is absent if staging is free.
   */
  price?(files: { count: number; bytes: bigint }): {
    currency: string;
    parts: readonly { micros: bigint; what: string }[];
  };
  /** Shortest and longest time, in seconds, from a stage request until the file is readable. */
  waitSeconds?: { least: number; most: number };
  prefixes?: readonly string[];
}

export type StagingTermsOf = (library: { kind: string; settings: unknown }) => StagingTerms;

export interface LocatedCopy {
  diskId: number;
  mountpoint: string;
  path: string;
}

/** Functions that check copies on this host's restore disks (src/restore-area/copies/missing.ts). */
export interface CopyLook {
  /**
   * Returns the copies that are missing, which means that their path does not lead to a regular file. Omits copies on
   * disks that are not mounted or do not respond.
   */
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
  /**
   * The function `recordMissing` from domain/disks/missing.ts. Modules that must not import domain/disks/missing.ts
   * call the function through the context.
   */
  recordMissing: (ctx: Context, which: Sql) => Promise<Set<bigint>>;
  log: Logger;
  caller: Caller;
  /** The caller's rate-limit key; undefined for Tapegate itself. */
  share?: string | undefined;
  /** Signal that aborts when the caller disconnects or the caller's login ends; undefined for Tapegate itself. */
  reader?: AbortSignal | undefined;
  /**
   * Keeps the caller's slots in the limiters occupied until the returned function is called, even if the caller
   * disconnects.
   */
  keep?: (() => () => void) | undefined;
  /** W3C `traceparent` that is stored in a new request, so that the engine's spans join the client's trace. */
  traceparent?: string | undefined;
  now(): string;
}
