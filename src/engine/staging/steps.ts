/**
 * The calls that a staging library is made: each is noted before it is made, and what came of it after, so that it may be killed at any line
 * (README.md).
 */
import { randomUUID } from 'node:crypto';
import type { Context } from '../../context.js';
import { messageOf } from '../../errors.js';
import {
  noteAsked,
  notePutOff,
  noteStray,
  readToPoll,
  type StagingRow,
  takeIntended,
} from '../../operations/staging/answers.js';
import { noteReleased, putOffReleases, readToRelease, type ToRelease } from '../../operations/staging/letting-go.js';
import type { Demand, StagedFile } from '../../tape/staging.js';
import { addSeconds, secondsBetween } from '../../time.js';
import { timeOfDate, writeStates } from './answers.js';
import type { StagingPlace } from './place.js';
import { againSeconds, pollSeconds, restSeconds } from './rests.js';

/** Makes a call, within its limit of time and while the library is ours. */
export type MakeCall = <T>(what: string, call: (signal: AbortSignal) => Promise<T>) => Promise<T>;

/** Demands that are looked at, or let go, in one pass at most, and at once. */
const CALLS = { aPass: 40, atOnce: 4 };

/** What is not needed any more waits so long for others of its demand, to be released together. */
const GATHER_SECONDS = 10;

function toStagedFile({ path, volume, position, size }: StagingRow): StagedFile {
  return { path, volume, position, size };
}

/** Asks for all that is intended. */
export async function askIntended(ctx: Context, place: StagingPlace, make: MakeCall): Promise<void> {
  const { library, id: libraryId } = place;
  for (;;) {
    const batch = randomUUID();
    const rows = await takeIntended(ctx, { libraryId, batch, limit: library.limits.stage });
    if (rows.length === 0) return;
    const asked = await make('stage', (signal) => library.stage(rows.map(toStagedFile), signal)).catch(
      async (error) => {
        await notePutOff(
          ctx,
          batch,
          addSeconds(ctx.now(), restSeconds(error, Math.min(...rows.map(({ attempts }) => attempts)), Math.random())),
        );
        throw error;
      },
    );
    const pollAt = addSeconds(ctx.now(), pollSeconds(library.pollSeconds, 0, Math.random()));
    const noted = await noteAsked(ctx, { batch, remoteId: asked.id, pollAt });
    if (noted < rows.length) {
      const fileIds = rows.map(({ fileId }) => fileId);
      await noteStray(ctx, { libraryId, batch, remoteId: asked.id, fileIds });
    }
    // what it has said of the others is heard again when they are polled
    const said = new Set(asked.known.map(({ path }) => path));
    await writeStates(ctx, place, { rows: rows.filter(({ path }) => said.has(path)), states: asked.known, pollAt });
  }
}

/** Asks about what is due. */
export async function pollDue(ctx: Context, place: StagingPlace, make: MakeCall): Promise<void> {
  const { library, id } = place;
  const due = await readToPoll(ctx, id, library.limits.poll * CALLS.aPass);
  await each(groupDemands(due, library.limits.poll), async (rows) => {
    const states = await make('poll', (signal) => library.poll(toDemand(rows), signal));
    const now = ctx.now();
    const age = Math.max(...rows.map(({ askedAt }) => secondsBetween(askedAt, now)));
    const pollAt = addSeconds(now, pollSeconds(library.pollSeconds, age, Math.random()));
    await writeStates(ctx, place, { rows, states, pollAt });
  });
}

/** Tells the library what is not needed any more, demand by demand. */
export async function releaseDue(ctx: Context, place: StagingPlace, make: MakeCall): Promise<void> {
  const { library, id: libraryId } = place;
  const { release: limit } = library.limits;
  const since = addSeconds(ctx.now(), -GATHER_SECONDS);
  const isDue = (rows: readonly ToRelease[]) =>
    rows.length >= limit || rows.some((row) => row.isWanted || !row.hasOthers || row.since <= since);
  const found = await readToRelease(ctx, libraryId, limit * CALLS.aPass);
  await each(groupDemands(found, limit).filter(isDue), async (rows) => {
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
    await noteReleased(ctx, libraryId, {
      released: rows.filter((row) => !isKept(row)),
      kept: rows.filter(isKept).map((row) => ({ ...row, until: keptUntil.get(row.path) ?? null })),
    });
  });
}

function toDemand(rows: readonly StagingRow[]): Demand {
  return { id: rows[0]?.remoteId ?? null, files: rows.map(toStagedFile) };
}

/** Files of one demand each, and no more than that of them. */
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

/** A few at once. What one throws keeps the others from nothing, but for those that would come after them. */
async function each<T>(all: readonly T[], work: (one: T) => Promise<void>): Promise<void> {
  for (let n = 0; n < all.length; n += CALLS.atOnce) {
    const ends = await Promise.allSettled(all.slice(n, n + CALLS.atOnce).map(work));
    const failed = ends.find((end) => end.status === 'rejected');
    if (failed) throw failed.reason instanceof Error ? failed.reason : new Error(messageOf(failed.reason));
  }
}
