/** What a request would take, before it is made: nothing is stored. */
import type { Context } from '../../context.js';
import { readAtLength, type Snapshot } from '../../database/snapshot.js';
import { type Sql, sql } from '../../database/sql.js';
import { UnknownUserError } from '../../errors.js';
import type { EndRange } from '../../planner/end-range.js';
import type { QueueEntry } from '../../planner/queue.js';
import { onDiskStages } from '../../stages.js';
import { mayPath } from '../access/paths.js';
import { hasPlace, isAtPrimaryPlace, isOffered } from '../conditions.js';
import { readRoom } from '../disks/disks.js';
import { type Library, readLibraries } from '../libraries/libraries.js';
import { holdsText } from '../match.js';
import { allow } from '../policy.js';
import { readUsed } from '../quotas/quotas.js';
import { type CreateRequestInput, checkRequest, type Wish } from '../requests/create.js';
import { checkWithin } from '../requests/limits.js';
import { readPlan } from './plan.js';
import { endOfParts, whyNoEnd } from './waiting.js';

export interface Estimate {
  /** What the catalogue knows of it; sizes are bytes. */
  files: number;
  bytes: bigint;
  /** Paths that the catalogue does not know (yet). */
  filesUnknown: number;
  /** The first of them. */
  unknownPaths: string[];
  /** There already: they cost the tape nothing. */
  filesOnDisk: number;
  bytesOnDisk: bigint;
  /** Of these, the ones at their primary place: no restore disk has them. */
  filesAtPrimaryPlace: number;
  bytesAtPrimaryPlace: bigint;
  /** Others have asked for them, so that they cost the tape nothing more. */
  filesOnTheirWay: number;
  /** To be brought back from tape, those on their way included. */
  filesToRecall: number;
  bytesToRecall: bigint;
  /** On tape, and nobody knows where: they would fail. */
  filesWithoutPlace: number;
  /** That hold the files to be recalled; of these, those that no drive has mounted, and those out of service. */
  volumes: number;
  mounts: number;
  volumesSuspended: number;
  /** The quota before and after; it is enough if `usedAfter` is not greater than `size`. */
  quota: { user: string; size: bigint; used: bigint; usedAfter: bigint };
  isEnough: boolean;
  /** As far as the allocations of the restore disks in service go; true where none is registered yet. */
  hasRoom: boolean;
  /** What libraries would charge for it; those that charge for nothing are left out. */
  prices: LibraryPrice[];
  /** All of these; nothing where there are none, or not all are in one currency. */
  price: Price | undefined;
  /** Nothing when it cannot be told. */
  end: EndRange | undefined;
  /** Why not, for people, where that is because of a library that orders its tapes by itself. */
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
  hasPlace: boolean;
  /** They are being brought back, and their room is reserved. */
  isReserved: boolean;
  /** They are on disk at a library that orders its tapes by itself, needed or not. */
  isStaged: boolean;
  /** It was asked for them, for the last one then. */
  askedAt: string | null;
  files: number;
  bytes: bigint;
}

/**
 * @param reader aborts when nobody waits for it any more
 * @throws InvalidInputError, UnknownUserError, as making the request would; a full quota is told in the answer
 */
export async function estimateRequest(
  ctx: Context,
  input: CreateRequestInput,
  reader?: AbortSignal,
): Promise<Estimate> {
  const { wish, user, limits } = checkRequest(input, ctx.now());
  allow(ctx, 'estimateRequest', user);
  const quota = await ctx.db.prisma.quota.findUnique({ where: { user, removedAt: null } });
  if (!quota) throw new UnknownUserError(user);
  const { groups, known, unknownPaths } = await readAtLength(
    ctx,
    (snapshot) => readGroups(snapshot, wish, mayPath(ctx, 'REQUEST'), ctx.now()),
    reader,
  );
  const used = await readUsed(ctx, quota);
  const sum = (chosen: readonly Group[]) => ({
    files: chosen.reduce((total, group) => total + group.files, 0),
    bytes: chosen.reduce((total, group) => total + group.bytes, 0n),
  });
  const all = sum(groups);
  checkWithin(ctx, limits, all);
  const onDisk = sum(groups.filter((group) => group.isOnDisk));
  const atPrimaryPlace = sum(groups.filter((group) => group.isAtPrimaryPlace));
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

/** Unknown paths that are named. */
const NAMED_PATHS = 20;

async function readGroups(
  snapshot: Snapshot,
  wish: Wish,
  isAllowed: Sql,
  now: string,
): Promise<{ groups: Group[]; known: number; unknownPaths: string[] }> {
  const isNamed = wish.files ? sql`f.path = ANY(${wish.files}::text[])` : holdsText(wish.pattern);
  const isWished = sql`${isNamed} AND ${isOffered} AND ${isAllowed}`;
  const isThere = sql`g.state <> 'RELEASING' AND (g.state NOT IN ('READY', 'KEPT') OR g.ready_until IS NULL OR g.ready_until > ${now})`;
  const groups = await snapshot.query<Group>(
    sql`SELECT w.*, v.library_id AS "libraryId", v.name AS volume, coalesce(v.medium, 'linear') AS medium,
          EXISTS (SELECT FROM drive d WHERE d.volume_id = v.id) AS "isMounted",
          EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = v.id) AS "isSuspended"
        FROM (
          SELECT f.volume_id AS "volumeId", f.stage = ANY(${onDiskStages}::"Stage"[]) AS "isOnDisk",
            ${isAtPrimaryPlace} AS "isAtPrimaryPlace",
            c.file_id IS NOT NULL AS "isOnItsWay", ${hasPlace} AS "hasPlace",
            c.disk_id IS NOT NULL AS "isReserved", coalesce(g.state IN ('READY', 'KEPT'), false) AS "isStaged",
            max(g.since) FILTER (WHERE g.state IN ('INTENDED', 'ASKED')) AS "askedAt",
            count(*)::int AS files, sum(f.size) AS bytes
          FROM tape_file f LEFT JOIN recall c ON c.file_id = f.id LEFT JOIN volume u ON u.id = f.volume_id
            LEFT JOIN staging g ON g.file_id = f.id AND g.library_id = u.library_id AND ${isThere}
          WHERE ${isWished} GROUP BY 1, 2, 3, 4, 5, 6, 7, g.state IN ('INTENDED', 'ASKED')
        ) w LEFT JOIN volume v ON v.id = w."volumeId"`,
  );
  const unknown = await snapshot.query<{ path: string }>(
    sql`SELECT l.path FROM unnest(${wish.files ?? []}::text[]) WITH ORDINALITY AS l (path, n)
        WHERE NOT EXISTS (SELECT FROM tape_file f WHERE f.path = l.path AND ${isOffered} AND ${isAllowed}) ORDER BY l.n LIMIT ${NAMED_PATHS}`,
  );
  const known = groups.reduce((total, group) => total + group.files, 0);
  return { groups, known, unknownPaths: unknown.map((row) => row.path) };
}

type VolumePart = Omit<Group, 'isOnItsWay' | 'isReserved' | 'isStaged' | 'askedAt'>;

const joinByVolume = (groups: readonly Group[]): VolumePart[] => joinBy(groups, ({ volumeId }) => String(volumeId));

/** As they are awaited: by volume, and by how far their library is with them. */
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
  /** A decimal number with two to six digits after the point. */
  amount: string;
  /** Three letters. */
  currency: string;
}

export interface LibraryPrice extends Price {
  library: string;
  /** That it would be asked for, and bytes of these. */
  files: number;
  bytes: bigint;
  /** For people: what it is made of. */
  note: string;
}

/** Files of a library, some of which need not be brought. */
export interface PricedFiles {
  libraryId: number | null;
  /** They are there already, or somebody else has asked for them. */
  isFree: boolean;
  files: number;
  bytes: bigint;
}

/**
 * @returns what each library charges, in the order in which they were added, and all of it; no `price` where nobody charges for anything, or
 *   not all in one currency
 */
export function priceFiles(
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

/** @returns nothing where it charges for nothing */
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
