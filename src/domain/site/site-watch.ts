/**
 * Watches the site and a caller's requests, so that a client refreshes only the changed parts of its view. All watchers
 * of a gateway share one check per second. If a client reads slowly, it gets several changes in a single message.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { hasQuota } from '../../core/caller.js';
import { logFailure } from '../../core/errors.js';
import { type Sql, sql } from '../../db/sql.js';
import type { EventFeed } from '../../events/events.js';
import type { RequestState } from '../../generated/prisma/enums.js';
import { isManned } from '../conditions.js';
import type { Context } from '../context.js';
import { allow } from '../policy.js';
import { isSeen } from './processes.js';

const EVERY_MS = 1000;
/** The pause after a slow check is this number of times as long as the check. */
const REST_FACTOR = 10;
/** Maximum number of pending changes for a slow watcher. A watcher with more changes must read everything again. */
const MAX_PENDING = 1000;

interface MarkSource<Item> {
  /**
   * Returns the changes since the last check, by key. Returns undefined if the source does not know the changes, for
   * example in the first check.
   */
  check(): Promise<ReadonlyMap<string | number, Item> | undefined>;
  onError(error: unknown): void;
  end?(): void;
}

interface Changes<Item> {
  items: Item[];
  /** Whether items that are not listed in `items` might also have changed. Always true in a watcher's first value. */
  hasMore: boolean;
}

interface Watcher<Item> {
  pending: Map<string | number, Item>;
  hasMore: boolean;
  wake(): void;
}

class Watchers<Item> {
  private readonly open: () => MarkSource<Item>;
  private readonly watchers = new Set<Watcher<Item>>();
  private isRunning = false;
  private hasChecked = false;

  /** @param open function that opens the source of changes, called when the first watcher starts */
  constructor(open: () => MarkSource<Item>) {
    this.open = open;
  }

  /** Yields changes. A client must read everything after it receives the first value, so that it misses no change. */
  async *watch(isFor: (item: Item) => boolean, signal: AbortSignal): AsyncGenerator<Changes<Item>> {
    const watcher: Watcher<Item> = { pending: new Map(), hasMore: this.hasChecked, wake: () => {} };
    this.watchers.add(watcher);
    if (!this.isRunning) void this.run();
    const wake = () => watcher.wake();
    signal.addEventListener('abort', wake);
    try {
      while (!signal.aborted) {
        const changes = { items: [...watcher.pending.values()].filter(isFor), hasMore: watcher.hasMore };
        watcher.pending.clear();
        watcher.hasMore = false;
        if (changes.hasMore || changes.items.length > 0) {
          yield changes;
          continue;
        }
        await new Promise<void>((resolve) => {
          watcher.wake = resolve;
        });
      }
    } finally {
      signal.removeEventListener('abort', wake);
      this.watchers.delete(watcher);
    }
  }

  private async run(): Promise<void> {
    this.isRunning = true;
    const source = this.open();
    while (this.watchers.size > 0) {
      const startedAt = performance.now();
      try {
        this.deliver(await source.check());
        this.hasChecked = true;
      } catch (error) {
        source.onError(error);
      }
      const tookMs = performance.now() - startedAt;
      await sleep(Math.max(EVERY_MS, tookMs * REST_FACTOR), undefined, { ref: false });
    }
    this.hasChecked = false;
    this.isRunning = false;
    source.end?.();
  }

  private deliver(changed: ReadonlyMap<string | number, Item> | undefined): void {
    for (const watcher of this.watchers) {
      for (const [key, item] of changed ?? []) watcher.pending.set(key, item);
      if (!changed || watcher.pending.size > MAX_PENDING) {
        watcher.pending.clear();
        watcher.hasMore = true;
      }
      if (watcher.hasMore || watcher.pending.size > 0) watcher.wake();
    }
  }
}

export const siteParts = {
  DRIVES: 'Drives: mounted volumes, active recalls and engines',
  QUEUE: 'Waiting recalls, and the order in which drives will read them',
  DISKS: 'Restore disks, and their free space as measured by the engines',
  SUSPENSIONS: 'Suspensions',
  LIBRARIES: 'Libraries: their settings and availability',
  PROCESSES: 'Running gateways and engines',
  HISTORY: "Charts of the site's activity",
  AUDIT: 'The audit log. Operators only',
} as const;

export type SitePart = keyof typeof siteParts;

const PARTS = Object.keys(siteParts) as SitePart[];

export interface SiteChange {
  at: string;
  parts: SitePart[];
}

/** Free disk space changes constantly, so it is rounded down to a multiple of 128 MiB (2^27 bytes). */
const FREE_BITS = 27;

const digest = (rows: Sql) =>
  sql`(SELECT md5(coalesce(string_agg(x::text, ',' ORDER BY x::text), '')) FROM (${rows}) x)`;

const drives = digest(
  sql`SELECT d.id, d.name, d.volume_id, d.engine_id, ${isManned} AS is_claimed,
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

/**
 * Selects one value for each part of the site, such as the drives or the queue. The value is different after each
 * change of the part.
 */
const MARKS = sql`SELECT ${drives} AS "DRIVES", (SELECT max(e.id)::text FROM event_batch e) AS "QUEUE", ${disks} AS "DISKS",
  ${suspensions} AS "SUSPENSIONS", ${libraries} AS "LIBRARIES", ${processes} AS "PROCESSES",
  (SELECT concat(max(y.at), count(y.files_waiting)) FROM site_history y) AS "HISTORY",
  (SELECT max(t.id)::text FROM audit t) AS "AUDIT"`;

function createSiteMarks(ctx: Context): MarkSource<SitePart> {
  let before: Record<SitePart, string> | undefined;
  let isNotified = false;
  // listen for a notification, because a priority change affects the queue's order but does not write an event
  const end = ctx.events.onNotify('recall', () => {
    isNotified = true;
  });
  return {
    end,
    check: async () => {
      const isQueueChanged = isNotified;
      isNotified = false;
      const [now] = (await ctx.db.pool.query<Record<SitePart, string>>(MARKS)).rows;
      const last = before;
      before = now;
      if (!last || !now) return undefined;
      const changed = PARTS.filter((part) => now[part] !== last[part] || (part === 'QUEUE' && isQueueChanged));
      return new Map(changed.map((part) => [part, part]));
    },
    onError: (error) => logFailure(ctx.log, error, 'cannot read site changes'),
  };
}

const siteWatchers = new WeakMap<EventFeed, Watchers<SitePart>>();

/**
 * Yields the names of all parts of the site. Then yields the names of changed parts, about once a second, until the
 * caller stops.
 */
export async function* watchSite(ctx: Context, signal: AbortSignal): AsyncGenerator<SiteChange> {
  allow(ctx, 'watchSite');
  const { config, db, events, refusals, checkLibrary, stagingTermsOf, copies, recordMissing, log, caller, now } = ctx;
  // do not keep a reference to the caller's signal, because the checks continue after the caller has disconnected
  const own = { config, db, events, refusals, checkLibrary, stagingTermsOf, copies, recordMissing, log, caller, now };
  const watchers = siteWatchers.get(events) ?? new Watchers(() => createSiteMarks(own));
  siteWatchers.set(events, watchers);
  for await (const { items, hasMore } of watchers.watch(() => true, signal)) {
    yield { at: ctx.now(), parts: hasMore ? PARTS : items };
  }
}

export interface RequestChange {
  requestId: number;
  quota: string;
  state: RequestState;
}

export interface RequestChanges extends Changes<RequestChange> {
  at: string;
}

const MOST = 1000;

const changedRequests = (after: bigint, upTo: bigint): Sql => sql`
  SELECT DISTINCT r.id AS "requestId", q."user" AS quota, r.state FROM event_batch b
    JOIN event e ON e.batch_id = b.id AND e.id BETWEEN b.first_id AND b.last_id
    JOIN request r ON r.id = e.request_id JOIN quota q ON q.id = r.quota_id
    LEFT JOIN LATERAL (SELECT * FROM event o WHERE o.request_id = e.request_id AND o.id < e.id ORDER BY o.id DESC LIMIT 1) o ON true
  WHERE b.last_number > ${after} AND b.first_number <= ${upTo} AND NOT b.is_pruned
    AND ((o.state, o.files_total) IS DISTINCT FROM (e.state, e.files_total)
      OR (o.files_on_disk, o.files_failed) = (e.files_on_disk, e.files_failed))
  LIMIT ${MOST + 1}`;

function createRequestMarks(ctx: Pick<Context, 'db' | 'events' | 'log'>): MarkSource<RequestChange> {
  let last: bigint | undefined;
  return {
    check: async () => {
      const [after, newest] = [last, await ctx.events.newestId()];
      if (after === newest) return new Map();
      const { rows } =
        after === undefined ? {} : await ctx.db.pool.query<RequestChange>(changedRequests(after, newest));
      last = newest;
      return rows && rows.length <= MOST ? new Map(rows.map((row) => [row.requestId, row])) : undefined;
    },
    onError: (error) => {
      last = undefined; // the range of event ids since the last check might be too large to read, so make all watchers read everything again
      logFailure(ctx.log, error, 'cannot read the changed requests');
    },
  };
}

const requestWatchers = new WeakMap<EventFeed, Watchers<RequestChange>>();

/** Yields the requests that were created, changed or ended, about once a second, until the caller stops. */
export async function* watchRequests(ctx: Context, signal: AbortSignal): AsyncGenerator<RequestChanges> {
  allow(ctx, 'watchRequests');
  const { db, events, log } = ctx;
  const watchers = requestWatchers.get(events) ?? new Watchers(() => createRequestMarks({ db, events, log }));
  requestWatchers.set(events, watchers);
  const isVisible = ({ quota }: RequestChange) => hasQuota(ctx.caller.reads, quota);
  for await (const changes of watchers.watch(isVisible, signal)) yield { ...changes, at: ctx.now() };
}
