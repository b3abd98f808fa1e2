/** Lists local changes since an adoption, for operators who return to the source system. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { placeOnDisk } from '../conditions.js';
import { digestOf, readPages } from './report.js';

export interface Change {
  kind:
    | 'quota-made'
    | 'quota-changed'
    | 'request-made'
    | 'request-changed'
    | 'request-ended'
    | 'file-restored'
    | 'copy-released';
  /** A user, a request id, or a path. */
  thing: string;
  here: Record<string, string | null>;
}

const PAGE = 1000;

export async function* listChanges(ctx: Context): AsyncGenerator<Change> {
  yield* changedQuotas(ctx);
  yield* changedRequests(ctx);
  yield* changedFiles(ctx);
}

async function* changedQuotas(ctx: Context): AsyncGenerator<Change> {
  type QuotaRow = { user: string; size: bigint; email: string; notes: string; digest: string | null };
  const { rows } = await ctx.db.pool.query<QuotaRow>(
    sql`SELECT q."user", q.size, q.email, q.notes, a.digest FROM quota q LEFT JOIN adopted a ON a.kind = 'QUOTA' AND a.id = q.id
        WHERE q.removed_at IS NULL ORDER BY q."user"`,
  );
  for (const { user, size, email, notes, digest } of rows) {
    const here = { size: String(size), email, notes };
    if (digest === null) yield { kind: 'quota-made', thing: user, here };
    else if (digest !== digestOf([here.size, email, notes])) yield { kind: 'quota-changed', thing: user, here };
  }
}

interface RequestRow {
  id: number;
  user: string;
  label: string;
  pattern: string;
  retention: string;
  first: string | null;
  last: string | null;
  state: string;
  digest: string | null;
}

async function* changedRequests(ctx: Context): AsyncGenerator<Change> {
  const pages = readPages<RequestRow>(PAGE, async (last) => {
    const { rows } = await ctx.db.pool.query<RequestRow>(
      sql`SELECT r.id, q."user", r.label, r.pattern, r.retention, r.notify_on_first_file AS first, r.notify_on_last_file AS last, r.state,
            a.digest
          FROM request r JOIN quota q ON q.id = r.quota_id LEFT JOIN adopted a ON a.kind = 'REQUEST' AND a.id = r.id
          WHERE r.id > ${last?.id ?? -1} ORDER BY r.id LIMIT ${PAGE}`,
    );
    return rows;
  });
  for await (const page of pages) {
    for (const row of page) {
      const change = await judgeRequest(ctx, row);
      if (change) yield change;
    }
  }
}

async function judgeRequest(ctx: Context, row: RequestRow): Promise<Change | undefined> {
  const { id, user, label, pattern, retention, first, last, state, digest } = row;
  const thing = String(id);
  const here = { label, retention, notify_on_first_file: first, notify_on_last_file: last };
  if (state === 'CANCELLED') return { kind: 'request-ended', thing, here: { user, ...here } };
  if (digest === null) {
    const files = pattern === '' ? await readPaths(ctx, id) : null;
    return { kind: 'request-made', thing, here: { user, patterns: pattern, files, ...here, state } };
  }
  if (digest === digestOf([label, retention, first, last])) return undefined;
  return { kind: 'request-changed', thing, here: { user, ...here } };
}

async function readPaths(ctx: Context, id: number): Promise<string> {
  const { rows } = await ctx.db.pool.query<{ path: string }>(
    sql`SELECT path FROM (
          SELECT f.path, h.ordinal FROM hold h JOIN tape_file f ON f.id = h.file_id WHERE h.request_id = ${id}
          UNION ALL SELECT a.path, a.ordinal FROM awaited_path a WHERE a.request_id = ${id}) p ORDER BY ordinal`,
  );
  return rows.map(({ path }) => path).join('\n');
}

interface FileRow {
  id: bigint;
  path: string;
  place: string | null;
  isHere: boolean;
}

async function* changedFiles(ctx: Context): AsyncGenerator<Change> {
  const pages = readPages<FileRow>(PAGE, async (last) => {
    const { rows } = await ctx.db.pool.query<FileRow>(
      sql`SELECT f.id, f.path, k.mountpoint || ${placeOnDisk} AS place, f.stage = 'RESTORED' AS "isHere"
          FROM tape_file f LEFT JOIN adopted a ON a.kind = 'COPY' AND a.id = f.id LEFT JOIN restore_disk k ON k.id = f.disk_id
          WHERE f.id > ${last?.id ?? 0n} AND (f.stage = 'RESTORED') <> (a.id IS NOT NULL) ORDER BY f.id LIMIT ${PAGE}`,
    );
    return rows;
  });
  for await (const page of pages) {
    for (const { path, place, isHere } of page) {
      yield { kind: isHere ? 'file-restored' : 'copy-released', thing: path, here: { place } };
    }
  }
}
