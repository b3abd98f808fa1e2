/**
 * Limits the number of database rows for excluded files. An excluded file matches a request's pattern, but does not fit
 * into the request's limits or the quota.
 *
 * Recording each excluded file could take millions of rows, and would block new requests during an import. Each user
 * therefore has at most `limits.excludedPaths` recorded paths. For further excluded files, a request stores only the
 * size of the smallest unrecorded file (`excluded_size`). When a request has room for a file of the size
 * `excluded_size`, joins.ts searches the catalogue for the request's pattern.
 *
 * An import adds at most `limits.importJoins` files to a user's requests. The remaining files of an import are added
 * later by joins.ts, in small transactions that do not block new requests.
 */

import { setImmediate as yieldToEventLoop } from 'node:timers/promises';
import { raw, type Sql, sql } from '../../db/sql.js';
import type { Transaction } from '../../db/transaction.js';
import { isAllowedIn } from '../access/paths.js';
import { isLive, isOffered } from '../conditions.js';
import type { Context } from '../context.js';
import { holdsText } from '../match.js';

interface OpenPattern {
  id: number;
  pattern: string;
  quotaId: number;
}

const recordedPaths = ({ config }: Context): Sql => sql`(SELECT count(*)::int FROM (
  SELECT FROM request r JOIN unresolved_path a ON a.request_id = r.id AND a.reason IN ('QUOTA_FULL', 'LIMIT')
  WHERE r.quota_id = q.id AND ${isLive} LIMIT ${config.limits.excludedPaths}::int) recorded)`;

const remainingPaths = (ctx: Context): Sql => sql`(${ctx.config.limits.excludedPaths}::int - ${recordedPaths(ctx)})`;

/**
 * Updates the size of the smallest unrecorded file (`excluded_size`) in each request whose pattern matches more files
 * than an import is allowed to add. The caller must have locked the requests.
 */
export async function recordSkipped(tx: Transaction): Promise<void> {
  await tx.query(
    sql`WITH over AS (DELETE FROM joining j WHERE j.is_over RETURNING j.request_id, j.size)
        UPDATE request r SET excluded_size = least(r.excluded_size, o.size) FROM over o WHERE o.request_id = r.id AND ${isLive}`,
  );
}

/**
 * Removes those excluded files from the temporary table `joining` whose paths would exceed the limit on recorded paths
 * for their quota. The caller must have locked the requests.
 */
export async function dropUnrecorded(ctx: Context, tx: Transaction): Promise<void> {
  await tx.query(
    sql`WITH free AS MATERIALIZED (
       SELECT q.id, ${remainingPaths(ctx)} AS paths FROM quota q
       WHERE q.id IN (SELECT quota_id FROM joining WHERE is_matched AND NOT is_taken)
     ), ranked AS (
       SELECT request_id, file_id, quota_id, row_number() OVER (PARTITION BY quota_id ORDER BY request_id, path) AS n
       FROM joining WHERE is_matched AND NOT is_taken
     ), over AS (
       DELETE FROM joining j USING ranked t JOIN free e ON e.id = t.quota_id
       WHERE t.n > e.paths AND j.request_id = t.request_id AND j.file_id = t.file_id RETURNING j.request_id, j.size
     )
     UPDATE request r SET excluded_size = least(r.excluded_size, o.size)
     FROM (SELECT request_id, min(size) AS size FROM over GROUP BY request_id) o WHERE o.request_id = r.id`,
  );
}

/** Selects files that match a request's pattern, but have neither a request file nor a recorded path. */
export const unrecordedFiles = ({ id, pattern }: { id: number; pattern: string }): Sql => sql`tape_file f
  JOIN request r ON r.id = ${id} JOIN quota q ON q.id = r.quota_id
  WHERE ${holdsText(pattern)} AND ${isOffered} AND ${isAllowedIn('REQUEST')}
    AND NOT EXISTS (SELECT FROM unresolved_path a WHERE a.request_id = r.id AND a.path = f.path)
    AND NOT EXISTS (SELECT FROM request_file h WHERE h.request_id = r.id AND h.file_id = f.id)`;

export const smallestUnrecorded = (request: { id: number; pattern: string }): Sql =>
  sql`(SELECT min(f.size) FROM ${unrecordedFiles(request)})`;

/**
 * Records unrecorded files whose path contains the substring as released, so that the request's pattern does not add
 * these files again.
 */
export async function releaseUnrecorded(
  tx: Transaction,
  request: { id: number; pattern: string; excludedSize: bigint | null },
  match: string,
): Promise<number> {
  const { id, excludedSize } = request;
  if (excludedSize === null) return 0;
  const [added] = await tx.query<{ files: number }>(
    sql`WITH unrecorded AS MATERIALIZED (
       SELECT f.id, f.path, f.size FROM ${unrecordedFiles(request)} AND strpos(f.path, ${match}) > 0
     ), last AS MATERIALIZED (
       SELECT greatest((SELECT coalesce(max(ordinal), 0) FROM request_file WHERE request_id = ${id} AND ordinal > 0),
         (SELECT coalesce(max(ordinal), 0) FROM unresolved_path WHERE request_id = ${id})) AS ordinal
     ), added AS (
       INSERT INTO request_file (request_id, file_id, ordinal, size, state)
       SELECT ${id}, u.id, l.ordinal + row_number() OVER (ORDER BY u.path), u.size, 'RELEASED' FROM unrecorded u CROSS JOIN last l
       RETURNING file_id
     ) SELECT count(*)::int AS files FROM added`,
  );
  await tx.query(sql`UPDATE request SET excluded_size = ${smallestUnrecorded(request)} WHERE id = ${id}`);
  return added?.files ?? 0;
}

/** Maximum number of patterns in memory at the same time. This number of patterns takes tens of megabytes. */
const GROUP = 20_000;
const PAGE = 2000;
const BATCH = 10_000;
/** Maximum time in milliseconds for which a comparison of files with patterns blocks the event loop. */
const MAX_BLOCKED_MS = 20;

/**
 * Fills the temporary table `matched` with pairs of a request and a file that matches the request's pattern. The table
 * gets at most `limits.importJoins` files for each user. If more files match a request's pattern, an additional row
 * (`is_over`) contains the smallest of the excluded files on one page of files.
 * @param of.files a query that returns the files' ids
 * @param of.as a table with the files' ids, paths and sizes
 * @param isOpenPattern SQL condition that selects requests (`r`)
 */
export async function findMatched(
  ctx: Context,
  tx: Transaction,
  { files, as }: { files: Sql; as: Sql },
  isOpenPattern: Sql,
): Promise<void> {
  await tx.query(
    sql`CREATE TEMP TABLE IF NOT EXISTS matched (request_id int, file_id bigint, is_over boolean) ON COMMIT DROP`,
  );
  await tx.query(sql`CREATE TEMP TABLE IF NOT EXISTS searched (request_id int PRIMARY KEY) ON COMMIT DROP`);
  const counts = await tx.query<{ id: number; files: number }>(
    sql`SELECT r.quota_id AS id, count(*)::int AS files FROM matched m JOIN request r ON r.id = m.request_id GROUP BY 1`,
  );
  const taken = new Map(counts.map((row) => [row.id, row.files]));
  const [smallest] = await tx.query<{ size: bigint | null }>(
    sql`SELECT min(f.size) AS size FROM ${as} f WHERE f.id IN (${files})`,
  );
  const least = sql`${smallest?.size ?? null}::bigint`;
  // if a request has unrecorded files, search its pattern only if the smallest of `files` fits into the quota, or is
  // smaller than each unrecorded file
  const isSearched = sql`(r.excluded_size IS NULL OR ${least} < r.excluded_size OR q.used + ${least} <= q.size)`;
  for (;;) {
    const patterns = await tx.query<OpenPattern>(
      sql`WITH next AS (
            SELECT r.id, r.pattern, r.quota_id FROM request r JOIN quota q ON q.id = r.quota_id
            WHERE r.pattern <> '' AND ${isSearched} AND ${isOpenPattern}
              AND NOT EXISTS (SELECT FROM searched s WHERE s.request_id = r.id) ORDER BY r.id LIMIT ${GROUP}
          ), recorded AS (INSERT INTO searched SELECT id FROM next)
          SELECT id, pattern, quota_id AS "quotaId" FROM next ORDER BY id`,
    );
    if (patterns.length > 0) await matchFiles(ctx, tx, { files, as, patterns, taken });
    if (patterns.length < GROUP) break;
  }
  await tx.query(sql`ANALYZE matched`);
}

export async function resetMatched(tx: Transaction): Promise<void> {
  await tx.query(sql`DROP TABLE IF EXISTS pg_temp.matched, pg_temp.searched`);
}

function createPause(): () => Promise<void> {
  let since = performance.now();
  return async () => {
    if (performance.now() - since < MAX_BLOCKED_MS) return;
    await yieldToEventLoop();
    since = performance.now();
  };
}

async function matchFiles(
  ctx: Context,
  tx: Transaction,
  of: { files: Sql; as: Sql; patterns: readonly OpenPattern[]; taken: Map<number, number> },
): Promise<void> {
  const open = new Map(of.patterns.map((pattern) => [pattern.id, pattern]));
  const take = ({ quotaId }: OpenPattern) => {
    const count = (of.taken.get(quotaId) ?? 0) + 1;
    of.taken.set(quotaId, count);
    return count <= ctx.config.limits.importJoins;
  };
  const matches = new MatchBuffer(tx);
  // read the files in path order, because files are added to requests in this order
  await tx.query(
    sql`DECLARE new_path NO SCROLL CURSOR FOR SELECT f.id, f.path, f.size::float8 AS size FROM ${of.as} f WHERE f.id IN (${of.files}) ORDER BY f.path`,
  );
  const pause = createPause();
  for (let isMore = true; isMore && open.size > 0; ) {
    const page = await tx.query<NewFile>(sql`FETCH ${raw(String(PAGE))} FROM new_path`);
    for (const file of page) {
      for (const pattern of open.values()) {
        if (!file.path.includes(pattern.pattern)) continue;
        if (!matches.isOver(pattern) && take(pattern)) matches.add(pattern.id, file.id);
        else matches.addExcluded(pattern, file);
      }
      if (matches.isLarge) await matches.store();
      await pause();
    }
    for (const id of matches.endPage()) open.delete(id);
    isMore = page.length === PAGE;
  }
  await matches.store();
  await tx.query(sql`CLOSE new_path`);
}

interface NewFile {
  id: bigint;
  path: string;
  size: number;
}

class MatchBuffer {
  private readonly tx: Transaction;
  private rows: { requestId: number; fileId: bigint; isOver: boolean }[] = [];
  private readonly excluded = new Map<number, NewFile>();

  constructor(tx: Transaction) {
    this.tx = tx;
  }

  get isLarge(): boolean {
    return this.rows.length >= BATCH;
  }

  add(requestId: number, fileId: bigint): void {
    this.rows.push({ requestId, fileId, isOver: false });
  }

  isOver({ id }: OpenPattern): boolean {
    return this.excluded.has(id);
  }

  addExcluded({ id: requestId }: OpenPattern, file: NewFile): void {
    const excluded = this.excluded.get(requestId);
    if (!excluded || file.size < excluded.size) this.excluded.set(requestId, file);
  }

  endPage(): number[] {
    const ids = [...this.excluded.keys()];
    for (const [requestId, { id }] of this.excluded) this.rows.push({ requestId, fileId: id, isOver: true });
    this.excluded.clear();
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
