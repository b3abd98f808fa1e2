/**
 * Clients that watch requests and files. The clients reconnect when the gateway is down, and resume after the last
 * received event.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { follow } from '../../src/cli/connection/gateway-client.js';
import { TypedDocumentString } from '../../src/generated/operations.js';
import { urlOf } from './gateway.js';
import type { World } from './world.js';

export interface Watch {
  /** Id of the watched request; undefined for a watch of all files. */
  requestId: number | undefined;
  /** Numbers of received events, in order. */
  received: bigint[];
  /** Whether the gateway has completed the watch after the request finished. */
  isOver: boolean;
  /** Whether the gateway has completed the watch before the request finished. */
  isCut: boolean;
}

const MAX_WATCHED = 8;
const RECONNECT_MS = 200;
const FINISHED = ['COMPLETED', 'PARTIAL', 'EXPIRED', 'CANCELLED'];

const STAGES = 'subscription ($after: BigInt) { event: stageChanges(after: $after) { eventId } }';
const PROGRESS = `subscription ($id: Int!, $after: BigInt) {
  event: requestProgress(requestId: $id, after: $after) { eventId state } }`;

export function watchStages(world: World, signal: AbortSignal): void {
  void watch(world, STAGES, undefined, signal);
}

/** Watches a request until the request has finished, unless there are already MAX_WATCHED open watches. */
export function watchRequest(world: World, id: number, signal: AbortSignal): void {
  const open = world.observed.watches.filter(({ requestId, isOver }) => requestId !== undefined && !isOver);
  if (open.length < MAX_WATCHED) void watch(world, PROGRESS, id, signal);
}

async function watch(world: World, query: string, id: number | undefined, signal: AbortSignal): Promise<void> {
  const watched: Watch = { requestId: id, received: [], isOver: false, isCut: false };
  world.observed.watches.push(watched);
  let state = '';
  while (!signal.aborted && !watched.isOver) {
    try {
      const after = watched.received.at(-1) ?? 0n;
      type Data = { event: { eventId: bigint; state?: string } };
      const document = new TypedDocumentString<Data, object>(query);
      for await (const { event } of follow(urlOf(world) ?? '', document, { id, after })) {
        watched.received.push(event.eventId);
        state = event.state ?? state;
        if (signal.aborted) return;
      }
      // decide by the received state, because a watch that is completed too early misses events
      watched.isOver = FINISHED.includes(state);
      watched.isCut ||= !watched.isOver;
    } catch {
      // the gateway or its database is down
    }
    await sleep(RECONNECT_MS, undefined, { signal }).catch(() => {}); // aborted
  }
}
