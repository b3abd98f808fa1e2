/**
 * Makes calls to a staging library. Records each call in the database, both before and after the call, because the
 * process can be killed at any point (README.md).
 */
import { randomUUID } from 'node:crypto';
import { messageOf, quote, TapeError } from '../../core/errors.js';
import { addSeconds, isBefore, secondsBetween, timeFromMicros } from '../../core/time.js';
import type { Context } from '../../domain/context.js';
import {
  askAgain,
  type FailedStaging,
  failStaged,
  putOffReleases,
  readAttempts,
  readToPoll,
  readToRelease,
  recordAsked,
  recordPutOff,
  recordReleased,
  recordStaged,
  recordStray,
  recordWaiting,
  type StagingRow,
  type ToRelease,
  takeIntended,
} from '../../domain/staging/call-results.js';
import { LibraryError } from '../../tape/drive-library.js';
import { type Demand, type FileState, RetryLaterError, type StagedFile } from '../../tape/staging.js';
import { classifyError, describeEnd, isTry, pauseSeconds } from '../drive/retry.js';
import type { OpenStagingLibrary } from './open-library.js';
import { againSeconds, pollSeconds, restSeconds } from './rests.js';

/**
 * Makes a call to the library, with a time limit. Throws an error if this engine no longer holds the library's lease.
 */
export type MakeCall = <T>(what: string, call: (signal: AbortSignal) => Promise<T>) => Promise<T>;

/** Maximum number of stage requests that a run polls or releases, in total (`perRun`) and concurrently (`atOnce`). */
const LIMITS = { perRun: 40, atOnce: 4 };

/** Seconds before a stage request is polled again after a failed poll. */
const POLL_AGAIN_SECONDS = 30;

/**
 * Delay before files are released, so that one call can release more files from the same stage request. The delay is
 * the stage request's age divided by `part`, within limits.
 */
const GATHER = { part: 4, leastSeconds: 10, mostSeconds: 600 };

function toStagedFile({ path, volume, position, size }: StagingRow): StagedFile {
  return { path, volume, position, size };
}

export async function stageIntended(ctx: Context, staging: OpenStagingLibrary, make: MakeCall): Promise<void> {
  const { library, id: libraryId } = staging;
  for (;;) {
    const batch = randomUUID();
    const rows = await takeIntended(ctx, { libraryId, batch, limit: library.limits.stage });
    if (rows.length === 0) return;
    const stage = async (signal: AbortSignal) => checkId(staging, await library.stage(rows.map(toStagedFile), signal));
    const answer = await make('stage', stage).catch(async (error) => {
      const attempts = Math.min(...rows.map((row) => row.attempts));
      await recordPutOff(ctx, batch, addSeconds(ctx.now(), restSeconds(error, attempts, Math.random())));
      throw error;
    });
    const pollAt = addSeconds(ctx.now(), pollSeconds(library.pollSeconds, 0, Math.random()));
    const recorded = await recordAsked(ctx, { batch, remoteId: answer.id, pollAt });
    if (recorded < rows.length) {
      const fileIds = rows.map(({ fileId }) => fileId);
      await recordStray(ctx, { libraryId, batch, remoteId: answer.id, fileIds });
    }
    const reported = new Set(answer.known.map(({ path }) => path));
    await writeStates(ctx, staging, {
      rows: rows.filter(({ path }) => reported.has(path)),
      states: answer.known,
      pollAt,
    });
  }
}

/**
 * Maximum length of a stage request's id. A library might return a long id that combines the ids of several requests.
 */
const MAX_ID_CHARACTERS = 64 * 1024;

/**
 * Rejects stage request ids that the database cannot store. If such an id were accepted, each run would request the
 * same files again and fail.
 */
function checkId<A extends { id: string | null }>({ name }: OpenStagingLibrary, answer: A): A {
  const { id } = answer;
  if (id === null || (id.isWellFormed() && !id.includes('\0') && id.length <= MAX_ID_CHARACTERS)) return answer;
  const shown = `${quote(id)} of ${id.length} characters`;
  throw new LibraryError(
    'TRANSIENT',
    `library ${name} answered "stage" with the id ${shown}: an id must be valid Unicode without NUL, of at most ${MAX_ID_CHARACTERS} characters`,
  );
}

export async function pollDue(ctx: Context, staging: OpenStagingLibrary, make: MakeCall): Promise<void> {
  const { library, id } = staging;
  const due = await readToPoll(ctx, id, library.limits.poll * LIMITS.perRun);
  await forEachDemand(groupDemands(due, library.limits.poll), async (rows) => {
    const states = await make('poll', (signal) => library.poll(toDemand(rows), signal)).catch(async (error) => {
      // postpone the next poll, because this stage request would otherwise always be polled first
      if (isOfDemand(error)) await recordWaiting(ctx, id, rows, addSeconds(ctx.now(), POLL_AGAIN_SECONDS));
      throw error;
    });
    const now = ctx.now();
    const age = Math.max(...rows.map(({ askedAt }) => secondsBetween(askedAt, now)));
    const pollAt = addSeconds(now, pollSeconds(library.pollSeconds, age, Math.random()));
    await writeStates(ctx, staging, { rows, states, pollAt });
  });
}

export async function releaseDue(ctx: Context, staging: OpenStagingLibrary, make: MakeCall): Promise<void> {
  const { library, id: libraryId } = staging;
  const { release: limit } = library.limits;
  const now = ctx.now();
  const isGathered = ({ askedAt, since }: ToRelease) => {
    const seconds = Math.max(secondsBetween(askedAt, since) / GATHER.part, GATHER.leastSeconds);
    return secondsBetween(since, now) >= Math.min(seconds, GATHER.mostSeconds);
  };
  const isDue = (rows: readonly ToRelease[]) =>
    rows.length >= limit || rows.some((row) => row.isWanted || !row.hasOthers || isGathered(row));
  const found = await readToRelease(ctx, libraryId, limit * LIMITS.perRun);
  await forEachDemand(groupDemands(found, limit).filter(isDue), async (rows) => {
    const kept = await make('release', (signal) => library.release(toDemand(rows), signal)).catch(async (error) => {
      await putOffReleases(
        ctx,
        libraryId,
        rows,
        addSeconds(ctx.now(), againSeconds(Math.min(rows[0]?.attempts ?? 0, 20) + 1)),
      );
      throw error;
    });
    const keptUntil = new Map(kept.map(({ path, until }) => [path, timeOfDate(until)]));
    const isKept = ({ path }: StagingRow) => keptUntil.has(path);
    await recordReleased(ctx, libraryId, {
      released: rows.filter((row) => !isKept(row)),
      kept: rows.filter(isKept).map((row) => ({ ...row, until: keptUntil.get(row.path) ?? null })),
    });
  });
}

function toDemand(rows: readonly StagingRow[]): Demand {
  return { id: rows[0]?.remoteId ?? null, files: rows.map(toStagedFile) };
}

function groupDemands<R extends StagingRow>(rows: readonly R[], limit: number): R[][] {
  const demands = new Map<string | null, R[]>();
  for (const row of rows) {
    const demand = demands.get(row.remoteId);
    if (demand) demand.push(row);
    else demands.set(row.remoteId, [row]);
  }
  return [...demands.values()].flatMap((demand) =>
    Array.from({ length: Math.ceil(demand.length / limit) }, (_, n) => demand.slice(n * limit, (n + 1) * limit)),
  );
}

function isOfDemand(error: unknown): boolean {
  return error instanceof LibraryError && !(error instanceof RetryLaterError);
}

/**
 * Calls `work` for each stage request, a few at a time. Stops if all concurrent calls failed, or if an error might
 * affect other stage requests.
 */
async function forEachDemand<T>(all: readonly T[], work: (one: T) => Promise<void>): Promise<void> {
  let first: { error: unknown } | undefined;
  for (let n = 0; n < all.length; n += LIMITS.atOnce) {
    const ends = await Promise.allSettled(all.slice(n, n + LIMITS.atOnce).map(work));
    const errors = ends.flatMap((end) => (end.status === 'rejected' ? [end.reason as unknown] : []));
    first ??= errors.length > 0 ? { error: errors[0] } : undefined;
    const fatal = errors.find((error) => !isOfDemand(error));
    if (fatal !== undefined) throw asError(fatal);
    if (errors.length === ends.length) break;
  }
  if (first) throw asError(first.error);
}

function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(messageOf(thrown));
}

/** Returns a date as a time for the database, or null if the database cannot store the time. */
function timeOfDate(date: Date | null): string | null {
  return date && !Number.isNaN(date.getTime()) ? (timeFromMicros(BigInt(date.getTime()) * 1000n) ?? null) : null;
}

/**
 * Returns the time until which a file is readable. Returns null if the library reported a time in the past, because the
 * file would otherwise be requested again and again.
 */
function untilOf(date: Date | null, now: string): string | null {
  const until = timeOfDate(date);
  return until !== null && isBefore(now, until) ? until : null;
}

/**
 * A file fails permanently after the library has lost `times` stage requests for the file. The first of these stage
 * requests must also be at least `seconds` seconds old.
 */
const FORGOTTEN = { times: 20, seconds: 7 * 24 * 3600 };

/**
 * Records the file states that the library reported.
 * @param rows the polled files. Files without a reported state are polled again at `pollAt`
 */
async function writeStates(
  ctx: Context,
  staging: OpenStagingLibrary,
  { rows, states, pollAt }: { rows: readonly StagingRow[]; states: readonly FileState[]; pollAt: string },
): Promise<void> {
  const byPath = new Map(states.map((state) => [state.path, state]));
  const answers = rows.map((row) => ({ row, state: byPath.get(row.path) }));
  const now = ctx.now();
  await recordStaged(
    ctx,
    staging.id,
    answers.flatMap(({ row, state }) =>
      state?.state === 'ready' ? [{ ...row, until: untilOf(state.until, now) }] : [],
    ),
  );
  const forgotten = answers.flatMap(({ row, state }) => (state?.state === 'forgotten' ? [row] : []));
  const isLost = (row: StagingRow) =>
    row.attempts >= FORGOTTEN.times && secondsBetween(row.askedAt, now) > FORGOTTEN.seconds;
  await askAgain(
    ctx,
    staging.id,
    forgotten
      .filter((row) => !isLost(row))
      .map(({ fileId, batch, attempts }) => ({ fileId, batch, at: addSeconds(now, againSeconds(attempts)) })),
  );
  const failed = forgotten.filter(isLost).map((row) => {
    const requests = `${row.attempts + 1} requests since ${row.askedAt.slice(0, 19)}Z`;
    return {
      row,
      error: new TapeError('PERMANENT', `library ${staging.name} did not stage the file after ${requests}`),
    };
  });
  await writeFailures(ctx, staging, [
    ...answers.flatMap(({ row, state }) => (state?.state === 'failed' ? [{ row, error: state.error }] : [])),
    ...failed,
  ]);
  const waiting = answers.filter(({ state }) => state === undefined || state.state === 'waiting').map(({ row }) => row);
  await recordWaiting(ctx, staging.id, waiting, pollAt);
}

async function writeFailures(
  ctx: Context,
  staging: OpenStagingLibrary,
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
    ctx.log.warn({ path: row.path, library: staging.name, errorClass, pause }, `not staged: ${error}`);
    const shown = pause === undefined ? describeEnd(error, before + 1) : error;
    const notBefore = pause === undefined ? null : addSeconds(now, pause);
    return { fileId: row.fileId, batch: row.batch, errorClass, error: shown, isTry: isTry(errorClass), notBefore };
  });
  await failStaged(ctx, staging.id, judged);
}
