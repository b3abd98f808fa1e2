/**
 * Bounds the rows that left-out files of patterns cost. A user may have thousands of patterns, and an import thousands
 * of files that match all of them: a row for each would be millions of rows, while no other request can be created.
 *
 * So each user has at most `limits.excludedPaths` recorded paths. If more is left out of a request, it has only the
 * smallest known size (`excluded_size`). Files of an import join such a request as far as there is room, and the rest
 * costs no row. When there is room for that size, joins.ts searches the request by its pattern, even if recorded paths
 * still wait for room.
 *
 * Files with room cost rows too. So an import considers at most `limits.importJoins` files of a user's requests. The
 * rest joins afterwards in steps that do not block new requests.
 */

import { setImmediate as breathe } from 'node:timers/promises';
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

/** The number of recorded left-out paths in live requests of the quota `q`, counted up to the limit. */
const notedPaths = ({ config }: Context): Sql => sql`(SELECT count(*)::int FROM (
  SELECT FROM request r JOIN unresolved_path a ON a.request_id = r.id AND a.reason IN ('QUOTA_FULL', 'LIMIT')
  WHERE r.quota_id = q.id AND ${isLive} LIMIT ${config.limits.excludedPaths}::int) noted)`;

/** The number of further left-out paths that the quota `q` may record. */
const freePaths = (ctx: Context): Sql => sql`(${ctx.config.limits.excludedPaths}::int - ${notedPaths(ctx)})`;

/** Updates `excluded_size` of requests that were passed over. They are locked. */
export async function markPassedOver(tx: Transaction): Promise<void> {
  await tx.query(
    sql`WITH over AS (DELETE FROM joining j WHERE j.is_over RETURNING j.request_id, j.size)
        UPDATE request r SET excluded_size = least(r.excluded_size, o.size) FROM over o WHERE o.request_id = r.id AND ${isLive}`,
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
     UPDATE request r SET excluded_size = least(r.excluded_size, o.size)
     FROM (SELECT request_id, min(size) AS size FROM over GROUP BY request_id) o WHERE o.request_id = r.id`,
  );
}

/** Files `f` matching request `r` with quota `q` that it does not contain, has not released and has not recorded. */
export const unnotedFiles = ({ id, pattern }: { id: number; pattern: string }): Sql => sql`tape_file f
  JOIN request r ON r.id = ${id} JOIN quota q ON q.id = r.quota_id
  WHERE ${holdsText(pattern)} AND ${isOffered} AND ${isAllowedIn('REQUEST')}
    AND NOT EXISTS (SELECT FROM unresolved_path a WHERE a.request_id = r.id AND a.path = f.path)
    AND NOT EXISTS (SELECT FROM request_file h WHERE h.request_id = r.id AND h.file_id = f.id)`;

export const smallestUnnoted = (request: { id: number; pattern: string }): Sql =>
  sql`(SELECT min(f.size) FROM ${unnotedFiles(request)})`;

/** Adds released request files for such files with the match, so that patterns do not take them. @returns how many */
export async function keepUnnotedOut(
  tx: Transaction,
  request: { id: number; pattern: string; excludedSize: bigint | null },
  match: string,
): Promise<number> {
  const { id, excludedSize } = request;
  if (excludedSize === null) return 0;
  const [kept] = await tx.query<{ files: number }>(
    sql`WITH unnoted AS MATERIALIZED (
       SELECT f.id, f.path, f.size FROM ${unnotedFiles(request)} AND strpos(f.path, ${match}) > 0
     ), last AS MATERIALIZED (
       SELECT greatest((SELECT coalesce(max(ordinal), 0) FROM request_file WHERE request_id = ${id} AND ordinal > 0),
         (SELECT coalesce(max(ordinal), 0) FROM unresolved_path WHERE request_id = ${id})) AS ordinal
     ), kept AS (
       INSERT INTO request_file (request_id, file_id, ordinal, size, state)
       SELECT ${id}, u.id, l.ordinal + row_number() OVER (ORDER BY u.path), u.size, 'RELEASED' FROM unnoted u CROSS JOIN last l
       RETURNING file_id
     ) SELECT count(*)::int AS files FROM kept`,
  );
  await tx.query(sql`UPDATE request SET excluded_size = ${smallestUnnoted(request)} WHERE id = ${id}`);
  return kept?.files ?? 0;
}

/** Patterns searched together: at most some tens of megabytes. */
const GROUP = 20_000;
const PAGE = 2000;
const BATCH = 10_000;
/** Longest time for which the event loop is blocked. */
const BREATH_MS = 20;

/**
 * Fills the temporary table `matched` with requests and files that match their patterns, at most `limits.importJoins`
 * for each user. A request with more than that has one small file with `is_over`. A further call in the transaction
 * only adds requests that no earlier call has searched.
 * @param of.files a query that returns the ids of the files
 * @param of.as a table of them: `id`, `path` and `size`
 * @param isOpenPattern a condition on the request `r`
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
  // a request with unrecorded files is searched only if its quota may have room, or a smaller size would be recorded
  const isSearched = sql`(r.excluded_size IS NULL OR ${least} < r.excluded_size OR q.used + ${least} <= q.size)`;
  for (;;) {
    const patterns = await tx.query<OpenPattern>(
      sql`WITH next AS (
            SELECT r.id, r.pattern, r.quota_id FROM request r JOIN quota q ON q.id = r.quota_id
            WHERE r.pattern <> '' AND ${isSearched} AND ${isOpenPattern}
              AND NOT EXISTS (SELECT FROM searched s WHERE s.request_id = r.id) ORDER BY r.id LIMIT ${GROUP}
          ), noted AS (INSERT INTO searched SELECT id FROM next)
          SELECT id, pattern, quota_id AS "quotaId" FROM next ORDER BY id`,
    );
    if (patterns.length > 0) await matchFiles(ctx, tx, { files, as, patterns, taken });
    if (patterns.length < GROUP) break;
  }
  await tx.query(sql`ANALYZE matched`);
}

/** Makes the next `findMatched` of the transaction search all requests again. */
export async function forgetMatched(tx: Transaction): Promise<void> {
  await tx.query(sql`DROP TABLE IF EXISTS pg_temp.matched, pg_temp.searched`);
}

function createBreath(): () => Promise<void> {
  let since = performance.now();
  return async () => {
    if (performance.now() - since < BREATH_MS) return;
    await breathe();
    since = performance.now();
  };
}

/** @param of.taken numbers of stored matches by quota */
async function matchFiles(
  ctx: Context,
  tx: Transaction,
  of: { files: Sql; as: Sql; patterns: readonly OpenPattern[]; taken: Map<number, number> },
): Promise<void> {
  // 60 ns for each pattern and path, 0.3 s for 1,000 patterns and 5,000 paths
  const open = new Map(of.patterns.map((pattern) => [pattern.id, pattern]));
  const take = ({ quotaId }: OpenPattern) => {
    const count = (of.taken.get(quotaId) ?? 0) + 1;
    of.taken.set(quotaId, count);
    return count <= ctx.config.limits.importJoins;
  };
  const found = new Found(tx);
  // in order of paths, as they join
  await tx.query(
    sql`DECLARE new_path NO SCROLL CURSOR FOR SELECT f.id, f.path, f.size::float8 AS size FROM ${of.as} f WHERE f.id IN (${of.files}) ORDER BY f.path`,
  );
  const breath = createBreath();
  for (let isMore = true; isMore && open.size > 0; ) {
    const page = await tx.query<NewFile>(sql`FETCH ${raw(String(PAGE))} FROM new_path`);
    for (const file of page) {
      for (const pattern of open.values()) {
        if (!file.path.includes(pattern.pattern)) continue;
        if (!found.isOver(pattern) && take(pattern)) found.add(pattern.id, file.id);
        else found.leave(pattern, file);
      }
      if (found.isLarge) await found.store();
      await breath();
    }
    for (const id of found.endPage()) open.delete(id);
    isMore = page.length === PAGE;
  }
  await found.store();
  await tx.query(sql`CLOSE new_path`);
}

interface NewFile {
  id: bigint;
  path: string;
  size: number;
}

class Found {
  private readonly tx: Transaction;
  private rows: { requestId: number; fileId: bigint; isOver: boolean }[] = [];
  private readonly left = new Map<number, NewFile>();

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
  isOver({ id }: OpenPattern): boolean {
    return this.left.has(id);
  }

  /** Records the smallest left-out file of a page. */
  leave({ id: requestId }: OpenPattern, file: NewFile): void {
    const left = this.left.get(requestId);
    if (!left || file.size < left.size) this.left.set(requestId, file);
  }

  /** @returns the requests from which a file of the page was left out */
  endPage(): number[] {
    const ids = [...this.left.keys()];
    for (const [requestId, { id }] of this.left) this.rows.push({ requestId, fileId: id, isOver: true });
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
