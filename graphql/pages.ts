/**
 * Pages that Prisma alone would get wrong. A list within a list it reads whole, and cuts the page in memory; and it finds
 * nothing after a cursor whose row has left the list meanwhile.
 */
import { PothosValidationError } from '@pothos/core';
import { formatPrismaCursor, parsePrismaCursor, queryFromInfo } from '@pothos/plugin-prisma';
import {
  type DefaultConnectionArguments,
  type ResolveCursorConnectionArgs,
  resolveCursorConnection,
} from '@pothos/plugin-relay';
import type { GraphQLResolveInfo } from 'graphql';
import type { Context } from '../src/context.js';
import { type KeyPage, type ListPlace, readPageKeys } from '../src/operations/page-keys.js';
import { createBatch } from './batch.js';
import { MAX_PAGE_SIZE, PAGE_SIZE } from './builder.js';
import { badCursor, createIntCursors } from './cursors.js';

interface Page<Row> {
  keys: number[];
  rows: Map<number, Row>;
}

/** A list that belongs to a parent: how its pages are found, and how the rows of them are read. */
export interface InnerList<Row> {
  place: ListPlace;
  descending?: boolean;
  /** The GraphQL type of the rows. */
  typeName: string;
  /** `where` holds the keys of some pages; `query` what GraphQL wants of each row. */
  load(ctx: Context, pages: { parentId: number; keys: number[] }[], query: object): Promise<Row[]>;
  parentOf(row: Row): number;
  keyOf(row: Row): number;
}

const cursors = createIntCursors('key');

type PageReader = (ctx: Context, parentId: number) => Promise<Page<unknown> | undefined>;

/** For each request, the readers of its fields; what one field asks of many parents becomes one page reader's work. */
const readers = new WeakMap<Context, Map<object | undefined, PageReader>>();

/** A page of a list within a list, read for all parents together. */
export async function resolveInnerPage<Row>(
  { ctx, info, parentId }: { ctx: Context; info: GraphQLResolveInfo; parentId: number },
  list: InnerList<Row>,
  args: DefaultConnectionArguments & { states?: readonly string[] | null | undefined },
) {
  let page: Page<Row> | undefined;
  const options = { args, defaultSize: PAGE_SIZE, maxSize: MAX_PAGE_SIZE, toCursor: cursors.write };
  const find = async ({ before, after, limit, inverted }: ResolveCursorConnectionArgs): Promise<number[]> => {
    const [above, below] = list.descending ? [before, after] : [after, before];
    const wish = {
      above: above === undefined ? undefined : cursors.read(above),
      below: below === undefined ? undefined : cursors.read(below),
      descending: inverted !== (list.descending ?? false),
      limit,
      states: args.states ?? undefined,
    };
    // by each parent, since Pothos notes by its path what its rows will have loaded
    const query = queryFromInfo({ context: ctx, info, typeName: list.typeName, path: ['edges', 'node'] });
    const known = readers.get(ctx) ?? new Map<object | undefined, PageReader>();
    const [field] = info.fieldNodes;
    const reader =
      known.get(field) ?? createBatch<number, Page<unknown>>((_, ids) => readPages({ ctx, query, ids }, list, wish));
    readers.set(ctx, known.set(field, reader));
    page = (await reader(ctx, parentId)) as Page<Row> | undefined;
    return page?.keys ?? [];
  };
  const { edges, pageInfo } = await resolveCursorConnection(options, find);
  return {
    pageInfo,
    edges: edges.flatMap(({ cursor, node: key }) => {
      const node = page?.rows.get(key);
      return node === undefined ? [] : [{ cursor, node }];
    }),
  };
}

/** Keys that go into one statement: PostgreSQL takes 65,535 values. */
const MAX_KEYS = 10_000;

async function readPages<Row>(
  { ctx, query, ids }: { ctx: Context; query: object; ids: readonly number[] },
  list: InnerList<Row>,
  wish: Parameters<typeof readPageKeys>[3],
): Promise<Map<number, Page<Row>>> {
  const keys = await readPageKeys(ctx, list.place, ids, wish);
  const pages = new Map<number, Page<Row>>();
  const batch: { parentId: number; keys: number[] }[] = [];
  const flush = async () => {
    for (const row of batch.length > 0 ? await list.load(ctx, batch.splice(0), query) : []) {
      pages.get(list.parentOf(row))?.rows.set(list.keyOf(row), row);
    }
  };
  let count = 0;
  for (const [parentId, pageKeys] of keys) {
    pages.set(parentId, { keys: pageKeys, rows: new Map() });
    if (count + pageKeys.length > MAX_KEYS) {
      await flush();
      count = 0;
    }
    batch.push({ parentId, keys: pageKeys });
    count += pageKeys.length;
  }
  await flush();
  return pages;
}

const MAX_INT = 2 ** 31 - 1;

/** The database refuses what its integers do not hold. */
function isTooLarge(cursor: unknown): boolean {
  if (typeof cursor === 'bigint') return BigInt.asIntN(64, cursor) !== cursor;
  return typeof cursor === 'number' && !(Math.abs(cursor) <= MAX_INT);
}

/** A page as Prisma is asked for it. */
export interface PageQuery {
  cursor?: Record<string, unknown>;
  take: number;
  skip: number;
}

/**
 * What a connection asks for, as a page by the value of its key.
 * @param key the field of the cursor, and its type
 * @param load gives the rows of a page, with what GraphQL wants of each
 */
export async function readListPage<Query extends PageQuery, Key extends string | number | bigint, Row>(
  query: Query,
  key: { name: string; isKey: (value: unknown) => value is Key },
  load: (page: KeyPage<Key>, fields: Omit<Query, keyof PageQuery>) => Promise<Row[]>,
): Promise<Row[]> {
  const { cursor, take, skip: _, ...fields } = query;
  const from = cursor?.[key.name];
  if (cursor && (!key.isKey(from) || isTooLarge(from))) {
    throw badCursor(typeof from === 'bigint' ? String(from) : JSON.stringify(from));
  }
  return await load({ from: from as Key | undefined, isBackward: take < 0, limit: Math.abs(take) }, fields);
}

/**
 * A page of a list at the root, as Pothos' `prismaConnection` gives it, with the same cursors; which works out a query of Prisma's for each page, also where
 * the rows are read in another way.
 * @param key the column that the list is in order of
 * @param load gives the rows of a page
 */
export async function resolveRootPage<Row extends object>(
  args: DefaultConnectionArguments,
  key: string,
  load: (query: PageQuery) => Promise<Row[]>,
) {
  const { before, after, first, last } = args;
  checkDirection(args);
  const limit = Math.min(first ?? last ?? PAGE_SIZE, MAX_PAGE_SIZE) + 1; // by one more is known that there is more
  const isBackward = before != null || last != null;
  const cursor = before ?? after;
  const from = cursor == null ? undefined : { [key]: parsePrismaCursor(cursor) };
  const rows = await load({ ...(from && { cursor: from }), take: isBackward ? -limit : limit, skip: from ? 1 : 0 });
  const hasMore = rows.length === limit;
  const shown = hasMore ? rows.slice(isBackward ? 1 : 0, isBackward ? undefined : -1) : rows;
  const edges = shown.map((node) => ({ cursor: formatPrismaCursor(node as Record<string, unknown>, key), node }));
  const pageInfo = {
    startCursor: edges[0]?.cursor ?? null,
    endCursor: edges.at(-1)?.cursor ?? null,
    hasPreviousPage: after != null || (isBackward && hasMore),
    hasNextPage: before != null || (last == null && hasMore),
  };
  return { edges, pageInfo };
}

/** @throws PothosValidationError as `prismaConnection` does */
function checkDirection(args: DefaultConnectionArguments): void {
  for (const [one, other] of [
    ['before', 'after'],
    ['before', 'first'],
    ['after', 'last'],
  ] as const) {
    if (args[one] == null || args[other] == null) continue;
    throw new PothosValidationError(`Arguments "${one}" and "${other}" are not supported at the same time`);
  }
}

/** PostgreSQL has no text with the character NUL. */
export const isText = (value: unknown): value is string => typeof value === 'string' && !value.includes('\0');
export const isInt = (value: unknown): value is number => Number.isInteger(value);
export const isBigInt = (value: unknown): value is bigint => typeof value === 'bigint';
