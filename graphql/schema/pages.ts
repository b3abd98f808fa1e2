/**
 * Reads pages of lists, and batches of values, without Prisma's pagination. For a page of a nested list, Prisma would
 * read the whole list. Prisma would also return an empty page if the row to which the cursor refers had left the list.
 */
import { type ArgBuilder, PothosValidationError } from '@pothos/core';
import { formatPrismaCursor, parsePrismaCursor } from '@pothos/plugin-prisma';
import {
  type DefaultConnectionArguments,
  type ResolveCursorConnectionArgs,
  resolveCursorConnection,
} from '@pothos/plugin-relay';
import DataLoader from 'dataloader';
import { type FieldNode, type GraphQLResolveInfo, Kind } from 'graphql';
import { InvalidInputError } from '../../src/core/errors.js';
import { formatJson } from '../../src/core/text/json.js';
import type { Context } from '../../src/domain/context.js';
import type { KeyPage, PageItem, PageWish } from '../../src/domain/page-keys.js';
import { MAX_PAGE_SIZE, PAGE_SIZE, type Types } from './builder.js';
import { invalidCursor } from './page-arguments.js';

type Side = 'after' | 'before';

interface Cursors<Key> {
  write(key: Key): string;
  /** @throws InvalidInputError if the cursor is malformed or belongs to another list */
  read(cursor: string, side: Side): Key;
}

/**
 * Creates functions that convert between the keys of a list's rows and the list's cursors.
 * @param parse parses a key; returns undefined if the text is not a valid key
 */
export function createCursors<Key>(
  list: string,
  { format, parse }: { format(key: Key): string; parse(text: string): Key | undefined },
): Cursors<Key> {
  const prefix = `${list}:`;
  return {
    write: (key) => Buffer.from(prefix + format(key)).toString('base64'),
    read: (cursor, side) => {
      const text = Buffer.from(cursor, 'base64').toString();
      const key = text.startsWith(prefix) ? parse(text.slice(prefix.length)) : undefined;
      if (key === undefined) throw invalidCursor(side, cursor);
      return key;
    },
  };
}

export const MAX_INT = 2 ** 31 - 1;

const createIntCursors = (list: string): Cursors<number> =>
  createCursors<number>(list, {
    format: String,
    parse: (text) => (/^\d{1,10}$/.test(text) && Number(text) <= MAX_INT ? Number(text) : undefined),
  });

const createBigIntCursors = (list: string): Cursors<bigint> =>
  createCursors<bigint>(list, {
    format: String,
    parse: (text) => (/^\d{1,18}$/.test(text) ? BigInt(text) : undefined),
  });

export function resolveCursorPage<Row extends object, Key>(
  args: DefaultConnectionArguments,
  cursors: Cursors<Key>,
  { keyOf, find }: { keyOf(row: Row): Key; find(page: KeyPage<Key>): Promise<Row[]> },
) {
  const read = (cursor: string | undefined, side: Side) =>
    cursor === undefined ? undefined : cursors.read(cursor, side);
  return resolveCursorConnection(
    { args, defaultSize: PAGE_SIZE, maxSize: MAX_PAGE_SIZE, toCursor: (row: Row) => cursors.write(keyOf(row)) },
    async ({ before, after, limit, inverted }: ResolveCursorConnectionArgs) =>
      find({ before: read(before, 'before'), after: read(after, 'after'), limit, inverted }),
  );
}

export const resolveIdPage = <Row extends { id: number }>(
  args: DefaultConnectionArguments,
  list: string,
  find: (page: KeyPage<number>) => Promise<Row[]>,
) => resolveCursorPage(args, createIntCursors(list), { keyOf: ({ id }: Row) => id, find });

export const resolveBigIdPage = <Row extends { id: bigint }>(
  args: DefaultConnectionArguments,
  list: string,
  find: (page: KeyPage<bigint>) => Promise<Row[]>,
) => resolveCursorPage(args, createBigIntCursors(list), { keyOf: ({ id }: Row) => id, find });

/** Adds a total count to a page. The count is computed only if the query selects `totalCount`. */
export const counted = async <Page extends object>(page: Promise<Page>, totalCount: () => Promise<number>) => ({
  ...(await page),
  totalCount,
});

interface InnerPages<Row, Id> {
  descending?: boolean;
  /** Whether the keys of the list can exceed 32 bits. */
  hasLargeKeys?: boolean;
  /**
   * Reads one page for each of the parent objects, with one SQL statement for all pages. Pages are combined in one
   * statement only if they have the same `read` function.
   */
  read(ctx: Context, parentIds: readonly Id[], wish: PageWish): Promise<Map<Id, PageItem<Row>[]>>;
  /** Counts the items of each of the parent objects' lists, with one SQL statement. */
  count(ctx: Context, parentIds: readonly Id[], filter: InnerFilter): Promise<Map<Id, number>>;
}

type InnerFilter = Pick<PageWish, 'states' | 'match'>;

interface InnerArguments extends DefaultConnectionArguments {
  states?: readonly string[] | null | undefined;
  match?: string | null | undefined;
}

const innerCursors = createIntCursors('key');
const largeCursors = createCursors<number>('large', {
  format: String,
  parse: (text) => (/^\d{1,16}$/.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : undefined),
});

interface InnerReader {
  page(ctx: Context, parentId: unknown): Promise<PageItem<unknown>[] | undefined>;
  count(ctx: Context, parentId: unknown): Promise<number | undefined>;
}

const readers = new WeakMap<Context, Map<object, Map<object | undefined, InnerReader>>>();

/** Returns a page of a list that belongs to a parent object. Pages of several parents are read with one statement. */
export async function resolveInnerPage<Row, Id extends number | bigint>(
  { ctx, info, parentId }: { ctx: Context; info: GraphQLResolveInfo; parentId: Id },
  { descending = false, hasLargeKeys = false, read, count }: InnerPages<Row, Id>,
  args: InnerArguments,
) {
  const filter = { states: args.states ?? undefined, match: args.match || undefined };
  const readerOf = (wish: PageWish): InnerReader => {
    const ofRequest = readers.get(ctx) ?? new Map<object, Map<object | undefined, InnerReader>>();
    const known = ofRequest.get(read) ?? new Map<object | undefined, InnerReader>();
    const [field] = info.fieldNodes;
    const reader: InnerReader = known.get(field) ?? {
      page: createBatch<Id, PageItem<unknown>[]>((_, ids) => read(ctx, ids, wish)) as InnerReader['page'],
      count: createBatch<Id, number>((_, ids) => count(ctx, ids, filter)) as InnerReader['count'],
    };
    readers.set(ctx, ofRequest.set(read, known.set(field, reader)));
    return reader;
  };
  let counter: InnerReader | undefined;
  const find = async ({ before, after, limit, inverted = false }: KeyPage<number>): Promise<PageItem<Row>[]> => {
    const [above, below] = descending ? [before, after] : [after, before];
    counter = readerOf({ above, below, descending: inverted !== descending, limit, ...filter });
    return ((await counter.page(ctx, parentId)) ?? []) as PageItem<Row>[];
  };
  const { edges, pageInfo } = await resolveCursorPage(args, hasLargeKeys ? largeCursors : innerCursors, {
    keyOf: ({ key }: PageItem<Row>) => key,
    find,
  });
  return {
    pageInfo,
    edges: edges.flatMap(({ cursor, node: { row } }) => (row === undefined ? [] : [{ cursor, node: row }])),
    totalCount: async () => (await counter?.count(ctx, parentId)) ?? 0,
  };
}

function isTooLarge(cursor: unknown): boolean {
  if (typeof cursor === 'bigint') return BigInt.asIntN(64, cursor) !== cursor;
  return typeof cursor === 'number' && !(Math.abs(cursor) <= MAX_INT);
}

interface PageQuery {
  cursor?: Record<string, unknown>;
  take: number;
  skip: number;
}

/** Reads a page of a Prisma connection. Finds the first row of the page by the row's key, not by an offset. */
export async function readListPage<Query extends PageQuery, Key extends string | number | bigint, Row>(
  query: Query,
  key: ListKey<Key>,
  load: (page: KeyPage<Key>, fields: Omit<Query, keyof PageQuery>) => Promise<Row[]>,
): Promise<Row[]> {
  const { cursor, take, skip: _, ...fields } = query;
  const inverted = take < 0;
  const side = inverted ? 'before' : 'after';
  const from = cursor && checkKey(cursor[key.name], key, side);
  return await load({ [side]: from, inverted, limit: Math.abs(take) }, fields);
}

interface ListKey<Key> {
  name: string;
  isKey: (value: unknown) => value is Key;
}

/** @throws InvalidInputError if the cursor's value is not a valid key */
function checkKey<Key>(value: unknown, { isKey }: ListKey<Key>, side: Side): Key {
  if (isKey(value) && !isTooLarge(value)) return value;
  throw invalidCursor(side, formatJson(value));
}

/**
 * Returns a page of a list at the root of the schema, with rows from Tapegate's own SQL statement. The cursors have the
 * format of Pothos' `prismaConnection`.
 */
export async function resolveRootPage<Row extends object, Key extends string | number | bigint>(
  args: DefaultConnectionArguments,
  key: ListKey<Key>,
  page: (page: KeyPage<Key>) => Promise<Row[]>,
) {
  const cursors: Cursors<Key> = {
    write: (value) => formatPrismaCursor({ [key.name]: value }, key.name),
    read: (cursor, side) => checkKey(parseCursor(cursor, side), key, side),
  };
  const keyOf = (row: Row) => (row as Record<string, unknown>)[key.name] as Key;
  return await resolveCursorPage(args, cursors, { keyOf, find: page });
}

/** @throws InvalidInputError if the cursor does not have the format of `prismaConnection` */
function parseCursor(cursor: string, side: Side): unknown {
  try {
    return parsePrismaCursor(cursor);
  } catch (error) {
    throw error instanceof PothosValidationError ? invalidCursor(side, cursor) : error;
  }
}

/** Returns whether a value is a string that PostgreSQL can store. PostgreSQL strings cannot contain NUL characters. */
export const isText = (value: unknown): value is string => typeof value === 'string' && !value.includes('\0');
export const isInt = (value: unknown): value is number => Number.isInteger(value);
export const isBigInt = (value: unknown): value is bigint => typeof value === 'bigint';

export interface ForwardArguments {
  first?: number | null | undefined;
  after?: string | null | undefined;
}

/** Returns the arguments of a list that can be read only forwards. */
export const forwardArguments = (arg: ArgBuilder<Types>) => ({
  first: arg.int({
    description: `Returns the first n items of the list, or the first n items after the \`after\` cursor. Default ${PAGE_SIZE}, maximum ${MAX_PAGE_SIZE}.`,
  }),
  after: arg.string({ description: 'Returns the items after this cursor.' }),
});

/** Returns a page of a list that can be read only forwards. */
export async function forwardPage<Row extends Key, Key>(
  { first, after }: ForwardArguments,
  cursors: Cursors<Key>,
  read: (page: { limit: number; after: Key | undefined }) => Promise<{ rows: Row[]; hasMore: boolean }>,
) {
  if (first != null && first < 0) throw new InvalidInputError('first', `must be 0 or more, not ${first}`);
  const limit = Math.min(first ?? PAGE_SIZE, MAX_PAGE_SIZE);
  const { rows, hasMore } = await read({ limit, after: after == null ? undefined : cursors.read(after, 'after') });
  const edges = rows.map((node) => ({ node, cursor: cursors.write(node) }));
  return {
    edges,
    pageInfo: {
      startCursor: edges[0]?.cursor ?? after ?? null,
      endCursor: edges.at(-1)?.cursor ?? after ?? null,
      hasPreviousPage: after != null,
      hasNextPage: hasMore,
    },
  };
}

/** Sort key of a row: a number or null, and names that make the key unique. A null comes after all numbers. */
export type RowKey = readonly [order: number | null, ...names: string[]];

/**
 * Returns a page of a list that is entirely in memory.
 * @param rows all rows, in the order of `compareKeys`
 */
export async function pageOf<Row extends object>(
  args: DefaultConnectionArguments,
  rows: readonly Row[],
  keyOf: (row: Row) => RowKey,
) {
  const currentKey = (key: RowKey) => {
    const row = rows.find((each) => isSame(keyOf(each), key));
    return row ? keyOf(row) : key;
  };
  const page = await resolveCursorPage(args, rowCursors, {
    keyOf,
    find: async ({ before, after, limit, inverted }) => {
      const [low, high] = [after && currentKey(after), before && currentKey(before)];
      const within = rows
        .filter((row) => !low || compareKeys(keyOf(row), low) > 0)
        .filter((row) => !high || compareKeys(keyOf(row), high) < 0);
      return (inverted ? within.reverse() : within).slice(0, limit);
    },
  });
  return { ...page, totalCount: () => rows.length };
}

export function compareKeys([a, ...names]: RowKey, [b, ...others]: RowKey): number {
  if (a !== b) return (a ?? Number.POSITIVE_INFINITY) < (b ?? Number.POSITIVE_INFINITY) ? -1 : 1;
  const index = names.findIndex((name, n) => name !== others[n]);
  return index < 0 ? 0 : (names[index] ?? '') < (others[index] ?? '') ? -1 : 1;
}

function isSame([, ...names]: RowKey, [, ...others]: RowKey): boolean {
  return names.length === others.length && names.every((name, n) => name === others[n]);
}

const rowCursors = createCursors<RowKey>('row', {
  format: (key) => JSON.stringify(key),
  parse: (text) => {
    const [order, ...names] = readList(text);
    const isOrder = order === null || typeof order === 'number';
    return isOrder && names.length > 0 && names.every((name) => typeof name === 'string')
      ? [order, ...names]
      : undefined;
  },
});

function readList(json: string): unknown[] {
  try {
    const list: unknown = JSON.parse(json);
    return Array.isArray(list) ? list : [];
  } catch {
    return [];
  }
}

/** Returns the names of the fields that a query selects below a nested field. */
export function selectedNames({ fieldNodes, fragments }: GraphQLResolveInfo, ...path: string[]): string[] {
  const below = (nodes: readonly FieldNode[]): FieldNode[] => {
    const fields: FieldNode[] = [];
    const sets = new Set(nodes.flatMap(({ selectionSet }) => selectionSet ?? []));
    for (const { selections } of sets) {
      for (const each of selections) {
        if (each.kind === Kind.FIELD) fields.push(each);
        else {
          const fragment = each.kind === Kind.INLINE_FRAGMENT ? each : fragments[each.name.value];
          if (fragment) sets.add(fragment.selectionSet);
        }
      }
    }
    return fields;
  };
  const last = path.reduce((nodes, name) => below(nodes.filter((node) => node.name.value === name)), below(fieldNodes));
  return last.map(({ name }) => name.value);
}

/**
 * Returns a batching loader: one call of `load` loads all keys requested in the same turn of the event loop. The loader
 * caches no values, so that the response to a mutation contains the values after the change.
 * @param load returns the values by key, and omits keys without a value
 */
export function createBatch<Key, Value>(load: (ctx: Context, keys: Key[]) => Promise<Map<Key, Value>>) {
  const loaders = new WeakMap<Context, DataLoader<Key, Value | undefined>>();
  return async (ctx: Context, key: Key): Promise<Value | undefined> => {
    let loader = loaders.get(ctx);
    if (!loader) {
      const loadAll = async (keys: readonly Key[]) => {
        const values = await load(ctx, [...new Set(keys)]);
        return keys.map((each) => values.get(each));
      };
      loader = new DataLoader(loadAll, { cache: false, batchScheduleFn: (run) => void setImmediate(run) });
      loaders.set(ctx, loader);
    }
    return await loader.load(key);
  };
}
