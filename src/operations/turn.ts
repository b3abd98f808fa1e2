/**
 * Whoever changes something may have to wait: for the catalogue while an import has it, for rows that somebody else has locked. It keeps
 * a connection meanwhile, so what waits on behalf of callers has a share of these, and so has each caller of that. What is done with rows
 * that nobody keeps locked has a share of its own: to take something out of service must be possible whoever else waits.
 */
import type { Context } from '../context.js';
import type { Database } from '../database/client.js';
import { LongReads } from '../database/long-reads.js';
import { checkWanted } from '../errors.js';

export type WaitsFor = 'catalogue' | 'rows' | 'nobody';

const places = { catalogue: 'takers', rows: 'changers', nobody: 'keepers' } as const satisfies Record<
  WaitsFor,
  keyof Database
>;

/**
 * Does what may have to wait, in its turn. What has not begun when its caller goes is given up. Turns are not taken within each other.
 * @param waitsFor the catalogue for as long as an import goes on, only what others have locked, or nobody for long
 * @throws UnavailableError, and OverShareError where the caller itself has too many at once; and what the work throws
 */
export async function takeTurn<T>(
  { db, share, reader }: Context,
  waitsFor: WaitsFor,
  work: () => Promise<T>,
): Promise<T> {
  if (share === undefined) return await work(); // the program itself, which answers nobody by the same connections
  const { leave } = await db[places[waitsFor]].enter(share, reader);
  try {
    return await work();
  } finally {
    leave();
  }
}

/**
 * To be asked once everything that is waited for is there, and nothing has been done yet.
 * @throws UnavailableError where the caller has gone meanwhile
 */
export function checkAsked({ reader }: Context): void {
  checkWanted(reader);
}

/** Nothing reports how fast it goes on, so that no caller counts as slow. */
const NO_PACE = { windowMs: Number.POSITIVE_INFINITY, bytesPerSecond: 0 };

/**
 * Creates slots for short work of callers. A caller gets half of the free slots at most, and waits for one of them for a limited time.
 * @param what is done, in the plural
 * @returns `enter`, which throws an UnavailableError if no slot is free in time, or if the caller has disconnected
 */
export function createSlots({ slots, ...others }: { slots: number; waitMs: number; what: string; doing: string }) {
  const limiter = new LongReads({ places: slots, least: NO_PACE, ...others });
  return {
    enter: async (share: string, wanted: AbortSignal | undefined): Promise<{ leave(): void }> =>
      await limiter.enter(share, wanted),
  };
}
