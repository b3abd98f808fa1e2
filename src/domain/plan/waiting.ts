/** Reports why requests wait, their positions in the plan, and their estimated ends. */
import { secondsOf } from '../../core/time.js';
import { type Sql, sql } from '../../db/sql.js';
import { type EndRange, type PartAhead, rangeOf } from '../../planner/end-range.js';
import { waitOf } from '../../planner/queue.js';
import { isChanged, isResting, isUnplaced, needsRoom } from '../conditions.js';
import type { Context } from '../context.js';
import { readRoom } from '../disks/disks.js';
import { suspensionText } from '../health/suspensions.js';
import { describeLibraryFailure, isWorking, mediumAt, type Plan, readPlan } from './plan.js';

export const waitingReasons = {
  READING: 'a drive is reading the files',
  MOUNTED: 'the volume is mounted, and other files on it are read first',
  QUEUED: 'the volume is waiting for a drive',
  STAGED: 'the library has staged the files, and they are waiting to be read',
  STAGING: 'the library is staging the files',
  UNASKED: 'the files are waiting to be requested from the library',
  RETRY: 'the files are waiting for a retry after a failed attempt',
  SPACE: 'no restore disk has room for the files',
  CHANGED_COPY: 'the copy in the restore area was changed outside Tapegate, and an engine must check the copy first',
  LIBRARY_FAILED: 'the library has failed',
  NO_DRIVE: 'no engine has a drive in service',
  VOLUME_SUSPENDED: 'the volume is suspended',
  USER_SUSPENDED: 'recalls for the user are suspended',
  NO_POSITION: 'the catalogue does not contain the volume and position of the files',
} as const;

export type WaitingReason = keyof typeof waitingReasons;

export interface WaitingPart {
  volumeId: number | null;
  libraryId: number | null;
  volume: string | null;
  medium: string;
  reason: WaitingReason;
  explanation: string;
  files: number;
  bytes: bigint;
  queuePosition: number | null;
  nextTry: string | null;
}

/** The waiting files of a request. Times that are numbers count the seconds since 1970. */
export interface Waiting {
  at: number;
  files: number;
  bytes: bigint;
  queuePosition: number | null;
  parts: WaitingPart[];
  /**
   * Estimated end of the request; undefined if unknown. `endUnknown` gives the reason, for example that no disk has
   * room, or that no engine is running.
   */
  end: EndRange | undefined;
  endUnknown: string | undefined;
}

interface PartRow extends Omit<WaitingPart, 'queuePosition' | 'explanation'> {
  requestId: number;
  user: string;
  note: string | null;
  askedAt: string | null;
}

/**
 * Reasons for waiting that make the end of a request unpredictable, because the request waits for an operator's action
 * or an engine's check.
 */
const UNPREDICTABLE: ReadonlySet<WaitingReason> = new Set([
  'SPACE',
  'CHANGED_COPY',
  'NO_POSITION',
  'VOLUME_SUSPENDED',
  'USER_SUSPENDED',
]);

/** @param readCurrentPlan function that returns the plan. Default: computes the plan */
export async function readWaiting(
  ctx: Context,
  requestIds: readonly number[],
  readCurrentPlan = () => ctx.events.shared.read('plan', () => readPlan(ctx)),
): Promise<Map<number, Waiting>> {
  const rows = await readParts(ctx, requestIds);
  if (rows.length === 0) return new Map();
  // share the plan among all callers, because thousands of clients might watch a request's end
  const plan = await readCurrentPlan();
  const byRequest = new Map<number, PartRow[]>();
  for (const row of rows) byRequest.set(row.requestId, [...(byRequest.get(row.requestId) ?? []), row]);
  const room = await readRoom(ctx);
  const hasRoom = (parts: readonly PartRow[]) => {
    const unread = parts.filter(({ reason }) => reason !== 'READING').reduce((sum, part) => sum + part.bytes, 0n);
    return room === undefined || unread <= room;
  };
  return new Map([...byRequest].map(([id, parts]) => [id, presentWaiting(plan, parts, hasRoom(parts))]));
}

function explain(reason: WaitingReason, note: string | null): string {
  if (!note) return waitingReasons[reason];
  // if the reason is SPACE or VOLUME_SUSPENDED, the note is a complete explanation of the wait
  return reason === 'SPACE' || reason === 'VOLUME_SUSPENDED' ? note : `${waitingReasons[reason]}: ${note}`;
}

function presentWaiting(plan: Plan, rows: readonly PartRow[], hasRoom: boolean): Waiting {
  const positions = new Map(plan.volumes.map((volume) => [volume.volumeId, volume.queuePosition]));
  const parts = rows.map(({ requestId: _, user: _user, note, askedAt: _askedAt, ...row }): WaitingPart => {
    const part = {
      ...row,
      explanation: explain(row.reason, note),
      queuePosition: positions.get(row.volumeId ?? 0) ?? null,
    };
    const isForDrive = row.reason === 'QUEUED' || row.reason === 'MOUNTED';
    const stop = isForDrive ? whyNoDrive(plan, row.libraryId) : undefined;
    // prefer the note as the explanation, because the note says that the library is suspended
    return stop ? { ...part, ...stop, explanation: note ?? stop.explanation } : part;
  });
  const endParts = rows.map((row) => ({
    ...row,
    isReading: row.reason === 'READING',
    isStaged: row.reason === 'STAGED',
  }));
  const unpredictable = whyUnpredictable(rows, hasRoom);
  const order = (part: WaitingPart) => part.queuePosition ?? Number.POSITIVE_INFINITY;
  const nameOf = (part: WaitingPart) => `${part.volume ?? ''}\0${part.reason}`;
  const isFirst = (a: WaitingPart, b: WaitingPart) =>
    order(a) < order(b) || (order(a) === order(b) && nameOf(a) < nameOf(b));
  parts.sort((a, b) => (isFirst(a, b) ? -1 : 1));
  return {
    at: plan.now,
    files: rows.reduce((sum, row) => sum + row.files, 0),
    bytes: rows.reduce((sum, row) => sum + row.bytes, 0n),
    queuePosition: parts.find((part) => part.queuePosition !== null)?.queuePosition ?? null,
    parts,
    ...(unpredictable === undefined
      ? findEnd(plan, rows[0]?.user ?? '', endParts)
      : { end: undefined, endUnknown: unpredictable }),
  };
}

/** Returns why the end of a request cannot be estimated; undefined if the waiting files do not prevent an estimate. */
function whyUnpredictable(rows: readonly PartRow[], hasRoom: boolean): string | undefined {
  const row = rows.find(({ reason }) => UNPREDICTABLE.has(reason));
  if (!row) return hasRoom ? undefined : NO_ROOM;
  const { reason, note, volume, user } = row;
  return explain(reason, note)
    .replace(/^the volume\b/, `volume ${volume}`)
    .replace(/^recalls for the user\b/, `recalls for user ${user}`)
    .replace(/^the copy\b/, 'a copy');
}

export const NO_ROOM = 'no restore disk has room for all files';

/** Returns why no drive of a library can mount a volume; undefined if a drive can. */
function whyNoDrive(
  plan: Plan,
  libraryId: number | null,
): Pick<WaitingPart, 'reason' | 'explanation' | 'nextTry'> | undefined {
  const drives = plan.drives.filter((drive) => drive.libraryId === libraryId);
  if (drives.some(isWorking)) return undefined;
  const stop = { reason: 'NO_DRIVE', nextTry: null } as const;
  const [first] = drives;
  if (first && drives.every(({ isOpen }) => !isOpen))
    return { ...stop, explanation: `all drives of library ${first.library} are suspended or draining` };
  const failure = drives.some((drive) => drive.hasLibraryFailed) && plan.failures.get(libraryId ?? 0);
  if (failure)
    return { reason: 'LIBRARY_FAILED', explanation: describeLibraryFailure(failure), nextTry: failure.nextTry };
  return { ...stop, explanation: waitingReasons.NO_DRIVE };
}

/**
 * Returns waiting files, grouped by request, volume and reason. The column `note` contains an operator's reason for a
 * suspension, or the last error.
 */
async function readParts(ctx: Context, requestIds: readonly number[]): Promise<PartRow[]> {
  const isPaused = sql`c.not_before > ${ctx.now()} AND c.state = 'WAITING'`;
  const isLibraryResting = sql`coalesce(st.rest_until > ${ctx.now()}, false)`;
  const isReadingPaused = sql`(b.contract = 'STAGING' AND sg.state = 'READY' AND st.read_rest_until > ${ctx.now()} AND c.state = 'WAITING')`;
  const isAlone = sql`(c.state = 'WAITING' AND ${isResting(ctx.now())})`;
  return await ctx.db.rows<PartRow>(
    sql`SELECT w."requestId", w."user", w."volumeId", v.library_id AS "libraryId", v.name AS volume, coalesce(v.medium, 'linear') AS medium, w.reason,
          count(*)::int AS files, sum(w.size) AS bytes, greatest(min(w.not_before), min(w.read_pause) FILTER (WHERE w.reason = 'STAGED')) AS "nextTry",
          max(w.asked_at) FILTER (WHERE w.reason = 'STAGING') AS "askedAt",
          coalesce(min(CASE w.reason WHEN 'USER_SUSPENDED' THEN w.user_note WHEN 'VOLUME_SUSPENDED' THEN w.volume_note
              WHEN 'STAGING' THEN w.asked_note WHEN 'UNASKED' THEN w.library_note
              WHEN 'STAGED' THEN w.read_note
              WHEN 'QUEUED' THEN w.suspension_note WHEN 'MOUNTED' THEN w.suspension_note END),
            min(w.error)) AS note
        FROM (
          SELECT h.request_id AS "requestId", q."user", c.volume_id AS "volumeId", c.size,
            CASE WHEN ${isAlone} THEN greatest(v.retry_at, CASE WHEN NOT ${needsRoom} THEN c.not_before END)
              WHEN ${isPaused} AND NOT ${needsRoom} THEN c.not_before END AS not_before,
            CASE WHEN ${isPaused} THEN c.error WHEN ${isAlone} THEN v.problem END AS error, sq.reason AS user_note, 'the volume is ' || ${suspensionText('sv')} AS volume_note, sg.since AS asked_at,
            'requested from ' || b.name || ' at ' || to_char(sg.asked_at, 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
              || CASE WHEN sg.attempts > 0 THEN ', and again ' || sg.attempts || CASE sg.attempts WHEN 1 THEN ' time' ELSE ' times' END ELSE '' END
              || coalesce('; ' || c.error, '') AS asked_note,
            b.name || coalesce(CASE WHEN ${isLibraryResting} THEN ' could not answer: ' || st.problem END, '; ' || c.error, '') AS library_note,
            'library ' || b.name || ' is ' || ${suspensionText('sb')} AS suspension_note,
            CASE WHEN ${isReadingPaused} THEN st.read_rest_until END AS read_pause,
            CASE WHEN ${isReadingPaused} THEN 'reads of ' || b.name || ' pause until ' || to_char(st.read_rest_until, 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || ': ' || st.read_problem END AS read_note,
            CASE
              WHEN c.state = 'RUNNING' THEN 'READING'
              WHEN ${isUnplaced} THEN 'NO_POSITION'
              WHEN sq.quota_id IS NOT NULL THEN 'USER_SUSPENDED'
              WHEN sv.volume_id IS NOT NULL THEN 'VOLUME_SUSPENDED'
              WHEN ${isPaused} AND ${needsRoom} AND c.error_class = 'SPACE' THEN 'SPACE'
              WHEN ${isPaused} AND c.error IS NOT NULL THEN 'RETRY'
              WHEN ${isAlone} THEN 'RETRY'
              WHEN b.contract = 'STAGING' THEN CASE sg.state
                WHEN 'READY' THEN 'STAGED' WHEN 'ASKED' THEN 'STAGING'
                WHEN 'INTENDED' THEN CASE WHEN ${isLibraryResting} THEN 'UNASKED' ELSE 'STAGING' END ELSE 'UNASKED' END
              WHEN EXISTS (SELECT FROM drive d WHERE d.volume_id = c.volume_id) THEN 'MOUNTED'
              ELSE 'QUEUED' END AS reason
          FROM live_request_file l JOIN request_file h ON h.request_id = l.request_id AND h.file_id = l.file_id
            JOIN recall c ON c.file_id = h.file_id JOIN quota q ON q.id = l.quota_id
            LEFT JOIN suspended_quota sq ON sq.quota_id = l.quota_id
            LEFT JOIN suspended_volume sv ON sv.volume_id = c.volume_id LEFT JOIN volume v ON v.id = c.volume_id
            LEFT JOIN library b ON b.id = v.library_id LEFT JOIN suspension sb ON sb.kind = 'LIBRARY' AND sb.name = b.name
            LEFT JOIN stager st ON st.library_id = v.library_id
            LEFT JOIN staging sg ON sg.file_id = c.file_id AND sg.library_id = v.library_id
          WHERE h.request_id = ANY(${requestIds}::int[]) AND h.state = 'WAITING'
          UNION ALL ${changedCopies(requestIds)}
        ) w LEFT JOIN volume v ON v.id = w."volumeId"
        GROUP BY w."requestId", w."user", w."volumeId", v.library_id, v.name, v.medium, w.reason`,
  );
}

/**
 * Selects changed copies of requested files, which wait for an engine's check. If a copy's disk is failing, the copy's
 * row contains the disk's error. The selected columns are the same as in the query in `readParts`.
 */
function changedCopies(requestIds: readonly number[]): Sql {
  return sql`SELECT h.request_id, q."user", NULL::int, h.size, NULL::timestamp,
      CASE WHEN g.disk_id IS NOT NULL THEN k.mountpoint || ' fails' || coalesce(': ' || nullif(s.reason, ''), '') END, NULL, NULL, NULL::timestamp, NULL, NULL, NULL, NULL::timestamp, NULL, 'CHANGED_COPY'
    FROM live_request_file l JOIN request_file h ON h.request_id = l.request_id AND h.file_id = l.file_id
      JOIN tape_file f ON f.id = h.file_id JOIN restore_disk k ON k.id = f.changed_disk_id JOIN quota q ON q.id = l.quota_id
      LEFT JOIN failing_disk g ON g.disk_id = k.id LEFT JOIN suspended_disk s ON s.disk_id = k.id
    WHERE h.request_id = ANY(${requestIds}::int[]) AND h.state = 'WAITING' AND f.changed_disk_id IS NOT NULL AND ${isChanged}
      AND NOT EXISTS (SELECT FROM recall c WHERE c.file_id = f.id)`;
}

export type { EndRange };

interface EndPart {
  volumeId: number | null;
  libraryId: number | null;
  medium: string;
  files: number;
  bytes: bigint;
  isReading: boolean;
  nextTry: string | null;
  isStaged: boolean;
  askedAt: string | null;
}

/**
 * Estimates when the last waiting file will be on disk. The end is unknown if some files cannot be read by any drive,
 * or if a library's staging time is unknown.
 */
export function findEnd(plan: Plan, user: string, parts: readonly EndPart[]): Pick<Waiting, 'end' | 'endUnknown'> {
  const end = estimatePartsEnd(plan, user, parts);
  return { end, endUnknown: end ? undefined : whyNoEnd(plan, parts) };
}

function estimatePartsEnd(plan: Plan, user: string, parts: readonly EndPart[]): EndRange | undefined {
  const drives = new Map<number, number>();
  for (const { libraryId } of plan.drives.filter(isWorking)) drives.set(libraryId, (drives.get(libraryId) ?? 0) + 1);
  const { now, ahead, staged } = plan;
  const mounted = new Set(plan.drives.flatMap(({ volumeId }) => volumeId ?? []));
  return rangeOf(
    { now, ahead, drives, staged, mounted },
    user,
    parts.map((part) => toPartAhead(plan, part)),
  );
}

function whyNoEnd(plan: Plan, parts: readonly EndPart[]): string | undefined {
  for (const part of parts) {
    const stop = whyNoDrive(plan, part.libraryId);
    if (stop) return stop.explanation;
    const { staged, isReading, ...partAhead } = toPartAhead(plan, part);
    const library = plan.staged.get(partAhead.libraryId);
    if (!library || !staged || isReading || waitOf(library, { ...staged, ...partAhead })) continue;
    if (library.isAway) return `library ${library.name} has not answered recently`;
    return `library ${library.name} has not staged a file yet, and its settings do not say how long staging takes`;
  }
  return undefined;
}

function toPartAhead(plan: Plan, part: EndPart): PartAhead {
  const { volumeId, libraryId, medium, files, bytes, isReading, nextTry, isStaged, askedAt } = part;
  const askedSeconds = askedAt === null ? 0 : Math.max(plan.now - secondsOf(askedAt), 0);
  const staged = plan.staged.get(libraryId ?? 0);
  const atLibrary = mediumAt(plan, staged ? 'linear' : medium, libraryId ?? 0);
  const state = isStaged ? 'ready' : askedAt === null ? 'unasked' : 'asked';
  return {
    volumeId: volumeId ?? 0,
    libraryId: libraryId ?? 0,
    ...atLibrary,
    files,
    bytes: Number(bytes),
    isReading,
    notBefore: nextTry === null ? undefined : secondsOf(nextTry),
    ...(staged
      ? { staged: { state, askedSeconds }, isMeasured: staged.isMeasured && atLibrary.isMeasured }
      : { staged: undefined }),
  };
}
