/** What a staging library says of files, written down. */
import type { Context } from '../../context.js';
import { askAgain, noteStaged, noteWaiting, type StagingRow } from '../../operations/staging/answers.js';
import { type FailedStaging, failStaged, readAttempts } from '../../operations/staging/failures.js';
import type { FileState } from '../../tape/staging.js';
import { addSeconds, isBefore, timeFromMicros } from '../../time.js';
import { classifyError, describeEnd, isTry, pauseSeconds } from '../drive/retry.js';
import type { StagingPlace } from './place.js';
import { againSeconds } from './rests.js';

/** In the form of all times; null for one that is none of the database's. */
export function timeOfDate(date: Date | null): string | null {
  return date && !Number.isNaN(date.getTime()) ? (timeFromMicros(BigInt(date.getTime()) * 1000n) ?? null) : null;
}

/**
 * Until when what is ready now can be read. A time that is over speaks of another clock there, or of an earlier demand: taken at its word, the
 * file would be asked for again and again, and never be read.
 */
function untilOf(date: Date | null, now: string): string | null {
  const until = timeOfDate(date);
  return until !== null && isBefore(now, until) ? until : null;
}

/** @param rows what was asked about: a file of which the library said nothing is asked about again at `pollAt` */
export async function writeStates(
  ctx: Context,
  place: StagingPlace,
  { rows, states, pollAt }: { rows: readonly StagingRow[]; states: readonly FileState[]; pollAt: string },
): Promise<void> {
  const byPath = new Map(states.map((state) => [state.path, state]));
  const said = rows.map((row) => ({ row, state: byPath.get(row.path) }));
  const now = ctx.now();
  await noteStaged(
    ctx,
    place.id,
    said.flatMap(({ row, state }) => (state?.state === 'ready' ? [{ ...row, until: untilOf(state.until, now) }] : [])),
  );
  await askAgain(
    ctx,
    place.id,
    said.flatMap(({ row, state }) => {
      if (state?.state !== 'forgotten') return [];
      return [{ fileId: row.fileId, batch: row.batch, at: addSeconds(now, againSeconds(row.attempts)) }];
    }),
  );
  await writeFailures(
    ctx,
    place,
    said.flatMap(({ row, state }) => (state?.state === 'failed' ? [{ row, error: state.error }] : [])),
  );
  const waiting = said.filter(({ state }) => state === undefined || state.state === 'waiting').map(({ row }) => row);
  await noteWaiting(ctx, place.id, waiting, pollAt);
}

async function writeFailures(
  ctx: Context,
  place: StagingPlace,
  failed: readonly { row: StagingRow; error: unknown }[],
): Promise<void> {
  if (failed.length === 0) return;
  const fileIds = failed.map(({ row }) => row.fileId);
  const attempts = await readAttempts(ctx, fileIds);
  const now = ctx.now();
  const judged = failed.map(({ row, error: thrown }): FailedStaging => {
    const { errorClass, error } = classifyError(thrown);
    const before = attempts.get(row.fileId) ?? 0;
    const pause = pauseSeconds(errorClass, before, Math.random());
    ctx.log.warn({ path: row.path, library: place.name, errorClass, pause }, `not staged: ${error}`);
    const told = pause === undefined ? describeEnd(error, before + 1) : error;
    const notBefore = pause === undefined ? null : addSeconds(now, pause);
    return { fileId: row.fileId, batch: row.batch, errorClass, error: told, isTry: isTry(errorClass), notBefore };
  });
  await failStaged(ctx, place.id, judged);
}
