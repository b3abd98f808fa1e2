/** A gateway that restarts while clients of graphql-sse watch a request. */
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'graphql-sse';
import type { Context } from '../../src/context.js';
import { createRequest } from '../../src/operations/requests/create.js';
import type { MemoryBackend } from '../../src/tape/memory.js';
import { addQuota, addTaped } from './factories.js';
import { holdReads } from './held-reads.js';
import { findFreePort } from './ports.js';
import { waitFor } from './wait.js';

const PROGRESS = `subscription ($id: Int!, $after: BigInt) {
  requestProgress(id: $id, after: $after) { state filesOnDisk eventId } }`;

interface Progress {
  state: string;
  filesOnDisk: number;
  eventId: string;
}

/** The mode of graphql-sse, and whether the client resumes after the last event. */
interface WatcherKind {
  singleConnection: boolean;
  resumes: boolean;
}

interface Watcher extends WatcherKind {
  received: Progress[];
  /** The number of events before each connection. */
  connections: number[];
  /** `complete`, or the error; undefined while the subscription is open. */
  end: string | undefined;
}

function startWatcher(url: string, id: number, kind: WatcherKind): Watcher {
  const watcher: Watcher = { ...kind, received: [], connections: [], end: undefined };
  const client = createClient({
    url: `${url}/graphql/stream`,
    singleConnection: kind.singleConnection,
    on: { connected: () => void watcher.connections.push(watcher.received.length) },
  });
  const variables: { id: number; after?: string } = kind.resumes ? { id, after: '0' } : { id };
  const next = ({ data, errors }: { data?: { requestProgress: Progress } | null; errors?: readonly Error[] }) => {
    if (!data) watcher.end = errors?.[0]?.message ?? 'no data';
    else {
      watcher.received.push(data.requestProgress);
      if (kind.resumes) variables.after = data.requestProgress.eventId;
    }
  };
  client.subscribe<{ requestProgress: Progress }>(
    { query: PROGRESS, variables },
    {
      next: next as never,
      error: (error) => {
        watcher.end ??= String(error);
      },
      complete: () => {
        watcher.end ??= 'complete';
      },
    },
  );
  return watcher;
}

export const KINDS: readonly WatcherKind[] = [true, false].flatMap((singleConnection) =>
  [true, false].map((resumes) => ({ singleConnection, resumes })),
);

interface Stoppable {
  url: string;
  stop(): Promise<unknown>;
}

interface Restart {
  watchers: Watcher[];
  /** All events of the request. */
  events: Progress[];
  /** The number of watchers that ended before the request. */
  endedEarly: number;
  files: number;
}

/** Lets clients watch a request with six files: two are read before the gateway stops, two while it is away, and two afterwards. */
export async function restartUnderWatchers(
  { ctx, backend, serve }: { ctx: Context; backend: MemoryBackend; serve(port: number): Promise<Stoppable> },
  { ofEachKind, awaySeconds, patienceMs }: { ofEachKind: number; awaySeconds: number; patienceMs: number },
): Promise<Restart> {
  const files = 6;
  const held = holdReads(backend);
  const readFiles = (...numbers: number[]) => {
    for (const n of numbers) held.open(`ROLL${n}`);
  };
  await addTaped(
    ctx,
    backend,
    Array.from({ length: files }, (_, n) => ({ path: `/roll/${n + 1}`, volume: `ROLL${n + 1}` })),
  );
  await addQuota(ctx, 'roll', 1_000_000n);
  const id = await createRequest(ctx, { quota: 'roll', pattern: '/roll/' });
  const onDisk = (count: number) =>
    waitFor(`${count} files on disk`, async () => {
      const request = await ctx.db.prisma.request.findUnique({ where: { id } });
      return request?.filesOnDisk === count;
    });
  const port = await findFreePort();
  let gateway = await serve(port);
  try {
    const watchers = KINDS.flatMap((kind) =>
      Array.from({ length: ofEachKind }, () => startWatcher(gateway.url, id, kind)),
    );
    readFiles(1, 2);
    const all = (what: string, holds: (watcher: Watcher) => boolean) =>
      waitFor(`all watchers to receive ${what}`, async () => watchers.every(holds), patienceMs);
    const hasSeen = (count: number) => (watcher: Watcher) =>
      watcher.end !== undefined || watcher.received.at(-1)?.filesOnDisk === count;
    await all('two files', hasSeen(2));
    await gateway.stop();
    readFiles(3, 4);
    await onDisk(4);
    await sleep(awaySeconds * 1000);
    gateway = await serve(port);
    await all('four files', hasSeen(4));
    const endedEarly = watchers.filter(({ end }) => end !== undefined).length;
    readFiles(5, 6);
    await all('the end', ({ end }) => end !== undefined);
    const reader = startWatcher(gateway.url, id, { singleConnection: false, resumes: true });
    await waitFor('the events', async () => reader.end !== undefined);
    return { watchers, events: reader.received, endedEarly, files };
  } finally {
    await gateway.stop();
  }
}

/** Did it receive each event once and in order? */
export function hasLostNothing({ received }: Watcher, events: readonly Progress[]): boolean {
  return JSON.stringify(received) === JSON.stringify(events);
}

/** Did it receive the current state when it reconnected, and all later events? */
export function hasCaughtUp({ received, connections }: Watcher, files: number): boolean {
  const counts = received.map(({ filesOnDisk }) => filesOnDisk);
  const isGrowing = counts.every((count, n) => n === 0 || count >= (counts[n - 1] ?? 0));
  return connections.length > 1 && counts[connections.at(-1) ?? 0] === 4 && isGrowing && counts.at(-1) === files;
}
