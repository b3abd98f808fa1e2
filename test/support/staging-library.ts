/** The suite that every staging library passes: each sentence of the contract in src/tape/staging.ts, tried out. */
import { describe, test } from 'vitest';
import type { StagingLibrary } from '../../src/tape/staging.js';
import { describeStagedBytes } from './staging-bytes.js';
import { describeStagingCalls } from './staging-calls.js';
import { describeStagingTrouble } from './staging-trouble.js';

/** A staging library with a hand on the system behind it. */
export interface StagingBench {
  library: StagingLibrary;
  /** The same system, as a process sees it that has made no call yet. */
  reopen(): StagingLibrary;
  /** On tape from now on, with these bytes; right again if it was spoiled. */
  put(path: string, bytes: Uint8Array): Promise<void>;
  /** What was asked for of these comes to disk; told by the next poll. */
  arrive(paths: readonly string[]): Promise<void>;
  /** Asked for, this is lost / cannot be had for now. */
  spoil(path: string, how: 'lost' | 'unavailable'): Promise<void>;
  /** On disk there no more, though it was ready. */
  evict(path: string): Promise<void>;
  /** The system forgets all demands (where it knows demands by id). */
  forget(): Promise<void>;
  /** The next call of this kind reaches the system, and its answer is lost. */
  lose(call: 'stage' | 'poll' | 'release'): Promise<void>;
  /** The next call, of whatever kind, is answered that the system is busy for so many seconds. */
  busy(seconds: number): Promise<void>;
  /** Is it on disk there for somebody? */
  isStaged(path: string): Promise<boolean>;
  /** How many reads the system is giving bytes to at this moment, where it can tell. */
  countReads?(): Promise<number>;
  close(): Promise<void>;
}

export interface StagingTraits {
  /** A file that is released leaves the disk there. */
  release: boolean;
  /** Demands have names. */
  ids: boolean;
  /** It is told when a file leaves by itself. */
  until: boolean;
  /** Its bytes are read as those of another library that the suite has. */
  readsAsAnother?: boolean;
  /** Only what depends on the traits: another library of the same kind passes the whole suite. */
  isShort?: boolean;
}

/** Runs a test on a bench of its own, and closes that. */
export type BenchTest = (name: string, run: (bench: StagingBench) => Promise<void>) => void;

/** @param create makes a bench whose system has nothing on tape and knows of no demand */
export function describeStagingLibrary(name: string, create: () => Promise<StagingBench>, can: StagingTraits): void {
  const benchTest: BenchTest = (what, run) =>
    test(what, async () => {
      const bench = await create();
      try {
        await run(bench);
      } finally {
        await bench.close();
      }
    });
  describe(`the ${name} staging library`, () => {
    describeStagingCalls(benchTest, can);
    if (!can.readsAsAnother) describeStagedBytes(benchTest);
    if (!can.isShort) describeStagingTrouble(benchTest, can);
  });
}
