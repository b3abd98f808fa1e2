/**
 * Pages that Prisma alone would get wrong. A list within a list it reads whole, and cuts the page in memory; and it finds
 * nothing after a cursor whose row has left the list meanwhile.
 */
import { PothosValidationError } from '@pothos/core';
import { formatPrismaCursor, parsePrismaCursor } from '@pothos/plugin-prisma';
import type { DefaultConnectionArguments } from '@pothos/plugin-relay';
import type { GraphQLResolveInfo } from 'graphql';
import type { Context } from '../src/context.js';
import type { KeyPage, PageItem, PageWish } from '../src/operations/page-keys.js';
import { createBatch } from './batch.js';
import { MAX_PAGE_SIZE, PAGE_SIZE } from './builder.js';
import { badCursor, type CursorPage, createIntCursors, resolveCursorPage } from './cursors.js';

/** A list that belongs to a parent. */
export interface InnerPages<Row> {
  descending?: boolean;
  /** Reads a page of each parent by one statement. */
  read(ctx: Context, parentIds: readonly number[], wish: PageWish): Promise<Map<number, PageItem<Row>[]>>;
}

const cursors = createIntCursors('key');

type PageReader = (ctx: Context, parentId: number) => Promise<PageItem<unknown>[] | undefined>;

/** For each request, the readers of its fields: one reads the pages of all parents that a field is asked of. */
const readers = new WeakMap<Context, Map<object | undefined, PageReader>>();

/** Returns a page of a list within a list, which is read for all parents together. */
export async function resolveInnerPage<Row>(
  { ctx, info, parentId }: { ctx: Context; info: GraphQLResolveInfo; parentId: number },
  { descending = false, read }: InnerPages<Row>,
  args: DefaultConnectionArguments & { states?: readonly string[] | null | undefined },
) {
  const find = async ({ before, after, limit, inverted }: CursorPage<number>): Promise<PageItem<Row>[]> => {
    const [above, below] = descending ? [before, after] : [after, before];
    const wish = { above, below, descending: inverted !== descending, limit, states: args.states ?? undefined };
    const known = readers.get(ctx) ?? new Map<object | undefined, PageReader>();
    const [field] = info.fieldNodes;
    const reader =
      known.get(field) ?? createBatch<number, PageItem<unknown>[]>((_, parentIds) => read(ctx, parentIds, wish));
    readers.set(ctx, known.set(field, reader));
    return ((await reader(ctx, parentId)) ?? []) as PageItem<Row>[];
  };
  const { edges, pageInfo } = await resolveCursorPage(args, cursors, { keyOf: ({ key }: PageItem<Row>) => key, find });
  return {
    pageInfo,
    edges: edges.flatMap(({ cursor, node: { row } }) => (row === undefined ? [] : [{ cursor, node: row }])),
  };
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
 * Returns a page of a list at the root with the cursors of Pothos' `prismaConnection`, of rows that a statement of our own reads.
 * @param key the field that the list is in order of, and its type
 * @param page reads the rows of a page
 */
export async function resolveRootPage<Row extends object, Key extends string | number | bigint>(
  args: DefaultConnectionArguments,
  key: { name: string; isKey: (value: unknown) => value is Key },
  page: (page: KeyPage<Key>) => Promise<Row[]>,
) {
  const { before, after, first, last } = args;
  checkDirection(args);
  const limit = Math.min(first ?? last ?? PAGE_SIZE, MAX_PAGE_SIZE) + 1; // one more shows whether there is another page
  const isBackward = before != null || last != null;
  const cursor = before ?? after;
  const from = cursor == null ? undefined : { cursor: { [key.name]: parsePrismaCursor(cursor) } };
  const rows = await readListPage({ ...from, take: isBackward ? -limit : limit, skip: from ? 1 : 0 }, key, page);
  const hasMore = rows.length === limit;
  const shown = hasMore ? rows.slice(isBackward ? 1 : 0, isBackward ? undefined : -1) : rows;
  const edges = shown.map((node) => ({ cursor: formatPrismaCursor(node as Record<string, unknown>, key.name), node }));
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
