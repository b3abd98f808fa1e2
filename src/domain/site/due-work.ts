/** Finds out, with one cheap statement, when the periodic jobs of engines have work again. */

import { sql } from '../../db/sql.js';
import { isLive } from '../conditions.js';
import type { Context } from '../context.js';

/** Jobs whose next work can be read from the database. */
export const dueJobs = [
  'expire',
  'remove',
  'take over',
  'links',
  'disks',
  'new disks',
  'webhook news',
  'webhooks',
  'mail',
  'path blocks',
] as const;

export type DueJob = (typeof dueJobs)[number];

export interface DueWork {
  /**
   * Seconds until each job has work, by the estimated time of the database's clock. A job that has work now has 0 or
   * fewer seconds. A job that has no work at any known time is missing.
   */
  seconds: Map<DueJob, number>;
  /** Whether there is a live request or a recall, which might need a repair. */
  isLive: boolean;
}

export async function readDueWork(ctx: Context): Promise<DueWork> {
  const now = ctx.now();
  const rows = await ctx.db.rows<{ job: DueJob | 'live'; seconds: number }>(
    sql`SELECT t.job, CASE WHEN t.at > ${now}::timestamp THEN (extract(epoch FROM t.at) - extract(epoch FROM ${now}::timestamp))::float8 ELSE 0 END AS seconds
        FROM (VALUES
          ('expire', (SELECT min(r.retention) FROM request r WHERE ${isLive})),
          ('remove', CASE WHEN EXISTS (SELECT FROM request r WHERE NOT r.is_released)
            OR EXISTS (SELECT FROM tape_file f WHERE f.disk_id IS NOT NULL AND f.stage <> 'RESTORED') THEN ${now}::timestamp END),
          ('take over', (SELECT min(d.lease_until) FROM drive d)),
          ('links', (SELECT min(l.check_at) FROM archive_link l)),
          ('disks', (SELECT min(k.retry_at) FROM restore_disk k)),
          ('new disks', (SELECT ${now}::timestamp FROM restore_disk k WHERE k.marked_at IS NULL AND k.retry_at IS NULL LIMIT 1)),
          ('webhook news', CASE WHEN EXISTS (SELECT FROM webhook)
            AND (EXISTS (SELECT FROM event_batch b WHERE b.last_number IS NULL) OR (SELECT min(c.last) FROM webhook_cursor c)
              < (SELECT max(b.last_number) FROM event_batch b WHERE b.last_number IS NOT NULL)) THEN ${now}::timestamp END),
          ('webhooks', (SELECT min(greatest(w.next_try_at, m.next_try_at)) FROM webhook w CROSS JOIN LATERAL (
            SELECT m.next_try_at FROM webhook_message m WHERE m.webhook_id = w.id AND m.state = 'PENDING'
            ORDER BY m.next_try_at, m.id LIMIT 1) m WHERE w.disabled_at IS NULL)),
          ('live', CASE WHEN EXISTS (SELECT FROM recall) OR EXISTS (SELECT FROM request r WHERE ${isLive}) THEN ${now}::timestamp END),
          ('mail', (SELECT min(n.next_try_at) FROM notification n WHERE n.state = 'PENDING')),
          ('path blocks', (SELECT ${now}::timestamp FROM path_change LIMIT 1))
        ) t (job, at) WHERE t.at IS NOT NULL`,
  );
  return {
    seconds: new Map(rows.flatMap(({ job, seconds }) => (job === 'live' ? [] : [[job, seconds] as const]))),
    isLive: rows.some(({ job }) => job === 'live'),
  };
}
