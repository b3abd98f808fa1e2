/** Requests and what is in them, of which only some columns are read. */
import type { Context } from '../../context.js';
import { empty, raw, type Sql, sql } from '../../database/sql.js';
import { mayPathOfRequest } from '../access/paths.js';
import {
  type Choice,
  type ChosenRow,
  canChoose,
  chooseColumns,
  fileColumns,
  holdColumns,
  pageLimit,
  preparedChoice,
  quotaColumns,
  requestColumns,
  toChosenRow,
} from '../chosen-columns.js';
import { type PageWish, whereOnPage } from '../page-keys.js';
import { allow, isVisibleQuota } from '../policy.js';
import { notFound } from './rows.js';

const requestSource = { columns: requestColumns, of: { quota: { columns: quotaColumns } } };
const holdSource = { columns: holdColumns, of: { file: { columns: fileColumns } } };

export const canChooseOfRequest = (choice: Choice) => canChoose(requestSource, choice);
export const canChooseOfHold = (choice: Choice) => canChoose(holdSource, choice);

/**
 * A request by its id, past its retention too: history is kept.
 * @param choice one that `canChooseOfRequest`
 * @throws NotFoundError
 */
export async function getChosenOfRequest(ctx: Context, id: number, choice: Choice): Promise<ChosenRow> {
  allow(ctx, 'getRequest');
  const { rows } = await ctx.db.pool.query<object>(
    preparedChoice(sql`SELECT ${chooseColumns(requestSource, choice)} FROM request r JOIN quota q ON q.id = r.quota_id
      WHERE r.id = ${id}::int AND ${isVisibleQuota(ctx)}`),
  );
  const [row] = rows;
  if (!row) throw notFound(id);
  return toChosenRow(row, choice);
}

export interface ChosenPage {
  /** In order. */
  keys: number[];
  /** What the caller may not see is left out. */
  rows: Map<number, ChosenRow>;
}

/**
 * A page of the holds of each request, with their files: one statement, however many there are. Each file is looked up by its id, whatever
 * the planner thinks of how many a page has.
 * @param choice one that `canChooseOfHold`
 */
export async function readChosenHolds(
  ctx: Context,
  requestIds: readonly number[],
  wish: PageWish,
  choice: Choice,
): Promise<Map<number, ChosenPage>> {
  const { rows } = await ctx.db.pool.query<HoldRow>(preparedChoice(holdsOf(ctx, requestIds, wish, choice)));
  const pages = new Map<number, ChosenPage>();
  rows.sort((a, b) => (wish.descending ? b['#key'] - a['#key'] : a['#key'] - b['#key']));
  for (const row of rows) {
    const { '#parent': parentId, '#key': key } = row;
    const page: ChosenPage = pages.get(parentId) ?? { keys: [], rows: new Map() };
    pages.set(parentId, page);
    page.keys.push(key);
    if (row['#seen']) page.rows.set(key, toChosenRow(row, choice));
  }
  return pages;
}

interface HoldRow {
  '#parent': number;
  '#key': number;
  '#seen': boolean;
}

function holdsOf(ctx: Context, requestIds: readonly number[], wish: PageWish, choice: Choice): Sql {
  const isAll = mayPathOfRequest(ctx).text === 'true';
  const hasFiles = choice.of.file !== undefined || !isAll;
  const chosen = chooseColumns(holdSource, choice);
  const place = { table: 'any_hold', parent: 'request_id', key: 'ordinal' } as const;
  return sql`
    SELECT p.id AS "#parent", h.ordinal AS "#key", ${hasFiles ? sql`f.id IS NOT NULL` : sql`true`} AS "#seen"${chosen.text === '' ? empty : sql`, ${chosen}`}
    FROM unnest(${requestIds}::int[]) AS p (id)
      CROSS JOIN LATERAL (
        SELECT c.* FROM any_hold c WHERE ${whereOnPage(place, wish)}
        ORDER BY c.ordinal ${raw(wish.descending ? 'DESC' : 'ASC')} ${pageLimit(wish.limit)}
      ) h
      ${hasFiles ? sql`LEFT JOIN LATERAL (SELECT f.* FROM tape_file f WHERE f.id = h.file_id AND ${mayPathOfRequest(ctx)} OFFSET 0) f ON true` : empty}`;
}
