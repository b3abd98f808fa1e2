/**
 * Reads pages of lists, and batches of values, without Prisma's pagination. For a page of a nested list, Prisma would
 * read the whole list. Prisma would also return an empty page if the row to which the cursor refers had left the list.
 */
import { PothosValidationError } from '@pothos/core';
import { formatPrismaCursor, parsePrismaCursor } from '@pothos/plugin-prisma';
import {
  type DefaultConnectionArguments,
  type ResolveCursorConnectionArgs,
  resolveCursorConnection,
} from '@pothos/plugin-relay';
import DataLoader from 'dataloader';
import { type FieldNode, type GraphQLResolveInfo, Kind } from 'graphql';
import { formatJson } from '../../src/core/text/json.js';
import type { Context } from '../../src/domain/context.js';
import type { KeyPage, PageItem, PageWish } from '../../src/domain/page-keys.js';
import { MAX_PAGE_SIZE, PAGE_SIZE } from './builder.js';
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

const MAX_INT = 2 ** 31 - 1;

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

interface InnerPages<Row> {
  descending?: boolean;
  /** Reads one page for each parent object, with one SQL statement for all of the pages. */
  read(ctx: Context, parentIds: readonly number[], wish: PageWish): Promise<Map<number, PageItem<Row>[]>>;
}

const innerCursors = createIntCursors('key');

type PageReader = (ctx: Context, parentId: number) => Promise<PageItem<unknown>[] | undefined>;

type ByField = Map<object | undefined, PageReader>;

const readers = new WeakMap<Context, Map<object, ByField>>();

export async function resolveInnerPage<Row>(
  { ctx, info, parentId }: { ctx: Context; info: GraphQLResolveInfo; parentId: number },
  { descending = false, read }: InnerPages<Row>,
  args: DefaultConnectionArguments & { states?: readonly string[] | null | undefined },
) {
  const find = async ({ before, after, limit, inverted = false }: KeyPage<number>): Promise<PageItem<Row>[]> => {
    const [above, below] = descending ? [before, after] : [after, before];
    const wish = { above, below, descending: inverted !== descending, limit, states: args.states ?? undefined };
    const ofRequest = readers.get(ctx) ?? new Map<object, ByField>();
    const known: ByField = ofRequest.get(read) ?? new Map();
    const [field] = info.fieldNodes;
    const reader =
      known.get(field) ?? createBatch<number, PageItem<unknown>[]>((_, parentIds) => read(ctx, parentIds, wish));
    readers.set(ctx, ofRequest.set(read, known.set(field, reader)));
    return ((await reader(ctx, parentId)) ?? []) as PageItem<Row>[];
  };
  const { edges, pageInfo } = await resolveCursorPage(args, innerCursors, {
    keyOf: ({ key }: PageItem<Row>) => key,
    find,
  });
  return {
    pageInfo,
    edges: edges.flatMap(({ cursor, node: { row } }) => (row === undefined ? [] : [{ cursor, node: row }])),
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

/** Sort key of a row: a number or null, and names that make the key unique. A null comes after all numbers. */
export type RowKey = readonly [order: number | null, ...names: string[]];

/**
 * Returns a page of a list that is entirely in memory.
 * @param rows all rows, in the order of `compareKeys`
 */
export function pageOf<Row extends object>(
  args: DefaultConnectionArguments,
  rows: readonly Row[],
  keyOf: (row: Row) => RowKey,
) {
  const currentKey = (key: RowKey) => {
    const row = rows.find((each) => isSame(keyOf(each), key));
    return row ? keyOf(row) : key;
  };
  return resolveCursorPage(args, rowCursors, {
    keyOf,
    find: async ({ before, after, limit, inverted }) => {
      const [low, high] = [after && currentKey(after), before && currentKey(before)];
      const within = rows
        .filter((row) => !low || compareKeys(keyOf(row), low) > 0)
        .filter((row) => !high || compareKeys(keyOf(row), high) < 0);
      return (inverted ? within.reverse() : within).slice(0, limit);
    },
  });
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
