/**
 * Libraries: the tape systems of the site, each with its volumes and its drives. The first one is as the environment of each process
 * has it (TAPEGATE_TAPE_BACKEND, DRIVES); the others are in the database, and all engines work with them.
 */
import type { Context } from '../../context.js';
import { type Sql, sql } from '../../database/sql.js';
import { NotFoundError } from '../../errors.js';
import type { Prisma } from '../../generated/prisma/client.js';
import type { LibraryContract, SuspensionMode } from '../../generated/prisma/enums.js';
import { countRows, type KeyPage, readPageRows } from '../page-keys.js';
import { allow } from '../policy.js';
import { type RequestUsage, readUsage } from './usage.js';

/** The id of the one that the environment names. */
export const FIRST_LIBRARY = 1;

/** Files that a staging library may be asked for at once where it was told nothing: enough for a system to find a good order in. */
export const DEPTH_FILES = 10_000;

export interface Library {
  id: number;
  name: string;
  /** Of src/tape/kinds.ts; that of the first one is its name. */
  kind: string;
  contract: LibraryContract;
  /** As its kind takes them. */
  settings: object;
  /** Of one that stages, what reads from it at the same time. */
  drives: number;
  /** Of one that stages: what may be asked for at the same time; null: as the engine has it. */
  depthFiles: number | null;
  depthBytes: bigint | null;
}

/** Of the library `b`, one of those in the database. */
export const libraryColumns: Sql = sql`b.id, b.name, b.kind, b.contract, b.settings, b.drives, b.depth_files AS "depthFiles", b.depth_bytes AS "depthBytes"`;

/** All of them, in the order in which they were added. */
export async function readLibraries(ctx: Context): Promise<Library[]> {
  const { tapeBackend, drives } = ctx.config;
  const { rows } = await ctx.db.pool.query<Library>(
    sql`SELECT b.id, coalesce(b.name, ${tapeBackend}) AS name, coalesce(b.kind, ${tapeBackend}) AS kind, b.contract, b.settings,
          coalesce(b.drives, ${drives}::int) AS drives, b.depth_files AS "depthFiles", b.depth_bytes AS "depthBytes"
        FROM library b ORDER BY b.id`,
  );
  return rows;
}

/** In the order in which they were added: counted, or by the page. */
export function listLibraries(ctx: Context) {
  allow(ctx, 'listLibraries');
  const rows = sql`library b WHERE true`;
  return {
    count: () => countRows(ctx, { rows }),
    page: (page: KeyPage<number>, query: Pick<Prisma.LibraryFindManyArgs, 'include' | 'select'>) =>
      readPageRows(ctx, { rows, id: sql`b.id`, key: sql`b.id` }, page, (ids: number[]) => {
        const where = { id: { in: ids } };
        return ctx.db.prisma.library.findMany({ ...(query as object), where, orderBy: { id: 'asc' } });
      }),
  };
}

/** @throws NotFoundError */
export async function getLibrary(
  ctx: Context,
  id: number,
  query: Pick<Prisma.LibraryFindManyArgs, 'include' | 'select'>,
) {
  allow(ctx, 'listLibraries');
  const library = await ctx.db.prisma.library.findUnique({ ...(query as object), where: { id } });
  if (!library) throw new NotFoundError('the library was removed meanwhile');
  return library;
}

export interface LibraryState extends Library {
  /** That the catalogue has of it. */
  volumes: number;
  /** Null while it is in service. */
  suspension: { mode: SuspensionMode; reason: string } | null;
  /** What it was sent, as far as that is counted. */
  usage: RequestUsage[];
}

/** For those who run the site: all of them, in the order in which they were added. */
export async function describeLibraries(ctx: Context): Promise<LibraryState[]> {
  allow(ctx, 'readSettings');
  const { rows } = await ctx.db.pool.query<Pick<LibraryState, 'id' | 'volumes' | 'suspension'>>(
    sql`SELECT b.id, (SELECT count(*)::int FROM volume v WHERE v.library_id = b.id AND v.retired_at IS NULL) AS volumes,
          (SELECT json_build_object('mode', s.mode, 'reason', s.reason) FROM suspended_library s WHERE s.library_id = b.id LIMIT 1) AS suspension
        FROM library b`,
  );
  const states = new Map(rows.map((row) => [row.id, row]));
  const libraries = await readLibraries(ctx);
  const usage = await readUsage(
    ctx,
    libraries.map(({ id }) => id),
  );
  return libraries.map((library) => ({
    ...{ volumes: 0, suspension: null, ...library, ...states.get(library.id) },
    usage: usage.get(library.id) ?? [],
  }));
}

/** By the ids of libraries: what they were added with or set to. Where a site has its tapes is for those who run it. */
export async function readSettings(ctx: Context, ids: readonly number[]): Promise<Map<number, object>> {
  allow(ctx, 'readSettings');
  const { rows } = await ctx.db.pool.query<{ id: number; settings: object }>(
    sql`SELECT b.id, b.settings FROM library b WHERE b.id = ANY(${ids}::int[])`,
  );
  return new Map(rows.map(({ id, settings }) => [id, settings]));
}
