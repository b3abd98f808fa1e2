/** Contract suite of staging libraries: tests each sentence of the contract in src/tape/staging.ts. */
import { describe, test } from 'vitest';
import type { StagingLibrary } from '../../src/tape/staging.js';
import { describeStagedBytes } from './staging-bytes.js';
import { describeStagingCalls } from './staging-calls.js';
import { describeStagingTrouble } from './staging-trouble.js';

/** A staging library, and control over its simulated tape system. */
export interface StagingBench {
  library: StagingLibrary;
  /** Opens a library on the same system, as a new process would. */
  reopen(): StagingLibrary;
  /** Writes a file to tape, and clears an earlier `spoil`. */
  put(path: string, bytes: Uint8Array): Promise<void>;
  /** Completes the recalls of these files. The next poll reports the files as ready. */
  arrive(paths: readonly string[]): Promise<void>;
  /** Makes recalls of a file fail: permanently (`lost`), or for now (`unavailable`). */
  spoil(path: string, how: 'lost' | 'unavailable'): Promise<void>;
  /** Removes a ready file from the system's disk. */
  evict(path: string): Promise<void>;
  /** Makes the system forget all demands with ids. */
  forget(): Promise<void>;
  /** Loses the answer to the next call of this kind, after the system has executed the call. */
  lose(call: 'stage' | 'poll' | 'release'): Promise<void>;
  /** Makes the system answer the next call of any kind as busy for this many seconds. */
  busy(seconds: number): Promise<void>;
  /** Returns whether the file is on the system's disk. */
  isStaged(path: string): Promise<boolean>;
  /** Returns the number of reads that the system is serving; undefined for systems that cannot count reads. */
  countReads?(): Promise<number>;
  close(): Promise<void>;
}

export interface StagingTraits {
  /** Whether a released file leaves the system's disk. */
  release: boolean;
  /** Whether demands have ids. */
  ids: boolean;
  /** Whether the library reports when a file will leave the disk by its lifetime. */
  until: boolean;
  /** Whether reads are skipped, because another library in the suite reads bytes in the same way. */
  readsAsAnother?: boolean;
  /**
   * Whether to run only the tests that depend on traits. Another library of the type must then pass the whole suite.
   */
  isShort?: boolean;
}

/** Runs a test on a bench of its own, and closes the bench. */
export type BenchTest = (name: string, run: (bench: StagingBench) => Promise<void>) => void;

/** @param create makes a bench whose system has no files and no demands */
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
