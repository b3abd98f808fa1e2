/**
 * Reads tape files for lists, and for the commands `archive` and `scan`, which compare files on disk or on tape with
 * the catalogue.
 */

import { type Stage, stageLetters } from '../../core/stages.js';
import { askAtLength } from '../../db/lists/snapshot.js';
import { readTextList, type TextPages } from '../../db/lists/text-lists.js';
import { prepared } from '../../db/prepared.js';
import { allOf, type Sql, sql } from '../../db/sql.js';
import { Prisma, type TapeFile } from '../../generated/prisma/client.js';
import { isRuled, isUnruled, mayMissFiles, mayPath } from '../access/paths.js';
import { isOffered, isWithdrawn, pathOnTape } from '../conditions.js';
import type { Context } from '../context.js';
import { parseSearch } from '../file-search.js';
import { checkBytes, checkPath, checkPattern, checkText, checkTime } from '../input.js';
import { jsonChoice, jsonInteger, jsonObject, jsonText, jsonTime } from '../json-text.js';
import { atListServer } from '../list-server.js';
import { holdsText, isByRareWord, isScan, matchesTerms } from '../match.js';
import { countFiles, countRows, estimateFiles, type KeyPage, type RowCount, readPage } from '../page-keys.js';
import { allow } from '../policy.js';
import { columnsOf, commonFileFields } from '../row-columns.js';
import { gramsOf } from '../search-grams.js';
import { filesDirectlyIn, firstFilesIn } from './directories.js';
import { type FileOrderField, MAX_SORTED, type OrderedKey, readSortedPage, tooManyToSort } from './ordered-files.js';
import { type BlockSearch, countInBlocks, readPageInBlocks } from './path-blocks.js';
import type { TapePosition } from './volumes.js';

export interface ListFilesInput {
  match?: string | null | undefined;
  stages?: readonly Stage[] | null | undefined;
  /** Whether to list only withdrawn files. By default, withdrawn files are omitted. */
  withdrawn?: boolean | null | undefined;
  /** Name of the volume that contains the first copy. */
  volume?: string | null | undefined;
  /** A directory. Selects all files below it, at any depth. */
  directory?: string | null | undefined;
  /** Smallest and largest size in bytes. */
  minSize?: bigint | null | undefined;
  maxSize?: bigint | null | undefined;
  /** Words and globs in the syntax of `parseSearch`. */
  search?: string | null | undefined;
  /** A directory. Selects the files directly in the directory. */
  parent?: string | null | undefined;
  /** Earliest and latest modification time. */
  modifiedSince?: string | null | undefined;
  modifiedUntil?: string | null | undefined;
}

export interface FileOrder {
  field: FileOrderField;
  direction: 'ASC' | 'DESC';
}

const jsonFields = {
  path: jsonText(sql`f.path`),
  spotName: jsonText(sql`f.spot_name`),
  stageLetter: jsonChoice(sql`f.stage`, new Map(Object.entries(stageLetters))),
  verified: jsonTime(sql`f.verified`),
  size: jsonInteger(sql`f.size`),
};

export type JsonOfFile = readonly (readonly [name: string, field: keyof typeof jsonFields])[];

const fileColumns = columnsOf(Prisma.TapeFileScalarFieldEnum, 'f');

const commonFileColumns = columnsOf(commonFileFields, 'f');

/**
 * Returns functions that read the list of tape files. One function counts or estimates the files, and one reads a page
 * in path order. Another function passes all files as JSON objects to a consumer.
 */
export function listFiles(ctx: Context, input: ListFilesInput, reader?: AbortSignal) {
  allow(ctx, 'listFiles');
  const filter = filterOf(input);
  const where = sql`${filter} AND ${mayPath(ctx, 'LIST')}`;
  const from = input.parent == null ? sql`tape_file f` : filesDirectlyIn(checkParent(input.parent));
  const rows = sql`${from} WHERE ${where}`;
  // without a filter, subtract the withdrawn files from all files, because both can be counted by reading only an index
  const isAll = !isFiltered(input) && !input.withdrawn;
  const counted = isAll
    ? {
        rows: sql`tape_file f WHERE ${mayPath(ctx, 'LIST')}`,
        less: sql`tape_file f WHERE ${isWithdrawn} AND ${mayPath(ctx, 'LIST')}`,
      }
    : { rows };
  const grams = input.parent == null && !input.withdrawn ? gramsOfSearch(input) : [];
  const blocks: BlockSearch | undefined = grams.length > 0 ? { grams, where, reader } : undefined;
  const free = isRuled(ctx.caller)
    ? { rows: sql`tape_file f WHERE ${filter} AND ${isUnruled}`, isFree: isUnruled }
    : undefined;
  return {
    count: () => atListServer(ctx, (at) => countRows(at, { ...counted, reader })),
    /** Counts the files, and adds up their sizes. */
    measure: (): Promise<RowCount> =>
      atListServer(ctx, async (at) => ({
        ...(await countFiles(at, { rows, hasBytes: true, reader })),
        isEstimated: false,
      })),
    estimate: (hasBytes = false) =>
      atListServer(ctx, (at) =>
        input.parent == null
          ? estimateFiles(at, {
              ...{ where, hasBytes, reader },
              isSecret: () => mayMissFiles(at),
              ...(blocks && { inBlocks: () => countInBlocks(at, blocks) }),
            })
          : countUpTo(at, { rows, hasBytes, reader }),
      ),
    /** @throws InvalidInputError if there are too many files to sort */
    orderedPage: (order: FileOrder, page: KeyPage<OrderedKey>, isCommon = false) =>
      atListServer(ctx, (at) =>
        readOrdered(
          at,
          { input, filter, rows, columns: isCommon ? commonFileColumns : fileColumns, reader },
          order,
          page,
        ),
      ),
    page: (page: KeyPage<string>, isCommon = false) => {
      const walk = isFiltered(input) ? undefined : (free?.rows ?? rows);
      const columns = isCommon ? commonFileColumns : fileColumns;
      const list = { rows, walk, reader, columns, key: sql`f.path` };
      return atListServer(ctx, (at) => readFilesPage(at, { ...list, blocks }, page));
    },
    texts: <T>(json: JsonOfFile, consume: (count: bigint, pages: TextPages) => Promise<T>) => {
      const columns = sql`f.path, f.spot_name, f.stage, f.verified, f.size`;
      const item = jsonObject(json.map(([name, field]) => [name, jsonFields[field]]));
      const ways = { isScan: readsEachFile(input), isPlannedOnce: Boolean(input.match && isByRareWord(input.match)) };
      const again = { key: sql`f.id`, rows: (ids: Sql) => sql`tape_file f WHERE f.id = ANY(${ids})` };
      const order = sql`f.path`;
      const list = { rows, ...(free && { free }), columns, item, order, ...ways, ...(input.match && { again }) };
      return atListServer(ctx, (at, given) => readTextList(at, list, (count, pages) => consume(count, given(pages))));
    },
  };
}

/** Reads a page in path order. The blocks of paths can be read only forwards. */
async function readFilesPage(
  ctx: Context,
  { blocks, ...list }: Parameters<typeof readPage>[1] & { blocks: BlockSearch | undefined },
  page: KeyPage<string>,
): Promise<TapeFile[]> {
  const isForward = !page.inverted && !page.descending;
  const search = blocks && isForward ? { ...blocks, columns: list.columns } : undefined;
  const found = search && (await readPageInBlocks<TapeFile>(ctx, search, page));
  return Array.isArray(found) ? found : await readPage<TapeFile>(ctx, { ...list, isFar: found === 'far' }, page);
}

interface OrderedList {
  input: ListFilesInput;
  filter: Sql;
  rows: Sql;
  columns: Sql;
  reader: AbortSignal | undefined;
}

async function readOrdered(
  ctx: Context,
  { input, filter, rows, columns, reader }: OrderedList,
  { field, direction }: FileOrder,
  page: KeyPage<OrderedKey>,
): Promise<(TapeFile & OrderedKey)[]> {
  const isWalk =
    input.parent != null &&
    field === 'PATH' &&
    direction === 'ASC' &&
    !page.inverted &&
    !page.before &&
    !input.withdrawn;
  const sorted = { rows, columns, field, reader };
  const isSortedFirst = !isWalk || isFiltered({ ...input, parent: null });
  const descending = direction === 'DESC';
  const found = isSortedFirst ? await readSortedPage<TapeFile>(ctx, sorted, { ...page, descending }) : undefined;
  if (found) return found;
  if (!isWalk) throw tooManyToSort(field);
  const listed = firstFilesIn(ctx, checkParent(input.parent ?? ''), { after: page.after?.path, where: filter });
  return await askAtLength<TapeFile & OrderedKey>(
    ctx,
    sql`SELECT f.path AS key, ${columns} FROM ${listed} LIMIT ${page.limit}`,
    reader,
  );
}

/** Counts files up to the number that can be sorted. If there are more, the count is an estimate. */
async function countUpTo(
  ctx: Context,
  list: { rows: Sql; hasBytes: boolean; reader: AbortSignal | undefined },
): Promise<RowCount> {
  const { count, bytes } = await countFiles(ctx, { ...list, limit: MAX_SORTED + 1 });
  return count > MAX_SORTED ? { count, isEstimated: true, bytes: null } : { count, isEstimated: false, bytes };
}

/**
 * Returns the SQL condition for a file filter. The condition does not mention fields that the filter does not set, so
 * that PostgreSQL can choose an index.
 */
function filterOf(input: ListFilesInput): Sql {
  const { match, stages, withdrawn, volume, directory, minSize, maxSize, search, modifiedSince, modifiedUntil } = input;
  const conditions: Sql[] = [withdrawn ? sql`${isWithdrawn} AND f.purged_at IS NULL` : isOffered];
  if (match) conditions.push(holdsText(checkPattern('match', match)));
  if (stages) conditions.push(sql`f.stage = ANY(${stages}::"Stage"[])`);
  if (volume) {
    const name = checkText('volume', volume);
    conditions.push(sql`f.volume_id = (SELECT v.id FROM volume v WHERE v.name = ${name})`);
  }
  if (directory) conditions.push(isInDirectory(directory));
  if (minSize != null) conditions.push(sql`f.size >= ${checkBytes('minSize', minSize)}`);
  if (maxSize != null) conditions.push(sql`f.size <= ${checkBytes('maxSize', maxSize)}`);
  if (search) conditions.push(matchesTerms(parseSearch(checkPattern('search', search))));
  if (modifiedSince) conditions.push(sql`f.mtime >= ${checkTime('modifiedSince', modifiedSince)}`);
  if (modifiedUntil) conditions.push(sql`f.mtime <= ${checkTime('modifiedUntil', modifiedUntil)}`);
  return allOf(conditions);
}

function gramsOfSearch({ match, search }: ListFilesInput): string[] {
  const exact = match ? [{ kind: 'text', text: match, isExact: true } as const] : [];
  return gramsOf([...exact, ...(search ? parseSearch(search) : [])]);
}

const isFiltered = (input: ListFilesInput): boolean =>
  Boolean(input.match || input.stages || input.volume || input.directory || input.search || input.parent != null) ||
  Boolean(input.modifiedSince || input.modifiedUntil) ||
  input.minSize != null ||
  input.maxSize != null;

/** Returns a directory's path without a trailing slash. The root's path is empty. */
function checkParent(given: string): string {
  const directory = given.replace(/\/+$/, '');
  return directory === '' ? '' : checkPath('parent', directory);
}

/** `0` is the character after `/`. */
function isInDirectory(given: string): Sql {
  const directory = given.replace(/\/+$/, '');
  if (directory === '') return sql`true`;
  checkPath('directory', directory);
  return sql`f.path ~>=~ ${`${directory}/`} AND f.path ~<~ ${`${directory}0`}`;
}

function readsEachFile({ match, stages }: ListFilesInput): boolean {
  return match ? isScan(match) : Boolean(stages);
}

/** Returns the files with the given logical paths, by path. Omits files that the caller may not list. */
export async function readFilesByPath(ctx: Context, paths: readonly string[]): Promise<Map<string, TapeFile>> {
  allow(ctx, 'getFile');
  const rows = await ctx.db.rows<TapeFile>(
    sql`SELECT ${fileColumns} FROM tape_file f WHERE f.path = ANY(${paths}::text[]) AND ${mayPath(ctx, 'LIST')}`,
  );
  return new Map(rows.map((file) => [file.path, file]));
}

/** Returns a file by its logical path. Returns null if the file is unknown or the caller may not list it. */
export async function getFile(ctx: Context, path: string): Promise<TapeFile | null> {
  allow(ctx, 'getFile');
  const rows = await ctx.db.rows<TapeFile>(
    prepared(
      sql`SELECT ${fileColumns} FROM tape_file f WHERE f.path = ${checkPattern('path', path)} AND ${mayPath(ctx, 'LIST')}`,
    ),
  );
  return rows[0] ?? null;
}

export interface KnownFile {
  id: bigint;
  path: string;
  stage: Stage;
  size: bigint;
  checksum: string | null;
  isWithdrawn: boolean;
  tapePosition: TapePosition | null;
}

export async function readKnown(ctx: Context, paths: readonly string[]): Promise<Map<string, KnownFile>> {
  const rows = await ctx.db.rows<Omit<KnownFile, 'tapePosition'> & { volume: string | null; position: bigint | null }>(
    sql`SELECT f.id, f.path, f.stage, f.size, f.checksum, ${isWithdrawn} AS "isWithdrawn", v.name AS volume, f."position"
        FROM tape_file f LEFT JOIN volume v ON v.id = f.volume_id WHERE f.path = ANY(${paths}::text[])`,
  );
  return new Map(
    rows.map(({ volume, position, ...file }) => {
      const tapePosition = volume === null || position === null ? null : { volume, position };
      return [file.path, { ...file, tapePosition }];
    }),
  );
}

interface KnownPosition {
  path: string;
  size: bigint;
  volume: string | null;
  position: bigint | null;
}

/**
 * Finds files by their paths in the library. If several files have the same path in the library, prefers a file on
 * `volume`, and then a file that was renamed in the catalogue.
 */
export async function readPositions(
  ctx: Context,
  paths: readonly string[],
  volume: string,
): Promise<Map<string, KnownPosition>> {
  allow(ctx, 'importRows');
  const rows = await ctx.db.rows<KnownPosition>(
    sql`SELECT ${pathOnTape} AS path, f.size, v.name AS volume, f."position" FROM tape_file f LEFT JOIN volume v ON v.id = f.volume_id
        WHERE (f.path = ANY(${paths}::text[]) AND f.tape_path IS NULL) OR f.tape_path = ANY(${paths}::text[])
        ORDER BY v.name IS NOT DISTINCT FROM ${volume}, f.tape_path IS NOT NULL`,
  );
  return new Map(rows.map((row) => [row.path, row]));
}
