/** Estimates a request without storing anything. */

import { UnknownUserError } from '../../core/errors.js';
import { onDiskStages } from '../../core/stages.js';
import { askAtLength } from '../../db/snapshot.js';
import { type Sql, sql } from '../../db/sql.js';
import type { AskDatabase } from '../../events/event-table.js';
import type { EndRange } from '../../planner/end-range.js';
import type { QueueEntry } from '../../planner/queue.js';
import { mayPath } from '../access/paths.js';
import { hasPlace, isAtPrimaryPlace, isLive, isOffered } from '../conditions.js';
import type { Context } from '../context.js';
import { readRoom } from '../disks/disks.js';
import { type Library, readLibraries } from '../libraries/libraries.js';
import { holdsText } from '../match.js';
import { allow } from '../policy.js';
import { readUsed } from '../quotas/quotas.js';
import { type CreateRequestInput, checkRequest, type FileSelection } from '../requests/create.js';
import { checkWithin } from '../requests/limits.js';
import { readPlan } from './plan.js';
import { endOfParts, whyNoEnd } from './waiting.js';

export interface Estimate {
  /** Known files; sizes are bytes. */
  files: number;
  bytes: bigint;
  filesUnknown: number;
  unknownPaths: string[];
  /** Already on disk: no tape reads. */
  filesOnDisk: number;
  bytesOnDisk: bigint;
  /** Those at their primary path, on no restore disk. */
  filesAtPrimaryPlace: number;
  bytesAtPrimaryPlace: bigint;
  /** Requested by others already: no further tape reads. */
  filesOnTheirWay: number;
  /** In other live requests of the quota, which charge them too. */
  filesAlsoRequested: number;
  bytesAlsoRequested: bigint;
  /** To be read from tape, including those already requested. */
  filesToRecall: number;
  bytesToRecall: bigint;
  /** On tape at an unknown position: they would fail. */
  filesWithoutPlace: number;
  /** Volumes with files to recall; those that must be mounted; those suspended. */
  volumes: number;
  mounts: number;
  volumesSuspended: number;
  /** It is enough if `usedAfter` is at most `size`. */
  quota: { user: string; size: bigint; used: bigint; usedAfter: bigint };
  isEnough: boolean;
  /** By the allocations of the restore disks in service; true if none is registered yet. */
  hasRoom: boolean;
  /** Charges of libraries; free ones are absent. */
  prices: LibraryPrice[];
  /** The sum; undefined if there is none, or the currencies differ. */
  price: Price | undefined;
  end: EndRange | undefined;
  /** Set if a library that orders its tapes itself makes the end unknown. Shown to users. */
  endUnknown: string | undefined;
}

interface Group {
  volumeId: number | null;
  libraryId: number | null;
  volume: string | null;
  medium: string;
  isMounted: boolean;
  isSuspended: boolean;
  isOnDisk: boolean;
  isAtPrimaryPlace: boolean;
  isOnItsWay: boolean;
  isAlsoRequested: boolean;
  hasPlace: boolean;
  /** They are being recalled, with reserved room. */
  isReserved: boolean;
  isStaged: boolean;
  /** When the library was asked for the last of them. */
  askedAt: string | null;
  files: number;
  bytes: bigint;
}

/**
 * @param reader aborts when the caller no longer waits
 * @throws InvalidInputError, UnknownUserError, as for the request; a full quota is part of the result
 */
export async function estimateRequest(
  ctx: Context,
  input: CreateRequestInput,
  reader?: AbortSignal,
): Promise<Estimate> {
  const { wish, user, limits } = checkRequest(ctx, input, ctx.now());
  allow(ctx, 'estimateRequest', user);
  const quota = await ctx.db.prisma.quota.findUnique({ where: { user, removedAt: null } });
  if (!quota) throw new UnknownUserError(user);
  const ask: AskDatabase = (statement) => askAtLength(ctx, statement, reader);
  const { groups, known, unknownPaths } = await readGroups(ask, wish, {
    quotaId: quota.id,
    isAllowed: mayPath(ctx, 'REQUEST'),
    now: ctx.now(),
  });
  const used = await readUsed(ctx, quota);
  const all = sum(groups);
  checkWithin(ctx, limits, all);
  const onDisk = sum(groups.filter((group) => group.isOnDisk));
  const atPrimaryPlace = sum(groups.filter((group) => group.isAtPrimaryPlace));
  const alsoRequested = sum(groups.filter((group) => group.isAlsoRequested));
  const onTape = groups.filter((group) => !group.isOnDisk);
  const placed = onTape.filter((group) => group.hasPlace);
  const toRecall = sum(placed);
  const parts = joinByVolume(placed);
  const isFree = ({ isOnItsWay, isStaged, askedAt }: Group) => isOnItsWay || isStaged || askedAt !== null;
  const priced = placed.map((group) => ({ ...group, isFree: isFree(group) }));
  const room = await readRoom(ctx);
  const hasRoom = room === undefined || sum(placed.filter((group) => !group.isReserved)).bytes <= room;
  const { size } = quota;
  return {
    files: all.files,
    bytes: all.bytes,
    filesUnknown: wish.files ? wish.files.length - known : 0,
    unknownPaths,
    filesOnDisk: onDisk.files,
    bytesOnDisk: onDisk.bytes,
    filesAtPrimaryPlace: atPrimaryPlace.files,
    bytesAtPrimaryPlace: atPrimaryPlace.bytes,
    filesOnTheirWay: sum(onTape.filter((group) => group.isOnItsWay)).files,
    filesAlsoRequested: alsoRequested.files,
    bytesAlsoRequested: alsoRequested.bytes,
    filesToRecall: toRecall.files,
    bytesToRecall: toRecall.bytes,
    filesWithoutPlace: sum(onTape).files - toRecall.files,
    volumes: parts.length,
    mounts: parts.filter((part) => !part.isMounted).length,
    volumesSuspended: parts.filter((part) => part.isSuspended).length,
    quota: { user, size, used, usedAfter: used + all.bytes },
    isEnough: all.bytes === 0n || used + all.bytes <= size,
    hasRoom,
    ...priceFiles(ctx, await readLibraries(ctx), priced),
    ...(hasRoom
      ? await estimateRange(ctx, user, { parts, groups: placed })
      : { end: undefined, endUnknown: undefined }),
  };
}

const sum = (chosen: readonly Group[]) => ({
  files: chosen.reduce((total, group) => total + group.files, 0),
  bytes: chosen.reduce((total, group) => total + group.bytes, 0n),
});

/** Most unknown paths in the result. */
const NAMED_PATHS = 20;

async function readGroups(
  ask: AskDatabase,
  wish: FileSelection,
  { quotaId, isAllowed, now }: { quotaId: number; isAllowed: Sql; now: string },
): Promise<{ groups: Group[]; known: number; unknownPaths: string[] }> {
  const isNamed = wish.files ? sql`f.path = ANY(${wish.files}::text[])` : holdsText(wish.pattern);
  const isWished = sql`${isNamed} AND ${isOffered} AND ${isAllowed}`;
  const isThere = sql`g.state <> 'RELEASING' AND (g.state NOT IN ('READY', 'KEPT') OR g.ready_until IS NULL OR g.ready_until > ${now})`;
  const groups = await ask<Group>(
    sql`SELECT w.*, v.library_id AS "libraryId", v.name AS volume, coalesce(v.medium, 'linear') AS medium,
          EXISTS (SELECT FROM drive d WHERE d.volume_id = v.id) AS "isMounted",
          EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = v.id) AS "isSuspended"
        FROM (
          SELECT f.volume_id AS "volumeId", f.stage = ANY(${onDiskStages}::"Stage"[]) AS "isOnDisk",
            ${isAtPrimaryPlace} AS "isAtPrimaryPlace",
            c.file_id IS NOT NULL AS "isOnItsWay", ${isRequestedBy(quotaId)} AS "isAlsoRequested", ${hasPlace} AS "hasPlace",
            c.disk_id IS NOT NULL AS "isReserved", coalesce(g.state IN ('READY', 'KEPT'), false) AS "isStaged",
            max(g.since) FILTER (WHERE g.state IN ('INTENDED', 'ASKED')) AS "askedAt",
            count(*)::int AS files, sum(f.size) AS bytes
          FROM tape_file f LEFT JOIN recall c ON c.file_id = f.id LEFT JOIN volume u ON u.id = f.volume_id
            LEFT JOIN staging g ON g.file_id = f.id AND g.library_id = u.library_id AND ${isThere}
          WHERE ${isWished} GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, g.state IN ('INTENDED', 'ASKED')
        ) w LEFT JOIN volume v ON v.id = w."volumeId"`,
  );
  const unknown = await ask<{ path: string }>(
    sql`SELECT l.path FROM unnest(${wish.files ?? []}::text[]) WITH ORDINALITY AS l (path, n)
        WHERE NOT EXISTS (SELECT FROM tape_file f WHERE f.path = l.path AND ${isOffered} AND ${isAllowed}) ORDER BY l.n LIMIT ${NAMED_PATHS}`,
  );
  const known = groups.reduce((total, group) => total + group.files, 0);
  return { groups, known, unknownPaths: unknown.map((row) => row.path) };
}

/** A live request of the quota contains the file `f`. Looked up by key: a join may be planned for few files. */
const isRequestedBy = (quotaId: number): Sql =>
  sql`CASE WHEN (SELECT EXISTS (SELECT FROM request r WHERE r.quota_id = ${quotaId} AND ${isLive}))
    THEN coalesce((SELECT true FROM live_request_file h WHERE h.file_id = f.id AND h.quota_id = ${quotaId} LIMIT 1), false) ELSE false END`;

type VolumePart = Omit<Group, 'isOnItsWay' | 'isAlsoRequested' | 'isReserved' | 'isStaged' | 'askedAt'>;

const joinByVolume = (groups: readonly Group[]): VolumePart[] => joinBy(groups, ({ volumeId }) => String(volumeId));

const joinByWait = (groups: readonly Group[]): Group[] =>
  joinBy(groups, ({ volumeId, isStaged, askedAt }) => `${volumeId} ${isStaged} ${askedAt !== null}`);

function joinBy(groups: readonly Group[], keyOf: (group: Group) => string): Group[] {
  const joined = new Map<string, Group>();
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
  { parts, groups }: { parts: readonly VolumePart[]; groups: readonly Group[] },
): Promise<Pick<Estimate, 'end' | 'endUnknown'>> {
  if (parts.some((part) => part.isSuspended)) return { end: undefined, endUnknown: undefined };
  const now = ctx.now();
  const wished = parts.map(
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
  const plan = await readPlan(ctx, wished);
  const { now: at } = plan;
  if (parts.length === 0) return { end: { earliest: at, planned: at, latest: at }, endUnknown: undefined };
  const awaited = joinByWait(groups).map((group) => ({ ...group, isReading: false, nextTry: null }));
  return { end: endOfParts(plan, user, awaited), endUnknown: whyNoEnd(plan, awaited) };
}

export interface Price {
  /** A decimal number with two to six decimals. */
  amount: string;
  /** ISO 4217 code. */
  currency: string;
}

export interface LibraryPrice extends Price {
  library: string;
  /** Files and bytes that the library would be asked for. */
  files: number;
  bytes: bigint;
  note: string;
}

interface PricedFiles {
  libraryId: number | null;
  /** They are on disk, or requested already. */
  isFree: boolean;
  files: number;
  bytes: bigint;
}

/**
 * @returns the charge of each library, in order of their addition, and the sum; no `price` if there is none, or the
 *   currencies differ
 */
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

/** @returns undefined if the library is free */
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
