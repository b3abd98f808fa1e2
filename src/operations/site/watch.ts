/**
 * Watching the site: which parts of it have changed, so that whoever shows them reads them again. What is looked at are small tables, and
 * marks that grow.
 */
import type { Context } from '../../context.js';
import { type Sql, sql } from '../../database/sql.js';
import { logFailure } from '../../errors.js';
import type { EventFeed } from '../../events.js';
import { isClaimed } from '../conditions.js';
import { allow } from '../policy.js';
import { isSeen } from './processes.js';
import { type Source, Watchers } from './watchers.js';

/** What they are, for people. */
export const siteParts = {
  DRIVES: 'Drives: what they have mounted and in hand, and who holds them',
  QUEUE: 'What waits, and the plan with it',
  DISKS: 'Restore disks: their room, and what engines see there',
  SUSPENSIONS: 'What is out of service',
  LIBRARIES: 'Libraries: their settings, and whether they answer',
  PROCESSES: 'Gateways and engines: which of them live',
  HISTORY: 'Curves of what the site does',
  AUDIT: 'The audit, for operators',
} as const;

export type SitePart = keyof typeof siteParts;

const PARTS = Object.keys(siteParts) as SitePart[];

export interface SiteChange {
  at: string;
  parts: SitePart[];
}

/** Free space comes and goes all the time: it has changed where it has by 128 MiB. */
const FREE_BITS = 27;

const digest = (rows: Sql) =>
  sql`(SELECT md5(coalesce(string_agg(x::text, ',' ORDER BY x::text), '')) FROM (${rows}) x)`;

const drives = digest(
  sql`SELECT d.id, d.name, d.volume_id, d.engine_id, ${isClaimed} AS is_claimed,
        (SELECT count(*) FROM recall c WHERE c.drive_id = d.id) AS running FROM drive d`,
);
const disks = digest(
  sql`SELECT k.id, k.mountpoint, k.size, k.used, k.reserved, k.full_until,
        (SELECT string_agg(concat_ws(' ', m.host, m.free >> ${FREE_BITS}::int, m.problem), ',' ORDER BY m.host)
          FROM disk_measurement m WHERE m.disk_id = k.id) AS seen FROM restore_disk k`,
);
const suspensions = digest(sql`SELECT s.kind, s.name, s.mode, s.reason, s.retry_at FROM suspension s`);
const libraries = digest(
  sql`SELECT b.id, b.name, b.kind, b.settings, g.problem, g.read_problem FROM library b LEFT JOIN stager g ON g.library_id = b.id`,
);

const processes = digest(sql`SELECT p.id, ${isSeen} AS is_alive FROM running_process p`);

/** A text for each part, which is another one once that has changed. Whoever queues files, moves them or ends them writes events. */
const MARKS = sql`SELECT ${drives} AS "DRIVES", (SELECT max(e.id)::text FROM event_batch e) AS "QUEUE", ${disks} AS "DISKS",
  ${suspensions} AS "SUSPENSIONS", ${libraries} AS "LIBRARIES", ${processes} AS "PROCESSES",
  (SELECT concat(max(y.at), count(y.files_waiting)) FROM site_history y) AS "HISTORY",
  (SELECT max(t.id)::text FROM audit t) AS "AUDIT"`;

class SiteMarks implements Source<SitePart> {
  private readonly ctx: Context;
  private before: Record<SitePart, string> | undefined;
  private hasRung = false;

  constructor(ctx: Context) {
    this.ctx = ctx;
  }

  begin(): () => void {
    // what changes the order of the queue alone, such as a priority, writes no event
    const end = this.ctx.events.onRing('recall', () => {
      this.hasRung = true;
    });
    return () => {
      end();
      this.before = undefined;
    };
  }

  async look(): Promise<Map<SitePart, SitePart> | undefined> {
    const hasRung = this.hasRung;
    this.hasRung = false;
    const [now] = (await this.ctx.db.pool.query<Record<SitePart, string>>(MARKS)).rows;
    const { before } = this;
    this.before = now;
    if (!before || !now) return undefined;
    const changed = PARTS.filter((part) => now[part] !== before[part] || (part === 'QUEUE' && hasRung));
    return new Map(changed.map((part) => [part, part]));
  }

  onError(error: unknown): void {
    logFailure(this.ctx.log, error, 'what of the site has changed');
  }
}

const watchersOf = new WeakMap<EventFeed, Watchers<SitePart>>();

/** All parts at first, then those that have changed, about once a second at most, without end. */
export async function* watchSite(ctx: Context, signal: AbortSignal): AsyncGenerator<SiteChange> {
  allow(ctx, 'watchSite');
  const { config, db, events, refusals, checkLibrary, stagingTermsOf, log, caller, now } = ctx;
  // of nobody in particular: it goes on when this caller has gone
  const own = { config, db, events, refusals, checkLibrary, stagingTermsOf, log, caller, now };
  const watchers = watchersOf.get(events) ?? new Watchers(new SiteMarks(own));
  watchersOf.set(events, watchers);
  for await (const { items, hasMore } of watchers.watch(() => true, signal)) {
    yield { at: ctx.now(), parts: hasMore ? PARTS : items };
  }
}
