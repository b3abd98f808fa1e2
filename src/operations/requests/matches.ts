/** Which standing patterns take which new files, found outside the database: it would search each path for each pattern. */
import { setImmediate as breathe } from 'node:timers/promises';
import type { Context } from '../../context.js';
import { raw, type Sql, sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { Rooms, type Standing } from './left-out.js';
import { mostFiles } from './limits.js';
import { PatternSet } from './pattern-set.js';

/** Patterns that are looked for together: some tens of megabytes at most. */
const GROUP = 20_000;
/** Files that are read together. */
const PAGE = 2000;
/** Matches that are stored together. */
const BATCH = 10_000;
/** Everybody else in the process waits for so long at most. */
const BREATH_MS = 20;

/**
 * Makes the temporary table `matched`, of requests and the files that their patterns are in: those that may join, as many more as may be
 * noted as left out, and of each request that has more than that a small one which `is_over`, unless a smaller one is known.
 * @param of.files a query that gives the ids of the files
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
  // what has left out more than is noted is passed over where nothing has room, or tells more than is known
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

async function buildSet(patterns: Iterable<Standing>): Promise<PatternSet> {
  const [set, breath] = [new PatternSet(), createBreath()];
  for (const pattern of patterns) {
    set.add(pattern);
    await breath();
  }
  return set;
}

/** @returns what lets others do something when it is time */
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
  const standing = new Map(patterns.map((pattern) => [pattern.id, pattern]));
  const found = new Found(tx);
  // in order of the paths, as they join
  await tx.query(
    sql`DECLARE new_path NO SCROLL CURSOR FOR SELECT f.id, f.path, f.size::float8 AS size FROM ${as} f WHERE f.id IN (${files}) ORDER BY f.path`,
  );
  let set = await buildSet(standing.values());
  const breath = createBreath();
  for (let isMore = true; isMore && standing.size > 0; ) {
    const page = await tx.query<NewFile>(sql`FETCH ${raw(String(PAGE))} FROM new_path`);
    const before = standing.size;
    for (const matches of set.find(page.map(({ path }) => path))) {
      for (const { id, path } of matches) {
        const pattern = standing.get(id);
        const file = page[path] as NewFile;
        if (!pattern) {
          found.leave(id, file);
          continue;
        }
        let takes = rooms.take(pattern, file.size);
        if (takes === undefined) {
          await rooms.look(pattern);
          takes = rooms.take(pattern, file.size);
        }
        if (takes) found.add(id, file.id);
        else {
          standing.delete(id);
          found.leave(id, file, pattern.leftOut);
        }
      }
      if (found.isLarge) await found.store();
      await breath();
    }
    found.endPage();
    if (standing.size < before) set = await buildSet(standing.values());
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

/** Matches, stored many at a time. */
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

  /** Of what a request is left out of, the smallest of a page. @param known the size of one that is known before; given for the first of them */
  leave(requestId: number, { id, size }: NewFile, known?: number): void {
    const left = this.left.get(requestId) ?? { size: known ?? 0, id: undefined };
    this.left.set(requestId, size < left.size ? { size, id } : left);
  }

  endPage(): void {
    for (const [requestId, { id }] of this.left) {
      if (id !== undefined) this.rows.push({ requestId, fileId: id, isOver: true });
    }
    this.left.clear();
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
