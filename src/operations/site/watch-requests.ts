/**
 * Watching the requests that a caller may see: which of them were made, changed or ended, so that lists of requests are live. How far each
 * one is, is told by watchRequest. One reader of the events for all who watch at a gateway, and one look a second for whose they are.
 */
import { hasQuota } from '../../caller.js';
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { logFailure } from '../../errors.js';
import { type AnyEvent, isStageEvent, type ProgressEvent } from '../../event-table.js';
import type { EventFeed } from '../../events.js';
import type { RequestState } from '../../generated/prisma/enums.js';
import { allow } from '../policy.js';
import { type Source, type Told, Watchers } from './watchers.js';

export interface RequestChange {
  requestId: number;
  /** Whose quota it is charged to. */
  quota: string;
  state: RequestState;
}

export interface RequestChanges extends Told<RequestChange> {
  at: string;
}

/** Requests in one look; of more it is only told that there are more. */
const MOST = 1000;
/** Requests that are remembered as they were: what is told of any other is taken for a change. */
const MOST_KNOWN = 10_000;

type Figures = Pick<ProgressEvent, 'state' | 'filesTotal' | 'filesOnDisk' | 'filesFailed'>;

const filter = {
  accepts: (event: AnyEvent): event is ProgressEvent => !isStageEvent(event),
  condition: sql`e.request_id IS NOT NULL`,
};

class ChangedRequests implements Source<RequestChange> {
  private readonly ctx: Pick<Context, 'db' | 'events' | 'log'>;
  private readonly known = new Map<number, Figures>();
  private changed = new Set<number>();
  private following: Promise<void> | undefined;
  private stop = new AbortController();

  constructor(ctx: Pick<Context, 'db' | 'events' | 'log'>) {
    this.ctx = ctx;
  }

  begin(): () => void {
    this.stop = new AbortController();
    return () => {
      this.stop.abort();
      this.following = undefined;
      this.known.clear();
      this.changed.clear();
    };
  }

  async look(): Promise<Map<number, RequestChange> | undefined> {
    if (!this.following) {
      const newest = await this.ctx.events.newestId();
      this.following = this.follow(newest, this.stop.signal);
      this.changed.clear();
      return undefined;
    }
    const ids = [...this.changed];
    this.changed.clear();
    if (ids.length === 0) return new Map();
    if (ids.length > MOST) return undefined;
    const { rows } = await this.ctx.db.pool.query<RequestChange>(
      sql`SELECT r.id AS "requestId", q."user" AS quota, r.state FROM request r JOIN quota q ON q.id = r.quota_id WHERE r.id = ANY(${ids}::int[])`,
    );
    return new Map(rows.map((row) => [row.requestId, row]));
  }

  /** What was gathered is lost with it, so that all is to be read anew. */
  onError(error: unknown): void {
    logFailure(this.ctx.log, error, 'which requests have changed');
    this.stop.abort();
    this.begin();
    this.following = undefined;
  }

  private async follow(newest: bigint, signal: AbortSignal): Promise<void> {
    try {
      for await (const event of this.ctx.events.follow(newest, filter, signal)) this.note(event);
    } catch (error) {
      if (!signal.aborted) this.onError(error);
    }
  }

  /** That more files of it are there, or have failed, is no change of the request; an event that tells nothing new of these is of one. */
  private note(event: ProgressEvent): void {
    const { requestId, state, filesTotal, filesOnDisk, filesFailed } = event;
    const before = this.known.get(requestId);
    this.known.delete(requestId);
    this.known.set(requestId, { state, filesTotal, filesOnDisk, filesFailed });
    const oldest = this.known.size > MOST_KNOWN ? this.known.keys().next().value : undefined;
    if (oldest !== undefined) this.known.delete(oldest);
    const isSame = before?.state === state && before.filesTotal === filesTotal;
    const isFurther = before?.filesOnDisk !== filesOnDisk || before?.filesFailed !== filesFailed;
    if (isSame && isFurther) return;
    if (this.changed.size <= MOST) this.changed.add(requestId);
  }
}

const watchersOf = new WeakMap<EventFeed, Watchers<RequestChange>>();

/** At first that there may be more, then what was made, changed or has ended, about once a second at most, without end. */
export async function* watchRequests(ctx: Context, signal: AbortSignal): AsyncGenerator<RequestChanges> {
  allow(ctx, 'watchRequests');
  const { db, events, log } = ctx;
  const watchers = watchersOf.get(events) ?? new Watchers(new ChangedRequests({ db, events, log }));
  watchersOf.set(events, watchers);
  const isVisible = ({ quota }: RequestChange) => hasQuota(ctx.caller.reads, quota);
  for await (const told of watchers.watch(isVisible, signal)) yield { ...told, at: ctx.now() };
}
