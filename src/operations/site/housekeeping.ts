/** Reports the kinds of history, their lifetimes and sizes. The jobs that delete them are in engine/runner.ts. */
import type { Context } from '../../context.js';
import { queryWithin } from '../../database/pipeline.js';
import { join, type Sql, sql } from '../../database/sql.js';
import { allow } from '../policy.js';
import { MESSAGE_DAYS } from '../webhooks/outbox.js';
import { CURVE_DAYS } from './curves.js';

/** Does not wait long for a locked table. */
const LOOK_MS = 2000;

export const keptKinds = ['REQUESTS', 'EVENTS', 'MAIL', 'AUDIT', 'WEBHOOK_MESSAGES', 'CURVES'] as const;
export type KeptKind = (typeof keptKinds)[number];

export interface Kept {
  kind: KeptKind;
  /** By the settings of this process; null if it is kept without end. */
  days: number | null;
  /** Estimated by PostgreSQL; null if there is no estimate yet. */
  rows: number | null;
  /** Of tables and indexes. */
  bytes: bigint;
  oldest: string | null;
}

const sources: Record<KeptKind, { tables: readonly string[]; oldest: Sql }> = {
  REQUESTS: {
    tables: ['request', 'hold', 'awaited_path'],
    oldest: sql`SELECT request_date FROM request ORDER BY id LIMIT 1`,
  },
  EVENTS: { tables: ['event', 'event_batch'], oldest: sql`SELECT at FROM event ORDER BY id LIMIT 1` },
  MAIL: { tables: ['notification'], oldest: sql`SELECT created_at FROM notification ORDER BY id LIMIT 1` },
  AUDIT: { tables: ['audit'], oldest: sql`SELECT at FROM audit ORDER BY at, id LIMIT 1` },
  WEBHOOK_MESSAGES: {
    tables: ['webhook_message'],
    oldest: sql`SELECT created_at FROM webhook_message ORDER BY created_at LIMIT 1`,
  },
  CURVES: {
    tables: ['site_history', 'quota_history'],
    oldest: sql`SELECT least((SELECT min(at) FROM site_history), (SELECT min(at) FROM quota_history))`,
  },
};

/** In the order of `keptKinds`. @throws UnavailableError if a table is locked */
export async function readKept(ctx: Context): Promise<Kept[]> {
  allow(ctx, 'readKept');
  const parts = keptKinds.map((kind) => {
    const { tables, oldest } = sources[kind];
    return sql`SELECT ${kind} AS kind, sum(nullif(c.reltuples, -1))::float8 AS rows, sum(pg_total_relation_size(c.oid)) AS bytes,
      (${oldest}) AS oldest FROM pg_class c WHERE c.oid = ANY(${tables.map((name) => `public.${name}`)}::text[]::regclass[])`;
  });
  const rows = await queryWithin<Omit<Kept, 'days'>>(ctx.db.pool, join(parts, ' UNION ALL '), LOOK_MS);
  const { requestDays, eventDays, auditDays } = ctx.config;
  const days = { REQUESTS: null, EVENTS: eventDays, MAIL: requestDays, AUDIT: auditDays };
  const fixed = { WEBHOOK_MESSAGES: MESSAGE_DAYS, CURVES: CURVE_DAYS };
  return rows.map((row) => ({ ...row, days: { ...days, ...fixed }[row.kind] }));
}
