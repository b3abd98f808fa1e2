/** Tape files as users see them. */
import type { Context } from '../../context.js';
import { withSnapshot } from '../../database/snapshot.js';
import type { Prisma } from '../../generated/prisma/client.js';
import type { Stage } from '../../stages.js';
import { checkPattern } from '../input.js';
import { escapeLike, likeSubstring } from '../match.js';

export interface ListFilesInput {
  /** Plain substring of the logical path. */
  match?: string | null | undefined;
  /** Only files at one of these. */
  stages?: readonly Stage[] | null | undefined;
}

export interface FileRow {
  path: string;
  spotName: string | null;
  stage: Stage;
  verified: string | null;
  size: bigint;
}

/** Tape files in order of their paths: counted, by the page, or counted and all of them from one snapshot. */
export function listFiles(ctx: Context, input: ListFilesInput) {
  const match = input.match ? checkPattern('match', input.match) : undefined;
  const stages = input.stages ?? undefined;
  const where: Prisma.TapeFileWhereInput = {
    ...(match === undefined ? {} : { path: { contains: escapeLike(match) } }),
    ...(stages === undefined ? {} : { stage: { in: [...stages] } }),
  };
  return {
    count: () => ctx.db.prisma.tapeFile.count({ where }),
    page: (query: FileQuery) =>
      ctx.db.prisma.tapeFile.findMany({ ...(query as object), where, orderBy: { path: 'asc' } }),
    stream: <T>(consume: (count: bigint, pages: AsyncIterable<FileRow[]>) => Promise<T>) =>
      streamFiles(ctx, { match, stages }, consume),
  };
}

async function streamFiles<T>(
  ctx: Context,
  { match, stages }: { match: string | undefined; stages: readonly Stage[] | undefined },
  consume: (count: bigint, pages: AsyncIterable<FileRow[]>) => Promise<T>,
): Promise<T> {
  // conditions are left out rather than made optional, so that the planner sees what it may use an index for
  const conditions: string[] = ['true'];
  const values: unknown[] = [];
  if (match !== undefined) conditions.push(`path LIKE $${values.push(likeSubstring(match))}`);
  if (stages !== undefined) conditions.push(`stage = ANY($${values.push(stages)}::"Stage"[])`);
  const where = conditions.join(' AND ');
  return await withSnapshot(ctx.db.streamPool, async (snapshot) => {
    const [row] = await snapshot.query<{ count: bigint }>(`SELECT count(*) FROM tape_file WHERE ${where}`, values);
    const text = `SELECT path, spot_name AS "spotName", stage, verified, size FROM tape_file WHERE ${where} ORDER BY path`;
    return await consume(row?.count ?? 0n, snapshot.stream<FileRow>(text, values));
  });
}

type FileQuery = Pick<Prisma.TapeFileFindManyArgs, 'include' | 'select'>;

/** One file by its logical path; null when the catalogue does not know it. */
export async function getFile(ctx: Context, path: string, query: FileQuery = {}) {
  return await ctx.db.prisma.tapeFile.findUnique({ ...(query as object), where: { path: checkPattern('path', path) } });
}

/** What the catalogue knows of a file that is about to be archived. */
export interface KnownFile {
  path: string;
  stage: Stage;
  size: bigint;
  checksum: string | null;
}

/** By path; paths that the catalogue does not know are left out. */
export async function readKnown(ctx: Context, paths: readonly string[]): Promise<Map<string, KnownFile>> {
  const { rows } = await ctx.db.pool.query<KnownFile>(
    'SELECT path, stage, size, checksum FROM tape_file WHERE path = ANY($1::text[])',
    [paths],
  );
  return new Map(rows.map((row) => [row.path, row]));
}
