/** What every operation is given: the wiring makes one for each process, and the gateway one for each caller of it. */
import type { Logger } from 'pino';
import type { Refusals } from './audit.js';
import type { Caller } from './caller.js';
import type { Config } from './config.js';
import type { Database } from './database/client.js';
import type { Standbys } from './database/standbys.js';
import type { EventFeed } from './events.js';

/**
 * Says whether a library of a kind can be made with settings (src/tape/kinds.ts): operations know no tape.
 * @throws SettingsError
 */
export type CheckLibrary = (kind: string, settings: unknown) => { contract: 'drive' | 'staging' };

/** On what terms a library stages files, by its settings. */
export interface StagingTerms {
  /** What it costs; absent where nobody charges for it. Amounts are millionths of the currency. */
  price?(files: { count: number; bytes: bigint }): {
    currency: string;
    parts: readonly { micros: bigint; what: string }[];
  };
  /** From asking for a file until it can be read; absent where nobody knows. */
  waitSeconds?: { least: number; most: number };
  /** One of these begins the path of each file that it has a name for; absent where it may be any. */
  prefixes?: readonly string[];
}

/** Says them of a library (src/tape/kinds.ts); none where it mounts volumes, or this program does not know what it is. */
export type StagingTermsOf = (library: { kind: string; settings: unknown }) => StagingTerms;

export interface Context {
  config: Config;
  db: Database;
  /** Where lists may be read as well; undefined where there is none. */
  standbys?: Standbys | undefined;
  events: EventFeed;
  /** What callers may not do, on its way into the audit. */
  refusals: Refusals;
  checkLibrary: CheckLibrary;
  stagingTermsOf: StagingTermsOf;
  log: Logger;
  /** Who asks; what the caller may do is in operations/policy.ts. */
  caller: Caller;
  /** As whom it counts where one may have a share only of what is there for all; undefined for the program itself. */
  share?: string | undefined;
  /** Aborts when the caller has gone without its answer, or is known no longer; undefined for the program itself. */
  reader?: AbortSignal | undefined;
  /** What the caller has taken of the gateway is kept until what is returned is called, also where it has gone. */
  keep?: (() => () => void) | undefined;
  /** What is traced, as a `traceparent`: a request that is made keeps it, so that engines go on with it. */
  traceparent?: string | undefined;
  /** The present time, by the database's clock; tests set it. */
  now(): string;
}
