/**
 * Computes the plan for all drives: their running work and their next volumes. The plan follows the rules by which
 * engines choose volumes.
 */

import { addSeconds, secondsOf } from '../../core/time.js';
import { sql } from '../../db/sql.js';
import type { LibraryContract, SuspensionMode } from '../../generated/prisma/enums.js';
import { type Ahead, planAhead, type Stay } from '../../planner/ahead.js';
import { findMedium } from '../../planner/media.js';
import { isMeasured, joinPaces, measuredMedium, measureOwn, type PaceSums, parsePace } from '../../planner/pace.js';
import type { StagedAhead } from '../../planner/queue.js';
import { groupByVolume, type QueueEntry } from '../../planner/queue.js';
import { defaultPolicy, type Shares } from '../../planner/schedule.js';
import { hostOfDrive, isClaimed, isManned, isReadable, isResting, isRunning, needsRoom } from '../conditions.js';
import type { Context } from '../context.js';
import { type LibraryProblem, readFailedLibraries } from '../health/failing-libraries.js';
import { suspensionText } from '../health/suspensions.js';
import { DEPTH_FILES, type Library, readLibraries } from '../libraries/libraries.js';
import { allow } from '../policy.js';
import { readShares } from '../quotas/shares.js';
import { KEPT_SECONDS } from '../recalls/drives.js';
import { readQueues, readSuspendedQueue } from '../recalls/queue.js';

export interface PlanDrive {
  name: string;
  libraryId: number;
  library: string;
  contract: LibraryContract;
  isClaimed: boolean;
  /**
   * Host of the engine that has leased the drive; null if unknown. The host is hidden from callers that may not see all
   * quotas.
   */
  host: string | null;
  isOpen: boolean;
  /** Suspension mode of the drive or of its library; null if both are in service. */
  suspensionMode: SuspensionMode | null;
  /** Whether the last call to the drive's library failed. If true, an engine will call the library again later. */
  hasLibraryFailed: boolean;
  volumeId: number | null;
  volume: string | null;
  /** Cost model of the mounted volume; null if no volume is mounted. */
  medium: string | null;
  filesRunning: number;
  bytesRunning: bigint;
  /** The drive's recent read rate in bytes per second, as reported by its engine; null if unknown. */
  rate: number | null;
  /** Sums of measured times (src/planner/pace.ts). */
  pace: number[];
}

export type PlanUser = QueueEntry;

export interface PlanVolume {
  volumeId: number;
  volume: string;
  library: string;
  medium: string;
  /** Position of the volume in the plan, from 1; null if no drive can mount the volume. */
  queuePosition: number | null;
  files: number;
  bytes: bigint;
  users: PlanUser[];
  drive: string | null;
  isMounted: boolean;
  reason: string | null;
  problem: string | null;
  /** Time of the next attempt to use a failed library; null if unknown. */
  nextTry: string | null;
  isSuspended: boolean;
  start: number | null;
  end: number | null;
}

export interface Plan {
  /** Time at which the plan was computed, in seconds since 1970. */
  now: number;
  drives: PlanDrive[];
  volumes: PlanVolume[];
  ahead: Ahead;
  /** Measured speed of the drives of each library, by library id. */
  paces: ReadonlyMap<number, PaceSums>;
  shares: Shares;
  /** Problems of libraries whose last call failed, by library id. */
  failures: ReadonlyMap<number, LibraryProblem>;
  /** Staging libraries by id. */
  staged: ReadonlyMap<number, StagedLibrary>;
}

/**
 * Number of seconds that the plan looks ahead. This time is at least as long as the longest pause before a retry, so
 * the plan includes all retries.
 */
const LOOK_AHEAD_SECONDS = 3600;

/** Returns a copy of the plan that omits users whom the caller may not see. */
export async function showPlan(ctx: Context): Promise<Plan> {
  allow(ctx, 'showPlan');
  const plan = await readPlan(ctx);
  const { reads } = ctx.caller;
  if (reads === 'all') return plan;
  const volumes = plan.volumes.map((volume) => ({
    ...volume,
    users: volume.users.filter(({ user }) => reads.has(user)),
    reason: volume.isSuspended ? volume.reason : null,
  }));
  const drives = plan.drives.map((drive) => ({ ...drive, host: null }));
  return { ...plan, drives, volumes };
}

/** The state of the queue, the drives and the libraries, from which a plan is computed. */
export interface PlanState {
  now: number;
  entries: readonly QueueEntry[];
  /** The files of a hypothetical request. */
  more: readonly QueueEntry[];
  /** For each volume that drives temporarily skip, a text that explains why. */
  problems: ReadonlyMap<number, string>;
  /** For each volume that no drive can read, because all of its files wait, a text that explains why. */
  blocked: ReadonlyMap<number, string>;
  suspended: readonly PlanVolume[];
  drives: readonly PlanDrive[];
  shares: Shares;
  libraries: readonly Library[];
  failures: ReadonlyMap<number, LibraryProblem>;
  staged: ReadonlyMap<number, StagedLibrary>;
}

/** Computes the plan. `more` contains the files of a hypothetical request, which the plan includes. */
export async function readPlan(ctx: Context, more: readonly QueueEntry[] = []): Promise<Plan> {
  return makePlan(await readPlanState(ctx, more));
}

export async function readPlanState(ctx: Context, more: readonly QueueEntry[] = []): Promise<PlanState> {
  const [entries, problems, blocked, suspended, drives, shares, libraries, failures] = await Promise.all([
    readQueues(ctx, { until: addSeconds(ctx.now(), LOOK_AHEAD_SECONDS) }),
    readProblems(ctx),
    readRoomless(ctx),
    readSuspended(ctx),
    readDrives(ctx),
    readShares(ctx),
    readLibraries(ctx),
    readFailedLibraries(ctx),
  ]);
  const staged = await readStagedLibraries(ctx, libraries, more);
  const now = secondsOf(ctx.now());
  return { now, entries, more, problems, blocked, suspended, drives, shares, libraries, failures, staged };
}

/** Computes the plan for a state, which can differ from the present state of the site. */
export function makePlan(state: PlanState): Plan {
  const { now, entries, more, blocked, drives, shares, failures, staged } = state;
  const paces = readPaces(drives);
  const queues = groupByVolume(
    [...entries.filter(({ volumeId }) => !blocked.has(volumeId)), ...more],
    (medium, libraryId) => measuredMedium(medium, paces.get(libraryId) ?? NO_PACE),
  );
  // staging libraries schedule their tapes themselves, so Tapegate does not mount their volumes
  const working = drives.filter((drive) => isWorking(drive) && drive.contract === 'DRIVE');
  const ahead = planAhead({
    queues,
    drives: working.map(({ name, libraryId, volumeId, medium, pace, filesRunning, bytesRunning }) => ({
      ...{ name, libraryId, volumeId, measure: measureOwn(parsePace(pace), paces.get(libraryId) ?? NO_PACE) },
      mounted: mediumAt({ paces }, medium ?? '', libraryId).medium,
      running: { files: filesRunning, bytes: Number(bytesRunning) },
    })),
    shares,
    now,
    policy: defaultPolicy,
  });
  return { now, drives: [...drives], volumes: orderVolumes(state, ahead), ahead, paces, shares, failures, staged };
}

const NO_PACE = parsePace([]);

/** Returns the pace of the working drives of each library. If these drives have read nothing yet, that of all drives. */
function readPaces(drives: readonly PlanDrive[]): Map<number, PaceSums> {
  const joinOf = (libraryId: number, chosen: readonly PlanDrive[]) =>
    joinPaces(chosen.filter((drive) => drive.libraryId === libraryId).map(({ pace }) => parsePace(pace)));
  const working = drives.filter(isWorking);
  return new Map(
    [...new Set(drives.map(({ libraryId }) => libraryId))].map((id) => {
      const pace = joinOf(id, working);
      return [id, isMeasured(pace) ? pace : joinOf(id, drives)];
    }),
  );
}

/** Returns a medium with the speed of a library's drives, and whether this speed was measured. */
export function mediumAt(plan: Pick<Plan, 'paces'>, name: string, libraryId: number) {
  const pace = plan.paces.get(libraryId) ?? NO_PACE;
  return { medium: measuredMedium(findMedium(name), pace), isMeasured: isMeasured(pace) };
}

export function describeLibraryFailure({ library, problem }: LibraryProblem): string {
  return `library ${library} has failed: ${problem}`;
}

export function isWorking({ isClaimed, isOpen, hasLibraryFailed }: PlanDrive): boolean {
  return isClaimed && isOpen && !hasLibraryFailed;
}

/**
 * SQL condition that is true if an engine uses the library `b`. Also true if the engine has released all drives of the
 * library after a failure.
 */
const hasEngine = sql`EXISTS (SELECT FROM engine_process e WHERE e.library_id = b.id
  AND ${isRunning(sql`greatest(e.asks_until + make_interval(secs => ${KEPT_SECONDS}), e.ready_until)`)})`;

async function readDrives(ctx: Context): Promise<PlanDrive[]> {
  return await ctx.db.rows<PlanDrive>(
    sql`SELECT d.name, d.library_id AS "libraryId", b.name AS library, b.contract, ${isManned} AS "isClaimed", ${hostOfDrive} AS host,
       sd.mode IS NULL AND sb.mode IS NULL AS "isOpen",
       CASE WHEN 'IMMEDIATE' IN (sd.mode, sb.mode) THEN 'IMMEDIATE' ELSE coalesce(sd.mode, sb.mode) END AS "suspensionMode",
       b.contract = 'DRIVE' AND y.read_problem IS NOT NULL AND (${isManned} OR ${hasEngine}) AS "hasLibraryFailed",
       d.volume_id AS "volumeId", v.name AS volume, v.medium,
       count(c.file_id)::int AS "filesRunning", coalesce(sum(c.size), 0) AS "bytesRunning",
       CASE WHEN ${isClaimed} THEN d.rate END AS rate, d.pace
     FROM drive d JOIN library b ON b.id = d.library_id LEFT JOIN volume v ON v.id = d.volume_id
       LEFT JOIN suspended_drive sd ON sd.drive_id = d.id LEFT JOIN suspended_library sb ON sb.library_id = b.id LEFT JOIN stager y ON y.library_id = b.id
       LEFT JOIN recall c ON c.drive_id = d.id AND c.state = 'RUNNING'
     GROUP BY d.id, b.id, v.name, v.medium, sd.mode, sb.mode, y.read_problem ORDER BY d.id`,
  );
}

async function readProblems(ctx: Context): Promise<Map<number, string>> {
  const rows = await ctx.db.rows<{ id: number; problem: string }>(
    sql`SELECT v.id, v.problem FROM volume v WHERE ${isResting(ctx.now())} AND v.problem IS NOT NULL`,
  );
  return new Map(rows.map(({ id, problem }) => [id, problem]));
}

/**
 * Finds volumes that have no planned start because all of their files wait for room on a restore disk. Returns, by
 * volume id, a text that explains the wait for room.
 */
async function readRoomless(ctx: Context): Promise<Map<number, string>> {
  const rows = await ctx.db.rows<{ id: number }>(
    sql`SELECT c.volume_id AS id FROM recall c WHERE ${isReadable} GROUP BY c.volume_id
        HAVING bool_and(c.state = 'WAITING' AND coalesce(${needsRoom}, false))`,
  );
  return new Map(rows.map(({ id }) => [id, 'no restore disk has room for the files on the volume']));
}

/** Returns suspended volumes with waiting recalls. */
async function readSuspended(ctx: Context): Promise<PlanVolume[]> {
  const rows = await ctx.db.rows<
    Pick<PlanVolume, 'volumeId' | 'volume' | 'library' | 'medium' | 'files' | 'bytes' | 'reason'>
  >(
    sql`SELECT v.id AS "volumeId", v.name AS volume, b.name AS library, v.medium,
       count(*)::int AS files, sum(c.size) AS bytes, ${suspensionText('s')} AS reason
     FROM suspended_volume s JOIN volume v ON v.id = s.volume_id JOIN library b ON b.id = v.library_id JOIN recall c ON c.volume_id = v.id
     WHERE c.state = 'WAITING' GROUP BY v.id, b.name, s.mode, s.reason ORDER BY v.name`,
  );
  const entries = rows.length > 0 ? await readSuspendedQueue(ctx) : [];
  return rows.map((volume) => ({
    ...volume,
    queuePosition: null,
    users: entries.filter(({ volumeId }) => volumeId === volume.volumeId),
    drive: null,
    isMounted: false,
    problem: null,
    nextTry: null,
    isSuspended: true,
    start: null,
    end: null,
  }));
}

function orderVolumes(state: PlanState, ahead: Ahead): PlanVolume[] {
  const { suspended, failures, libraries } = state;
  const problems = new Map([...state.problems, ...state.blocked]);
  const names = new Map(libraries.map(({ id, name }) => [id, name]));
  const first = new Map<number, Stay>();
  const ends = new Map<number, number>();
  for (const stay of ahead.stays) {
    if (!first.has(stay.volumeId)) first.set(stay.volumeId, stay);
    ends.set(stay.volumeId, Math.max(ends.get(stay.volumeId) ?? 0, stay.end));
  }
  const volumes = new Map<number, PlanVolume>();
  for (const entry of [...state.entries, ...state.more]) {
    const stay = first.get(entry.volumeId);
    const failure = failures.get(entry.libraryId);
    const volume = volumes.get(entry.volumeId) ?? {
      volumeId: entry.volumeId,
      volume: entry.volume,
      library: names.get(entry.libraryId) ?? '',
      medium: entry.medium,
      queuePosition: null,
      files: 0,
      bytes: 0n,
      users: [],
      drive: stay?.drive ?? null,
      isMounted: entry.isMounted,
      reason: stay?.reason ?? null,
      problem: failure ? describeLibraryFailure(failure) : (problems.get(entry.volumeId) ?? null),
      nextTry: failure?.nextTry ?? null,
      isSuspended: false,
      start: stay?.start ?? null,
      end: ends.get(entry.volumeId) ?? null,
    };
    volume.files += entry.files;
    volume.bytes += entry.bytes;
    volume.users.push(entry);
    volumes.set(entry.volumeId, volume);
  }
  const startOf = (volume: PlanVolume) => volume.start ?? Number.POSITIVE_INFINITY;
  const isFirst = (a: PlanVolume, b: PlanVolume) =>
    startOf(a) < startOf(b) || (startOf(a) === startOf(b) && a.volume < b.volume);
  const ordered = [...volumes.values(), ...suspended].sort((a, b) => (isFirst(a, b) ? -1 : 1));
  for (const [index, volume] of ordered.entries()) if (volume.start !== null) volume.queuePosition = index + 1;
  return ordered;
}

export interface StagedLibrary extends StagedAhead {
  name: string;
  /**
   * Whether the last call to the library failed. After a failed call, Tapegate cannot estimate when the library will
   * stage files.
   */
  isAway: boolean;
  /** Whether `waits` contains measured times. */
  isMeasured: boolean;
}

interface StagedRow {
  id: number;
  waits: number[];
  isAway: boolean;
  files: number;
  bytes: number;
}

async function readStagedLibraries(
  ctx: Context,
  libraries: readonly Library[],
  more: readonly { libraryId: number; files: number; bytes: bigint }[] = [],
): Promise<Map<number, StagedLibrary>> {
  const staging = libraries.filter(({ contract }) => contract === 'STAGING');
  if (staging.length === 0) return new Map();
  const rows = await ctx.db.rows<StagedRow>(
    sql`SELECT b.id, coalesce(y.waits, '{}') AS waits, coalesce(y.failures > 0, false) AS "isAway",
          w.files, w.bytes
        FROM library b LEFT JOIN stager y ON y.library_id = b.id CROSS JOIN LATERAL (
          SELECT count(*)::int AS files, coalesce(sum(c.size), 0)::float8 AS bytes
          FROM recall c JOIN volume v ON v.id = c.volume_id WHERE v.library_id = b.id AND c.state = 'WAITING') w
        WHERE b.id = ANY(${staging.map(({ id }) => id)}::int[])`,
  );
  const byId = new Map(rows.map((row) => [row.id, row]));
  return new Map(
    staging.map((library) => {
      const { waits = [], isAway = false, ...waiting } = byId.get(library.id) ?? { files: 0, bytes: 0 };
      const hypothetical = more.filter(({ libraryId }) => libraryId === library.id);
      const ahead: StagedLibrary = {
        name: library.name,
        isAway,
        isMeasured: waits.length > 0,
        waits: isAway ? [] : waitsOf(ctx, library, waits),
        depth: {
          files: library.depthFiles ?? DEPTH_FILES,
          bytes: library.depthBytes === null ? undefined : Number(library.depthBytes),
        },
        waiting: {
          files: hypothetical.reduce((sum, { files }) => sum + files, waiting.files),
          bytes: hypothetical.reduce((sum, { bytes }) => sum + Number(bytes), waiting.bytes),
        },
      };
      return [library.id, ahead];
    }),
  );
}

/**
 * Returns a library's measured staging times in seconds, or the times in the library's settings if no times were
 * measured.
 */
function waitsOf(ctx: Context, library: Library, measured: readonly number[]): number[] {
  if (measured.length > 0) return [...measured].sort((a, b) => a - b);
  const { waitSeconds } = ctx.stagingTermsOf(library);
  return waitSeconds ? [waitSeconds.least, waitSeconds.most] : [];
}
