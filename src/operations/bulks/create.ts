/**
 * A bulk is what a client of the WLCG Tape REST API stages under one id. Its files are in requests, one for each lifetime: whatever is asked
 * of the bulk is asked of these, by the operations that others go through.
 */
import { randomUUID } from 'node:crypto';
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { InvalidInputError, logFailure, UnknownUserError } from '../../errors.js';
import { addSeconds } from '../../time.js';
import { checkText } from '../input.js';
import { allow } from '../policy.js';
import { type BulkFileInput, wantedFiles } from '../requests/bulk-files.js';
import { createRequestOfBulk } from '../requests/create.js';
import { cancelRequest } from '../requests/ends.js';
import { bulkKeyOf } from './key.js';

/** Each lifetime is a request of its own, with a transaction of its own. */
const MOST_LIFETIMES = 100;

export interface CreateBulkInput {
  /** User whose quota is charged. */
  quota: string;
  /** At least one; of a path that is there twice the first one counts. */
  files: readonly { path: string; given: string; lifetimeSeconds: number | undefined }[];
}

/**
 * What of it cannot be had is told by its files (read.ts). A process that is killed within this leaves requests of which nobody has the id; they end
 * by their retention.
 * @returns the id of the bulk
 * @throws InvalidInputError, ForbiddenError, UnknownUserError, LimitReachedError; nothing is kept then
 */
export async function createBulk(ctx: Context, { quota, files }: CreateBulkInput): Promise<string> {
  allow(ctx, 'createRequest', checkText('quota', quota));
  const { parts, none } = partsOf(files);
  if (parts.size > MOST_LIFETIMES) {
    const problem = `must have at most ${MOST_LIFETIMES} values in a request, not ${parts.size}`;
    throw new InvalidInputError('diskLifetime', problem);
  }
  const id = randomUUID();
  const { rowCount } = await ctx.db.pool.query(
    sql`INSERT INTO bulk (id, quota_id, made_at) SELECT ${id}::uuid, q.id, ${ctx.now()}::timestamp FROM quota q
        WHERE q."user" = ${quota} AND q.removed_at IS NULL`,
  );
  if (rowCount === 0) throw new UnknownUserError(quota);
  const made: number[] = [];
  try {
    if (none.length > 0) await noteUnknown(ctx, id, none);
    for (const [lifetime, part] of parts) {
      const request = await createRequestOfBulk(
        ctx,
        {
          quota,
          files: part.map(({ path }) => path),
          label: `stage ${id}`,
          retention: lifetime === undefined ? undefined : addSeconds(ctx.now(), lifetime),
        },
        { id, files: part },
      );
      if (request !== undefined) made.push(request);
    }
  } catch (error) {
    await takeBack(ctx, id, made).catch((failure) => logFailure(ctx.log, failure, 'a bulk is not taken back', { id }));
    throw error;
  }
  return id;
}

interface Parts {
  /** By their lifetimes, in the order in which these are first named. */
  parts: Map<number | undefined, BulkFileInput[]>;
  /** What is the path of no file. */
  none: BulkFileInput[];
}

function partsOf(files: CreateBulkInput['files']): Parts {
  const parts: Parts['parts'] = new Map();
  const none: BulkFileInput[] = [];
  const known = new Set<string>();
  for (const [index, { path: wanted, given, lifetimeSeconds }] of files.entries()) {
    const path = bulkKeyOf(wanted);
    if (known.has(path)) continue;
    known.add(path);
    const part = path === wanted ? (parts.get(lifetimeSeconds) ?? []) : none;
    if (part !== none) parts.set(lifetimeSeconds, part);
    part.push({ path, given, ordinal: index + 1 });
  }
  return { parts, none };
}

/** As each file stands for itself, one that there cannot be is its own problem, and not that of the others. */
async function noteUnknown(ctx: Context, id: string, files: readonly BulkFileInput[]): Promise<void> {
  await ctx.db.pool.query(
    sql`INSERT INTO bulk_file (bulk_id, path, given, ordinal, problem)
        SELECT ${id}::uuid, l.path, l.given, l.n, 'UNKNOWN' FROM (${wantedFiles(files)}) l`,
  );
}

async function takeBack(ctx: Context, id: string, requests: readonly number[]): Promise<void> {
  for (const request of requests) await cancelRequest(ctx, request);
  await ctx.db.pool.query(sql`DELETE FROM bulk WHERE id = ${id}::uuid`);
}

/**
 * The quotas with which the caller may ask, for one who has not said which: its own where it has one, else all of them.
 * @returns undefined where it may ask with any
 */
export async function readQuotasOfCaller(ctx: Context): Promise<string[] | undefined> {
  allow(ctx, 'createRequest');
  const { acts, name } = ctx.caller;
  if (acts === 'all') return undefined;
  const { rows } = await ctx.db.pool.query<{ user: string }>(
    sql`SELECT q."user" FROM quota q WHERE q."user" = ANY(${[...acts]}::text[]) AND q.removed_at IS NULL ORDER BY q."user"`,
  );
  const users = rows.map(({ user }) => user);
  return users.includes(name) ? [name] : users;
}
