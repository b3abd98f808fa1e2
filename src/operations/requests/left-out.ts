/**
 * Bounds the rows that left-out files of patterns cost. A user may have thousands of patterns, and an import thousands
 * of files that match all of them: a row for each would be millions of rows, while no other request can be created.
 *
 * So each user has at most `limits.leftOutPaths` recorded paths. If more is left out of a request, it has only the
 * smallest known size (`left_out_size`). Files of an import join such a request as far as there is room, and the rest
 * costs no row. When there is room for that size, joins.ts searches the request by its pattern, even if recorded paths
 * still wait for room.
 *
 * Files with room cost rows too. So an import adds at most `limits.importJoins` files to a user's requests. The rest
 * joins afterwards in steps that do not block new requests.
 */

import { setImmediate as breathe } from 'node:timers/promises';
import type { Context } from '../../context.js';
import { raw, type Sql, sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { isAllowedIn } from '../access/paths.js';
import { isLive, isOffered } from '../conditions.js';
import { holdsText } from '../match.js';
import { mostFiles } from './limits.js';

/** A pattern, and the files and bytes that its request may still take; Infinity: no limit. */
export interface Standing {
  id: number;
  pattern: string;
  quotaId: number;
  /** Free bytes of the quota. */
  room: number;
  files: number;
  bytes: number;
  /** Size of the smallest left-out file without a recorded path; Infinity if there is none. */
  leftOut: number;
}

/** The number of recorded left-out paths in live requests of the quota `q`, counted up to the limit. */
const notedPaths = ({ config }: Context): Sql => sql`(SELECT count(*)::int FROM (
  SELECT FROM request r JOIN awaited_path a ON a.request_id = r.id AND a.reason IN ('QUOTA_FULL', 'LIMIT')
  WHERE r.quota_id = q.id AND ${isLive} LIMIT ${config.limits.leftOutPaths}::int) noted)`;

/** The number of further left-out paths that the quota `q` may record. */
const freePaths = (ctx: Context): Sql => sql`(${ctx.config.limits.leftOutPaths}::int - ${notedPaths(ctx)})`;

interface Quota {
  /** Free bytes; negative once a file did not fit, so that no later file does. */
  room: number;
  /** Paths that may still be recorded; undefined until needed. */
  paths: number | undefined;
  /** Files that may still join now; negative once another one would, and then no match is considered. */
  joins: number;
}

/**
 * Predicts the outcome of an import's matches, in order of their paths, so that only those that may join or be recorded
 * are stored. The final decision is made later, under the locks.
 */
export class Rooms {
  private readonly quotas = new Map<number, Quota>();
  private readonly ctx: Context;
  private readonly tx: Transaction;

  constructor(ctx: Context, tx: Transaction) {
    this.ctx = ctx;
    this.tx = tx;
  }

  /** @returns whether to store the match; undefined if `look` must be called first */
  take(standing: Standing, size: number): boolean | undefined {
    const { importJoins: joins } = this.ctx.config.limits;
    const quota = this.quotas.get(standing.quotaId) ?? { room: standing.room, paths: undefined, joins };
    this.quotas.set(standing.quotaId, quota);
    if (quota.joins < 0) return false;
    const isWithin = standing.files >= 1 && standing.bytes >= size;
    // empty files need no room
    if (isWithin && size > 0 && quota.room >= size) {
      quota.joins -= 1;
      if (quota.joins < 0) return false;
      quota.room -= size;
      standing.files -= 1;
      standing.bytes -= size;
      return true;
    }
    if (quota.paths === undefined) return undefined;
    if (isWithin && size > 0) quota.room = -1;
    if (quota.paths <= 0) return false;
    quota.paths -= 1;
    return true;
  }

  async look({ quotaId }: Standing): Promise<void> {
    const [row] = await this.tx.query<{ paths: number }>(
      sql`SELECT ${freePaths(this.ctx)} AS paths FROM quota q WHERE q.id = ${quotaId}`,
    );
    const quota = this.quotas.get(quotaId);
    if (quota) quota.paths = row?.paths ?? 0;
  }
}

/** Updates `left_out_size` of requests that were passed over. They are locked. */
export async function markPassedOver(tx: Transaction): Promise<void> {
  await tx.query(
    sql`WITH over AS (DELETE FROM joining j WHERE j.is_over RETURNING j.request_id, j.size)
        UPDATE request r SET left_out_size = least(r.left_out_size, o.size) FROM over o WHERE o.request_id = r.id AND ${isLive}`,
  );
}

/** Removes left-out files beyond the limit of recorded paths from `joining`, by request and path. They are locked. */
export async function leaveUnnoted(ctx: Context, tx: Transaction): Promise<void> {
  await tx.query(
    sql`WITH free AS MATERIALIZED (
       SELECT q.id, ${freePaths(ctx)} AS paths FROM quota q
       WHERE q.id IN (SELECT quota_id FROM joining WHERE is_matched AND NOT is_taken)
     ), ranked AS (
       SELECT request_id, file_id, quota_id, row_number() OVER (PARTITION BY quota_id ORDER BY request_id, path) AS n
       FROM joining WHERE is_matched AND NOT is_taken
     ), over AS (
       DELETE FROM joining j USING ranked t JOIN free e ON e.id = t.quota_id
       WHERE t.n > e.paths AND j.request_id = t.request_id AND j.file_id = t.file_id RETURNING j.request_id, j.size
     )
     UPDATE request r SET left_out_size = least(r.left_out_size, o.size)
     FROM (SELECT request_id, min(size) AS size FROM over GROUP BY request_id) o WHERE o.request_id = r.id`,
  );
}

/** Files `f` matching request `r` with quota `q` that it does not contain, has not released and has not recorded. */
export const unnotedFiles = ({ id, pattern }: { id: number; pattern: string }): Sql => sql`tape_file f
  JOIN request r ON r.id = ${id} JOIN quota q ON q.id = r.quota_id
  WHERE ${holdsText(pattern)} AND ${isOffered} AND ${isAllowedIn('REQUEST')}
    AND NOT EXISTS (SELECT FROM awaited_path a WHERE a.request_id = r.id AND a.path = f.path)
    AND NOT EXISTS (SELECT FROM hold h WHERE h.request_id = r.id AND h.file_id = f.id)`;

export const smallestUnnoted = (request: { id: number; pattern: string }): Sql =>
  sql`(SELECT min(f.size) FROM ${unnotedFiles(request)})`;

/** Adds released request files for such files with the match, so that patterns do not take them. @returns how many */
export async function keepUnnotedOut(
  tx: Transaction,
  request: { id: number; pattern: string; leftOutSize: bigint | null },
  match: string,
): Promise<number> {
  const { id, leftOutSize } = request;
  if (leftOutSize === null) return 0;
  const [kept] = await tx.query<{ files: number }>(
    sql`WITH unnoted AS MATERIALIZED (
       SELECT f.id, f.path, f.size FROM ${unnotedFiles(request)} AND strpos(f.path, ${match}) > 0
     ), last AS MATERIALIZED (
       SELECT greatest((SELECT coalesce(max(ordinal), 0) FROM hold WHERE request_id = ${id}),
         (SELECT coalesce(max(ordinal), 0) FROM awaited_path WHERE request_id = ${id})) AS ordinal
     ), kept AS (
       INSERT INTO hold (request_id, file_id, ordinal, size, state)
       SELECT ${id}, u.id, l.ordinal + row_number() OVER (ORDER BY u.path), u.size, 'RELEASED' FROM unnoted u CROSS JOIN last l
       RETURNING file_id
     ) SELECT count(*)::int AS files FROM kept`,
  );
  await tx.query(sql`UPDATE request SET left_out_size = ${smallestUnnoted(request)} WHERE id = ${id}`);
  return kept?.files ?? 0;
}

/** Patterns searched together: at most some tens of megabytes. */
const GROUP = 20_000;
const PAGE = 2000;
const BATCH = 10_000;
/** Longest time for which the event loop is blocked. */
const BREATH_MS = 20;

/**
 * Creates the temporary table `matched` of requests and files that match their patterns: those that may join, and
 * left-out ones that may be recorded. A request with more than that has one small file with `is_over`, unless it knows
 * a smaller one.
 * @param of.files a query that returns the ids of the files
 * @param of.as a table of them: `id`, `path` and `size`
 * @param isStanding a condition on the request `r`
 */
export async function findMatched(
  ctx: Context,
  tx: Transaction,
  { files, as }: { files: Sql; as: Sql },
  isStanding: Sql,
): Promise<void> {
  await tx.query(sql`CREATE TEMP TABLE matched (request_id int, file_id bigint, is_over boolean) ON COMMIT DROP`);
  const rooms = new Rooms(ctx, tx);
  const [smallest] = await tx.query<{ size: bigint | null }>(
    sql`SELECT min(f.size) AS size FROM ${as} f WHERE f.id IN (${files})`,
  );
  const least = sql`${smallest?.size ?? null}::bigint`;
  // a request with unrecorded files is searched only if its quota may have room, or a smaller size would be recorded
  const isOpen = sql`(r.left_out_size IS NULL OR ${least} < r.left_out_size OR q.used + ${least} <= q.size)`;
  for (let after = 0; ; ) {
    const patterns = await tx.query<Standing>(
      sql`SELECT r.id, r.pattern, r.quota_id AS "quotaId", (q.size - q.used)::float8 AS room,
            (${mostFiles(ctx)} - r.files_total)::float8 AS files, coalesce(r.max_bytes - r.bytes_total, 'infinity'::float8) AS bytes,
            coalesce(r.left_out_size, 'infinity'::float8) AS "leftOut"
          FROM request r JOIN quota q ON q.id = r.quota_id
          WHERE r.pattern <> '' AND ${isOpen} AND ${isStanding} AND r.id > ${after} ORDER BY r.id LIMIT ${GROUP}`,
    );
    if (patterns.length > 0) await matchFiles(tx, { files, as }, patterns, rooms);
    if (patterns.length < GROUP) break;
    after = patterns.at(-1)?.id ?? after;
  }
  await tx.query(sql`ANALYZE matched`);
}

function createBreath(): () => Promise<void> {
  let since = performance.now();
  return async () => {
    if (performance.now() - since < BREATH_MS) return;
    await breathe();
    since = performance.now();
  };
}

async function matchFiles(
  tx: Transaction,
  { files, as }: { files: Sql; as: Sql },
  patterns: readonly Standing[],
  rooms: Rooms,
): Promise<void> {
  // 60 ns for each pattern and path: 1,000 patterns take half as long as the import itself
  const standing = new Map(patterns.map((pattern) => [pattern.id, pattern]));
  const found = new Found(tx);
  // in order of paths, as they join
  await tx.query(
    sql`DECLARE new_path NO SCROLL CURSOR FOR SELECT f.id, f.path, f.size::float8 AS size FROM ${as} f WHERE f.id IN (${files}) ORDER BY f.path`,
  );
  const breath = createBreath();
  for (let isMore = true; isMore && standing.size > 0; ) {
    const page = await tx.query<NewFile>(sql`FETCH ${raw(String(PAGE))} FROM new_path`);
    for (const file of page) {
      for (const pattern of standing.values()) {
        if (!file.path.includes(pattern.pattern)) continue;
        if (found.isOver(pattern)) found.leave(pattern, file);
        else if (await takes(rooms, pattern, file)) found.add(pattern.id, file.id);
        else found.leave(pattern, file);
      }
      if (found.isLarge) await found.store();
      await breath();
    }
    for (const id of found.endPage()) standing.delete(id);
    isMore = page.length === PAGE;
  }
  await found.store();
  await tx.query(sql`CLOSE new_path`);
}

async function takes(rooms: Rooms, pattern: Standing, { size }: NewFile): Promise<boolean> {
  const known = rooms.take(pattern, size);
  if (known !== undefined) return known;
  await rooms.look(pattern);
  return rooms.take(pattern, size) === true;
}

interface NewFile {
  id: bigint;
  path: string;
  size: number;
}

class Found {
  private readonly tx: Transaction;
  private rows: { requestId: number; fileId: bigint; isOver: boolean }[] = [];
  private readonly left = new Map<number, { size: number; id: bigint | undefined }>();

  constructor(tx: Transaction) {
    this.tx = tx;
  }

  get isLarge(): boolean {
    return this.rows.length >= BATCH;
  }

  add(requestId: number, fileId: bigint): void {
    this.rows.push({ requestId, fileId, isOver: false });
  }

  /** A file of this page was left out of the request. */
  isOver({ id }: Standing): boolean {
    return this.left.has(id);
  }

  /** Records the smallest left-out file of a page. */
  leave({ id: requestId, leftOut }: Standing, { id, size }: NewFile): void {
    const left = this.left.get(requestId) ?? { size: leftOut, id: undefined };
    this.left.set(requestId, size < left.size ? { size, id } : left);
  }

  /** @returns the requests from which a file of the page was left out */
  endPage(): number[] {
    const ids = [...this.left.keys()];
    for (const [requestId, { id }] of this.left) {
      if (id !== undefined) this.rows.push({ requestId, fileId: id, isOver: true });
    }
    this.left.clear();
    return ids;
  }

  async store(): Promise<void> {
    const rows = this.rows.splice(0);
    if (rows.length === 0) return;
    const columns = [rows.map((row) => row.requestId), rows.map((row) => row.fileId), rows.map((row) => row.isOver)];
    await this.tx.query(
      sql`INSERT INTO matched SELECT * FROM unnest(${columns[0]}::int[], ${columns[1]}::bigint[], ${columns[2]}::boolean[])`,
    );
  }
}
