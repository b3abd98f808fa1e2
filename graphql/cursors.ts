/** Cursors of lists that Prisma does not page: a list's name and the key of a row, in base64. */
import {
  type DefaultConnectionArguments,
  type ResolveCursorConnectionArgs,
  resolveCursorConnection,
} from '@pothos/plugin-relay';
import { GraphQLError } from 'graphql';
import { MAX_PAGE_SIZE, PAGE_SIZE } from './builder.js';

/** How the cursors of a list contain the keys of its rows. */
export interface Cursors<Key> {
  write(key: Key): string;
  /** @throws GraphQLError if it is not a cursor of this list */
  read(cursor: string): Key;
}

/**
 * Returns the cursors of a list.
 * @param parse returns undefined for a text that is not a key
 */
export function createCursors<Key>(
  list: string,
  { format, parse }: { format(key: Key): string; parse(text: string): Key | undefined },
): Cursors<Key> {
  const prefix = `${list}:`;
  return {
    write: (key) => Buffer.from(prefix + format(key)).toString('base64'),
    read: (cursor) => {
      const text = Buffer.from(cursor, 'base64').toString();
      const key = text.startsWith(prefix) ? parse(text.slice(prefix.length)) : undefined;
      if (key === undefined) throw badCursor(cursor);
      return key;
    },
  };
}

const MAX_INT = 2 ** 31 - 1;

/** Returns the cursors of a list whose keys are integers of PostgreSQL. */
export const createIntCursors = (list: string): Cursors<number> =>
  createCursors<number>(list, {
    format: String,
    parse: (text) => (/^\d{1,10}$/.test(text) && Number(text) <= MAX_INT ? Number(text) : undefined),
  });

export const createBigIntCursors = (list: string): Cursors<bigint> =>
  createCursors<bigint>(list, {
    format: String,
    parse: (text) => (/^\d{1,18}$/.test(text) ? BigInt(text) : undefined),
  });

/** A page of rows by their keys; `inverted`: from the end of the list. */
export interface CursorPage<Key> {
  before: Key | undefined;
  after: Key | undefined;
  limit: number;
  inverted: boolean;
}

/** Returns a page of a list as a connection. */
export function resolveCursorPage<Row extends object, Key>(
  args: DefaultConnectionArguments,
  cursors: Cursors<Key>,
  { keyOf, find }: { keyOf(row: Row): Key; find(page: CursorPage<Key>): Promise<Row[]> },
) {
  const read = (cursor: string | undefined) => (cursor === undefined ? undefined : cursors.read(cursor));
  return resolveCursorConnection(
    { args, defaultSize: PAGE_SIZE, maxSize: MAX_PAGE_SIZE, toCursor: (row: Row) => cursors.write(keyOf(row)) },
    async ({ before, after, limit, inverted }: ResolveCursorConnectionArgs) =>
      find({ before: read(before), after: read(after), limit, inverted }),
  );
}

export function badCursor(cursor: unknown): GraphQLError {
  return new GraphQLError(`Invalid cursor: ${cursor}`, { extensions: { code: 'BAD_USER_INPUT' } });
}
