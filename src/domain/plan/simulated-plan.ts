/**
 * Compares the present plan with the plan for a changed site, such as a site with another drive or without a volume.
 * Both plans come from the same state and the same function as the plan and the estimates. Changes nothing.
 */
import { setImmediate } from 'node:timers/promises';
import { InvalidInputError, NotFoundError, quote } from '../../core/errors.js';
import { secondsOf } from '../../core/time.js';
import { sql } from '../../db/sql.js';
import type { SuspensionKind } from '../../generated/prisma/enums.js';
import type { Context } from '../context.js';
import { checkText } from '../input.js';
import { allow } from '../policy.js';
import {
  isWorking,
  makePlan,
  type Plan,
  type PlanDrive,
  type PlanState,
  type PlanVolume,
  readPlanState,
} from './plan.js';

export interface SimulatePlanInput {
  /** Objects that the changed site does not use. Files that a drive is already reading are read to the end. */
  suspend?: readonly { kind: SuspensionKind; name: string }[] | null | undefined;
  addDrives?: readonly { library: string; drives: number }[] | null | undefined;
}

/** What a plan achieves. Times are in seconds since 1970. */
export interface PlanOutcome {
  /** Number of drives that can work. */
  drives: number;
  /** Number of times that drives are planned to mount a volume. */
  mounts: number;
  /** Planned time at which the last planned file is read; null if no file is planned. */
  emptyAt: number | null;
  /** Longest planned time from a request to the last of a user's files on a volume; null if no file is planned. */
  longestWaitSeconds: number | null;
  filesBlocked: number;
  bytesBlocked: bigint;
  /** Waiting files of staging libraries, which schedule their tapes themselves. */
  filesUnplanned: number;
}

export interface ComparedVolume {
  present: PlanVolume;
  changed: PlanVolume;
}

export interface PlanComparison {
  /** Time at which the plans were computed, in seconds since 1970. */
  now: number;
  present: PlanOutcome;
  changed: PlanOutcome;
  /** The volumes with waiting files, in the order of the present queue. */
  volumes: ComparedVolume[];
}

/**
 * Computes the plan for the present site and for the changed site.
 * @throws InvalidInputError, NotFoundError, ForbiddenError
 */
export async function simulatePlan(ctx: Context, input: SimulatePlanInput): Promise<PlanComparison> {
  allow(ctx, 'simulatePlan');
  const changes = await parseChanges(ctx, input);
  const state = await readPlanState(ctx);
  const present = makePlan(state);
  await setImmediate(); // let other requests run between the two simulations
  const changed = makePlan(changeState(state, changes));
  const byId = new Map(changed.volumes.map((volume) => [volume.volumeId, volume]));
  return {
    now: state.now,
    present: describeEnds(state, present, new Set()),
    changed: describeEnds(state, changed, changes.volumes),
    volumes: present.volumes.map((volume) => ({ present: volume, changed: byId.get(volume.volumeId) ?? volume })),
  };
}

/** Changes to the site, with the ids of the volumes and libraries and the names of the drives to suspend. */
interface Changes {
  volumes: ReadonlySet<number>;
  libraries: ReadonlySet<number>;
  drives: ReadonlySet<string>;
  added: readonly { library: LibraryRow; drives: number }[];
}

interface LibraryRow {
  id: number;
  name: string;
  contract: PlanDrive['contract'];
  isSuspended: boolean;
}

const MAX_SUSPENDED = 1000;
const MAX_ADDED = 100;

async function parseChanges(ctx: Context, { suspend, addDrives }: SimulatePlanInput): Promise<Changes> {
  const [chosen, added] = [suspend ?? [], addDrives ?? []];
  if (chosen.length > MAX_SUSPENDED) {
    throw new InvalidInputError('suspend', `must contain at most ${MAX_SUSPENDED} objects, not ${chosen.length}`);
  }
  const other = chosen.find(({ kind }) => !['VOLUME', 'DRIVE', 'LIBRARY'].includes(kind));
  if (other)
    throw new InvalidInputError('suspend', `must contain only volumes, drives and libraries, not ${other.kind}`);
  checkAdded(added);
  const namesOf = (kind: SuspensionKind) =>
    chosen.filter((each) => each.kind === kind).map(({ name }) => checkText('name', name));
  const libraries = await ctx.db.rows<LibraryRow>(
    sql`SELECT b.id, b.name, b.contract, EXISTS (SELECT FROM suspended_library s WHERE s.library_id = b.id) AS "isSuspended"
        FROM library b ORDER BY b.id`,
  );
  const libraryOf = (given: string) => {
    const library = libraries.find(({ name }) => name === given);
    if (!library) throw missing('library', given, 'libraries', libraries);
    return library;
  };
  return {
    volumes: await readVolumeIds(ctx, namesOf('VOLUME')),
    libraries: new Set(namesOf('LIBRARY').map((name) => libraryOf(name).id)),
    drives: await checkDrives(ctx, namesOf('DRIVE')),
    added: added.map(({ library, drives }) => ({
      library: checkAddable(libraryOf(checkText('library', library))),
      drives,
    })),
  };
}

function checkAdded(added: readonly { drives: number }[]): void {
  const least = Math.min(...added.map(({ drives }) => drives));
  if (least < 1) throw new InvalidInputError('driveCount', `must be 1 or more, not ${least}`);
  const sum = added.reduce((total, { drives }) => total + drives, 0);
  if (sum > MAX_ADDED) throw new InvalidInputError('addDrives', `must add at most ${MAX_ADDED} drives, not ${sum}`);
}

function checkAddable(library: LibraryRow): LibraryRow {
  if (library.contract === 'DRIVE') return library;
  throw new InvalidInputError(
    'addDrives',
    `must name a library whose volumes Tapegate mounts: ${quote(library.name)} schedules its tapes itself`,
  );
}

/** Number of existing names in an error message. */
const MAX_NAMES = 10;

function missing(kind: string, given: string, kinds: string, rows: readonly { name: string }[]): NotFoundError {
  const names = rows.slice(0, MAX_NAMES).map(({ name }) => quote(name));
  const more = rows.length > MAX_NAMES ? ' and others' : '';
  const known = names.length > 0 ? `the ${kinds} are ${names.join(', ')}${more}` : `there are no ${kinds}`;
  return new NotFoundError(`there is no ${kind} ${quote(given)}: ${known}`);
}

async function checkDrives(ctx: Context, names: readonly string[]): Promise<Set<string>> {
  if (names.length === 0) return new Set();
  const drives = await ctx.db.rows<{ name: string }>(sql`SELECT d.name FROM drive d ORDER BY d.id`);
  const unknown = names.find((given) => !drives.some(({ name }) => name === given));
  if (unknown !== undefined) throw missing('drive', unknown, 'drives', drives);
  return new Set(names);
}

async function readVolumeIds(ctx: Context, names: readonly string[]): Promise<Set<number>> {
  if (names.length === 0) return new Set();
  const rows = await ctx.db.rows<{ id: number; name: string }>(
    sql`SELECT v.id, v.name FROM volume v WHERE v.name = ANY(${names}::text[])`,
  );
  const unknown = names.find((given) => !rows.some(({ name }) => name === given));
  if (unknown === undefined) return new Set(rows.map(({ id }) => id));
  const similar = await ctx.db.rows<{ name: string }>(
    sql`SELECT v.name FROM volume v WHERE v.retired_at IS NULL
        ORDER BY similarity(v.name, ${unknown}::text) DESC, v.name LIMIT ${MAX_NAMES + 1}`,
  );
  throw missing('volume', unknown, 'volumes', similar);
}

function changeState(state: PlanState, { volumes, libraries, drives, added }: Changes): PlanState {
  const isClosed = (drive: PlanDrive) => drives.has(drive.name) || libraries.has(drive.libraryId);
  const extra = added.flatMap(({ library, drives: count }) =>
    Array.from({ length: count }, (_, n) => newDrive(state, library, n + 1)),
  );
  return {
    ...state,
    drives: [...state.drives, ...extra].map((drive) => (isClosed(drive) ? { ...drive, isOpen: false } : drive)),
    blocked: new Map([...state.blocked, ...[...volumes].map((id) => [id, 'the volume is suspended'] as const)]),
  };
}

/** Returns an idle drive that an engine has claimed. */
function newDrive({ failures }: PlanState, library: LibraryRow, number: number): PlanDrive {
  return {
    name: `${library.name}: new drive ${number}`,
    libraryId: library.id,
    library: library.name,
    contract: library.contract,
    isClaimed: true,
    host: null,
    isOpen: !library.isSuspended,
    suspensionMode: null,
    hasLibraryFailed: failures.has(library.id),
    ...{ volumeId: null, volume: null, medium: null, filesRunning: 0, bytesRunning: 0n, rate: null, pace: [] },
  };
}

/** @param closed ids of the volumes that are suspended only in the simulation */
function describeEnds(state: PlanState, plan: Plan, closed: ReadonlySet<number>): PlanOutcome {
  const ofStaging = new Set(state.libraries.filter(({ contract }) => contract === 'STAGING').map(({ name }) => name));
  const working = plan.drives.filter(isWorking);
  const stagingNow = new Set(working.filter(({ library }) => ofStaging.has(library)).map(({ library }) => library));
  const isUnplanned = ({ library, isSuspended, volumeId }: PlanVolume) =>
    stagingNow.has(library) && !isSuspended && !closed.has(volumeId) && !state.blocked.has(volumeId);
  const stuck = plan.volumes.filter(({ start }) => start === null);
  const [unplanned, blocked] = [stuck.filter(isUnplanned), stuck.filter((volume) => !isUnplanned(volume))];
  return {
    drives: working.length,
    mounts: countMounts(plan),
    emptyAt: largest(plan.volumes.flatMap(({ end }) => end ?? [])),
    longestWaitSeconds: largest(
      state.entries.flatMap(({ volumeId, user, oldest }) => {
        const turn = plan.ahead.turnOf(volumeId, user);
        return turn ? turn.end - secondsOf(oldest) : [];
      }),
    ),
    filesBlocked: blocked.reduce((sum, { files }) => sum + files, 0),
    bytesBlocked: blocked.reduce((sum, { bytes }) => sum + bytes, 0n),
    filesUnplanned: unplanned.reduce((sum, { files }) => sum + files, 0),
  };
}

/** Counts the planned stays of volumes in drives, except for volumes that are in their drives already. */
function countMounts({ drives, ahead }: Plan): number {
  const mounted = new Map(drives.map(({ name, volumeId }) => [name, volumeId]));
  return ahead.stays.filter(({ drive, volumeId }) => {
    const isThere = mounted.get(drive) === volumeId;
    mounted.set(drive, null);
    return !isThere;
  }).length;
}

const largest = (values: readonly number[]): number | null =>
  values.reduce<number | null>((most, value) => (most === null || value > most ? value : most), null);
