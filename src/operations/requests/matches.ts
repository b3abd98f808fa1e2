/** Which standing patterns take which new files, found outside the database: it would search each path for each pattern. */
import { setImmediate as breathe } from 'node:timers/promises';
import { raw, type Sql, sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { type Pattern, PatternSet } from './pattern-set.js';

/** Patterns that are looked for together: some tens of megabytes at most. */
const GROUP = 20_000;
/** Files that are read together. */
const PAGE = 2000;
/** Matches that are stored together. */
const BATCH = 10_000;
/** Everybody else in the process waits for so long at most. */
const BREATH_MS = 20;

/**
 * Makes the temporary table `matched`, of requests and the files that their patterns are in.
 * @param files a query that gives the ids of the files
 * @param isStanding a condition on the request `r`
 */
export async function findMatched(tx: Transaction, files: Sql, isStanding: Sql): Promise<void> {
  await tx.query(sql`CREATE TEMP TABLE matched (request_id int, file_id bigint) ON COMMIT DROP`);
  for (let after = 0; ; ) {
    const patterns = await tx.query<Pattern>(
      sql`SELECT r.id, r.pattern FROM request r WHERE r.pattern <> '' AND ${isStanding} AND r.id > ${after}
          ORDER BY r.id LIMIT ${GROUP}`,
    );
    if (patterns.length > 0) await matchFiles(tx, files, await buildSet(patterns));
    if (patterns.length < GROUP) break;
    after = patterns.at(-1)?.id ?? after;
  }
  await tx.query(sql`ANALYZE matched`);
}

async function buildSet(patterns: readonly Pattern[]): Promise<PatternSet> {
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

async function matchFiles(tx: Transaction, files: Sql, patterns: PatternSet): Promise<void> {
  const found: { requestIds: number[]; fileIds: bigint[] } = { requestIds: [], fileIds: [] };
  const store = async () => {
    const [requestIds, fileIds] = [found.requestIds.splice(0), found.fileIds.splice(0)];
    await tx.query(sql`INSERT INTO matched SELECT * FROM unnest(${requestIds}::int[], ${fileIds}::bigint[])`);
  };
  await tx.query(
    sql`DECLARE new_path NO SCROLL CURSOR FOR SELECT f.id, f.path FROM tape_file f WHERE f.id IN (${files})`,
  );
  const breath = createBreath();
  for (let isMore = true; isMore; ) {
    const page = await tx.query<{ id: bigint; path: string }>(sql`FETCH ${raw(String(PAGE))} FROM new_path`);
    for (const matches of patterns.find(page.map(({ path }) => path))) {
      for (const { id, path } of matches) {
        found.requestIds.push(id);
        found.fileIds.push((page[path] as { id: bigint }).id);
      }
      if (found.fileIds.length >= BATCH) await store();
      await breath();
    }
    isMore = page.length === PAGE;
  }
  if (found.fileIds.length > 0) await store();
  await tx.query(sql`CLOSE new_path`);
}
