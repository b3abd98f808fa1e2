/** Estimates a request's size, charges and end, without storing anything. */

import { UnknownUserError } from '../../core/errors.js';
import { onDiskStages } from '../../core/stages.js';
import { askAtLength } from '../../db/lists/snapshot.js';
import { type Sql, sql } from '../../db/sql.js';
import type { AskDatabase } from '../../events/event-table.js';
import type { EndRange } from '../../planner/end-range.js';
import type { QueueEntry } from '../../planner/queue.js';
import { mayPath } from '../access/paths.js';
import { hasPosition, isAtPrimaryPath, isLive, isOffered } from '../conditions.js';
import type { Context } from '../context.js';
import { readRoom } from '../disks/disks.js';
import { suspensionText } from '../health/suspensions.js';
import { type Library, readLibraries } from '../libraries/libraries.js';
import { holdsText } from '../match.js';
import { allow } from '../policy.js';
import { readUsed } from '../quotas/quotas.js';
import { type CreateRequestInput, checkRequest, type FileSelection } from '../requests/create.js';
import { checkWithin } from '../requests/limits.js';
import { readPlan } from './plan.js';
import { findEnd, NO_ROOM } from './waiting.js';

export interface Estimate {
  files: number;
  bytes: bigint;
  filesUnknown: number;
  unknownPaths: string[];
  filesOnDisk: number;
  bytesOnDisk: bigint;
  /** Number of files that are still on disk at their primary path, from which they were archived. */
  filesAtPrimaryPath: number;
  bytesAtPrimaryPath: bigint;
  /**
   * Number of files that are already being recalled for other requests. The estimated request causes no further tape
   * read for these files.
   */
  filesOnTheirWay: number;
  /**
   * Number of files that other live requests of the same quota contain. The quota is charged for each request that
   * contains a file.
   */
  filesAlsoRequested: number;
  bytesAlsoRequested: bigint;
  /**
   * Number of files that are not on disk yet, and that drives must read from tape. Includes files that are already
   * being recalled for other requests.
   */
  filesToRecall: number;
  bytesToRecall: bigint;
  /** Number of files on tape that cannot be recalled, because their positions are unknown. */
  filesWithoutPlace: number;
  volumes: number;
  mounts: number;
  volumesSuspended: number;
  /** Quota of the user, in bytes. `usedAfter` includes the files of the estimated request. */
  quota: { user: string; size: bigint; used: bigint; usedAfter: bigint };
  isEnough: boolean;
  /** Whether the restore disks in service have room for the files to recall; true if no disk is registered yet. */
  hasRoom: boolean;
  prices: LibraryPrice[];
  price: Price | undefined;
  end: EndRange | undefined;
  /** Text for users that explains why the request's end is unknown. */
  endUnknown: string | undefined;
}

interface FileGroup {
  volumeId: number | null;
  libraryId: number | null;
  volume: string | null;
  medium: string;
  isMounted: boolean;
  /** Message that the volume is suspended, with the operator's reason; null if the volume is in service. */
  suspension: string | null;
  isOnDisk: boolean;
  isAtPrimaryPath: boolean;
  isOnItsWay: boolean;
  isAlsoRequested: boolean;
  hasPosition: boolean;
  isReserved: boolean;
  isStaged: boolean;
  askedAt: string | null;
  files: number;
  bytes: bigint;
}

/**
 * Estimates a request. A full quota is reported in the result, not as an error.
 * @throws InvalidInputError, UnknownUserError
 */
export async function estimateRequest(
  ctx: Context,
  input: CreateRequestInput,
  reader?: AbortSignal,
): Promise<Estimate> {
  const { selection, user, limits } = checkRequest(ctx, input, ctx.now());
  allow(ctx, 'estimateRequest', user);
  const quota = await ctx.db.prisma.quota.findUnique({ where: { user, removedAt: null } });
  if (!quota) throw new UnknownUserError(user);
  const query: AskDatabase = (statement) => askAtLength(ctx, statement, reader);
  const { groups, known, unknownPaths } = await readGroups(query, selection, {
    quotaId: quota.id,
    isAllowed: mayPath(ctx, 'REQUEST'),
    now: ctx.now(),
  });
  const used = await readUsed(ctx, quota);
  const all = sum(groups);
  checkWithin(ctx, limits, all);
  const onDisk = sum(groups.filter((group) => group.isOnDisk));
  const atPrimaryPath = sum(groups.filter((group) => group.isAtPrimaryPath));
  const alsoRequested = sum(groups.filter((group) => group.isAlsoRequested));
  const onTape = groups.filter((group) => !group.isOnDisk);
  const placed = onTape.filter((group) => group.hasPosition);
  const toRecall = sum(placed);
  const parts = joinByVolume(placed);
  const isFree = ({ isOnItsWay, isStaged, askedAt }: FileGroup) => isOnItsWay || isStaged || askedAt !== null;
  const priced = placed.map((group) => ({ ...group, isFree: isFree(group) }));
  const room = await readRoom(ctx);
  const hasRoom = room === undefined || sum(placed.filter((group) => !group.isReserved)).bytes <= room;
  const { size } = quota;
  return {
    files: all.files,
    bytes: all.bytes,
    filesUnknown: selection.files ? selection.files.length - known : 0,
    unknownPaths,
    filesOnDisk: onDisk.files,
    bytesOnDisk: onDisk.bytes,
    filesAtPrimaryPath: atPrimaryPath.files,
    bytesAtPrimaryPath: atPrimaryPath.bytes,
    filesOnTheirWay: sum(onTape.filter((group) => group.isOnItsWay)).files,
    filesAlsoRequested: alsoRequested.files,
    bytesAlsoRequested: alsoRequested.bytes,
    filesToRecall: toRecall.files,
    bytesToRecall: toRecall.bytes,
    filesWithoutPlace: sum(onTape).files - toRecall.files,
    volumes: parts.length,
    mounts: parts.filter((part) => !part.isMounted).length,
    volumesSuspended: parts.filter((part) => part.suspension !== null).length,
    quota: { user, size, used, usedAfter: used + all.bytes },
    isEnough: all.bytes === 0n || used + all.bytes <= size,
    hasRoom,
    ...priceFiles(ctx, await readLibraries(ctx), priced),
    ...(hasRoom ? await estimateRange(ctx, user, { parts, groups: placed }) : { end: undefined, endUnknown: NO_ROOM }),
  };
}

const sum = (chosen: readonly FileGroup[]) => ({
  files: chosen.reduce((total, group) => total + group.files, 0),
  bytes: chosen.reduce((total, group) => total + group.bytes, 0n),
});

const MAX_NAMED_PATHS = 20;

async function readGroups(
  query: AskDatabase,
  selection: FileSelection,
  { quotaId, isAllowed, now }: { quotaId: number; isAllowed: Sql; now: string },
): Promise<{ groups: FileGroup[]; known: number; unknownPaths: string[] }> {
  const matchesSelection = selection.files
    ? sql`f.path = ANY(${selection.files}::text[])`
    : holdsText(selection.pattern);
  const isSelected = sql`${matchesSelection} AND ${isOffered} AND ${isAllowed}`;
  const isActive = sql`g.state <> 'RELEASING' AND (g.state NOT IN ('READY', 'KEPT') OR g.ready_until IS NULL OR g.ready_until > ${now})`;
  const groups = await query<FileGroup>(
    sql`SELECT w.*, v.library_id AS "libraryId", v.name AS volume, coalesce(v.medium, 'linear') AS medium,
          EXISTS (SELECT FROM drive d WHERE d.volume_id = v.id) AS "isMounted",
          (SELECT ${suspensionText('s')} FROM suspended_volume s WHERE s.volume_id = v.id) AS suspension
        FROM (
          SELECT f.volume_id AS "volumeId", f.stage = ANY(${onDiskStages}::"Stage"[]) AS "isOnDisk",
            ${isAtPrimaryPath} AS "isAtPrimaryPath",
            c.file_id IS NOT NULL AS "isOnItsWay", ${isRequestedBy(quotaId)} AS "isAlsoRequested", ${hasPosition} AS "hasPosition",
            c.disk_id IS NOT NULL AS "isReserved", coalesce(g.state IN ('READY', 'KEPT'), false) AS "isStaged",
            max(g.since) FILTER (WHERE g.state IN ('INTENDED', 'ASKED')) AS "askedAt",
            count(*)::int AS files, sum(f.size) AS bytes
          FROM tape_file f LEFT JOIN recall c ON c.file_id = f.id LEFT JOIN volume u ON u.id = f.volume_id
            LEFT JOIN staging g ON g.file_id = f.id AND g.library_id = u.library_id AND ${isActive}
          WHERE ${isSelected} GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, g.state IN ('INTENDED', 'ASKED')
        ) w LEFT JOIN volume v ON v.id = w."volumeId"`,
  );
  const unknown = await query<{ path: string }>(
    sql`SELECT l.path FROM unnest(${selection.files ?? []}::text[]) WITH ORDINALITY AS l (path, n)
        WHERE NOT EXISTS (SELECT FROM tape_file f WHERE f.path = l.path AND ${isOffered} AND ${isAllowed}) ORDER BY l.n LIMIT ${MAX_NAMED_PATHS}`,
  );
  const known = groups.reduce((total, group) => total + group.files, 0);
  return { groups, known, unknownPaths: unknown.map((row) => row.path) };
}

/**
 * Returns the SQL condition that is true if a live request of the quota contains the file `f`. Forces PostgreSQL to
 * look up each file by key. Otherwise, PostgreSQL might choose a join that is slow for many files.
 */
const isRequestedBy = (quotaId: number): Sql =>
  sql`CASE WHEN (SELECT EXISTS (SELECT FROM request r WHERE r.quota_id = ${quotaId} AND ${isLive}))
    THEN coalesce((SELECT true FROM live_request_file h WHERE h.file_id = f.id AND h.quota_id = ${quotaId} LIMIT 1), false) ELSE false END`;

type VolumePart = Omit<FileGroup, 'isOnItsWay' | 'isAlsoRequested' | 'isReserved' | 'isStaged' | 'askedAt'>;

const joinByVolume = (groups: readonly FileGroup[]): VolumePart[] => joinBy(groups, ({ volumeId }) => String(volumeId));

const joinByWait = (groups: readonly FileGroup[]): FileGroup[] =>
  joinBy(groups, ({ volumeId, isStaged, askedAt }) => `${volumeId} ${isStaged} ${askedAt !== null}`);

function joinBy(groups: readonly FileGroup[], keyOf: (group: FileGroup) => string): FileGroup[] {
  const joined = new Map<string, FileGroup>();
  for (const group of groups) {
    const known = joined.get(keyOf(group));
    if (!known) {
      joined.set(keyOf(group), { ...group });
      continue;
    }
    known.files += group.files;
    known.bytes += group.bytes;
    if ((group.askedAt ?? '') > (known.askedAt ?? '')) known.askedAt = group.askedAt;
  }
  return [...joined.values()];
}

async function estimateRange(
  ctx: Context,
  user: string,
  { parts, groups }: { parts: readonly VolumePart[]; groups: readonly FileGroup[] },
): Promise<Pick<Estimate, 'end' | 'endUnknown'>> {
  const suspended = parts.find(({ suspension }) => suspension !== null);
  if (suspended) return { end: undefined, endUnknown: `volume ${suspended.volume} is ${suspended.suspension}` };
  const now = ctx.now();
  const hypothetical = parts.map(
    ({ volumeId, libraryId, volume, medium, isMounted, files, bytes }): QueueEntry => ({
      volumeId: volumeId ?? 0,
      libraryId: libraryId ?? 0,
      volume: volume ?? '',
      medium,
      isMounted,
      user,
      files,
      bytes,
      oldest: now,
      priority: 0,
    }),
  );
  const plan = await readPlan(ctx, hypothetical);
  const { now: at } = plan;
  if (parts.length === 0)
    return { end: { at, earliest: at, planned: at, latest: at, isMeasured: true }, endUnknown: undefined };
  const waiting = joinByWait(groups).map((group) => ({ ...group, isReading: false, nextTry: null }));
  return findEnd(plan, user, waiting);
}

export interface Price {
  /** Amount of money in decimal notation, with two to six decimal places. */
  amount: string;
  /** ISO 4217 currency code. */
  currency: string;
}

export interface LibraryPrice extends Price {
  library: string;
  files: number;
  bytes: bigint;
  note: string;
}

interface PricedFiles {
  libraryId: number | null;
  /** Whether the library charges nothing for the files, because they are staged or already requested. */
  isFree: boolean;
  files: number;
  bytes: bigint;
}

function priceFiles(
  ctx: Context,
  libraries: readonly Library[],
  groups: readonly PricedFiles[],
): { prices: LibraryPrice[]; price: Price | undefined } {
  const priced = libraries.flatMap((library) => {
    const own = groups.filter(({ libraryId }) => libraryId === library.id);
    return own.length > 0 ? priceOne(ctx, library, own) : [];
  });
  const [currency, ...others] = new Set(priced.map((each) => each.currency));
  const micros = priced.reduce((sum, each) => sum + each.micros, 0n);
  return {
    prices: priced.map(({ micros: own, ...price }) => ({ ...price, amount: formatAmount(own) })),
    price: currency === undefined || others.length > 0 ? undefined : { amount: formatAmount(micros), currency },
  };
}

function priceOne(
  ctx: Context,
  library: Library,
  groups: readonly PricedFiles[],
): (Omit<LibraryPrice, 'amount'> & { micros: bigint })[] {
  const terms = ctx.stagingTermsOf(library);
  if (!terms.price) return [];
  const charged = groups.filter(({ isFree }) => !isFree);
  const files = charged.reduce((sum, group) => sum + group.files, 0);
  const bytes = charged.reduce((sum, group) => sum + group.bytes, 0n);
  const { currency, parts } = terms.price({ count: files, bytes });
  const micros = parts.reduce((sum, part) => sum + part.micros, 0n);
  const note = parts.map((part) => `${formatAmount(part.micros)} ${part.what}`).join(', ');
  return [{ library: library.name, files, bytes, currency, micros, note }];
}

function formatAmount(micros: bigint): string {
  const fraction = String(micros % 1_000_000n).padStart(6, '0');
  return `${micros / 1_000_000n}.${fraction.replace(/0{1,4}$/, '')}`;
}
