/** A gateway that is stopped and started again under clients of graphql-sse, while the request that they watch goes on. */
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'graphql-sse';
import type { Context } from '../../src/context.js';
import { createRequest } from '../../src/operations/requests/create.js';
import type { MemoryBackend } from '../../src/tape/memory.js';
import { addQuota, addTaped } from './factories.js';
import { holdReads } from './held-reads.js';
import { takePort } from './ports.js';
import { waitFor } from './wait.js';

const PROGRESS = `subscription ($id: Int!, $after: BigInt) {
  requestProgress(id: $id, after: $after) { state filesOnDisk eventId } }`;

interface Progress {
  state: string;
  filesOnDisk: number;
  eventId: string;
}

/** How a client watches: in which mode of graphql-sse, and whether it says what it has seen when it comes back. */
export interface WatcherKind {
  singleConnection: boolean;
  resumes: boolean;
}

export interface Watcher extends WatcherKind {
  told: Progress[];
  /** How many of them each connection began after. */
  connections: number[];
  /** `complete`, or the error that ended it; undefined while it goes on. */
  end: string | undefined;
}

/** With all settings of graphql-sse as they come. */
function startWatcher(url: string, id: number, kind: WatcherKind): Watcher {
  const watcher: Watcher = { ...kind, told: [], connections: [], end: undefined };
  const client = createClient({
    url: `${url}/graphql/stream`,
    singleConnection: kind.singleConnection,
    on: { connected: () => void watcher.connections.push(watcher.told.length) },
  });
  const variables: { id: number; after?: string } = kind.resumes ? { id, after: '0' } : { id };
  const next = ({ data, errors }: { data?: { requestProgress: Progress } | null; errors?: readonly Error[] }) => {
    if (!data) watcher.end = errors?.[0]?.message ?? 'no data';
    else {
      watcher.told.push(data.requestProgress);
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

/** A gateway that is restarted. */
interface Stoppable {
  url: string;
  stop(): Promise<unknown>;
}

export interface Restart {
  watchers: Watcher[];
  /** All events of the request, as one who was never interrupted is told them. */
  events: Progress[];
  /** Those who were told that all is over before it was. */
  endedEarly: number;
  files: number;
}

/**
 * Lets so many clients of each kind watch a request, of whose six files two are read before the gateway stops, two while
 * it is away, and two once all have come back.
 * @param place an engine on the back end, and how a gateway on its database is started at a port
 */
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
  const { port, letGo } = await takePort();
  await letGo();
  let gateway = await serve(port);
  try {
    const watchers = KINDS.flatMap((kind) =>
      Array.from({ length: ofEachKind }, () => startWatcher(gateway.url, id, kind)),
    );
    readFiles(1, 2);
    const all = (what: string, holds: (watcher: Watcher) => boolean) =>
      waitFor(`all to be told ${what}`, async () => watchers.every(holds), patienceMs);
    const hasSeen = (count: number) => (watcher: Watcher) =>
      watcher.end !== undefined || watcher.told.at(-1)?.filesOnDisk === count;
    await all('of two files', hasSeen(2));
    await gateway.stop();
    readFiles(3, 4);
    await onDisk(4);
    await sleep(awaySeconds * 1000);
    gateway = await serve(port);
    await all('of four files', hasSeen(4));
    const endedEarly = watchers.filter(({ end }) => end !== undefined).length;
    readFiles(5, 6);
    await all('that it is over', ({ end }) => end !== undefined);
    const reader = startWatcher(gateway.url, id, { singleConnection: false, resumes: true });
    await waitFor('the events', async () => reader.end !== undefined);
    return { watchers, events: reader.told, endedEarly, files };
  } finally {
    await gateway.stop();
  }
}

/** Whether it was told each event once and in order. */
export function hasLostNothing({ told }: Watcher, events: readonly Progress[]): boolean {
  return JSON.stringify(told) === JSON.stringify(events);
}

/** Whether it was told the present state when it came back, and all that was said later. */
export function hasCaughtUp({ told, connections }: Watcher, files: number): boolean {
  const counts = told.map(({ filesOnDisk }) => filesOnDisk);
  const isGrowing = counts.every((count, n) => n === 0 || count >= (counts[n - 1] ?? 0));
  return connections.length > 1 && counts[connections.at(-1) ?? 0] === 4 && isGrowing && counts.at(-1) === files;
}
