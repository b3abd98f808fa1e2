/** People who watch: they look for the gateway again when it goes away, and go on after the last event they have seen. */
import { setTimeout as sleep } from 'node:timers/promises';
import { follow } from '../../src/commands/client.js';
import { urlOf } from './gateway.js';
import type { World } from './world.js';

/** What one of them was told. */
export interface Watch {
  /** Undefined: the stages of all files. */
  requestId: number | undefined;
  /** Ids of events, as they came. */
  told: bigint[];
  /** The gateway has said that nothing more will come. */
  isOver: boolean;
  /** It has said so before the request had finished. */
  isCut: boolean;
}

const MAX_WATCHED = 8;
const PAUSE_MS = 200;
const FINISHED = ['COMPLETED', 'PARTIAL', 'EXPIRED', 'CANCELLED'];

const STAGES = 'subscription ($after: BigInt) { event: stageChanges(after: $after) { eventId } }';
const PROGRESS = `subscription ($id: Int!, $after: BigInt) {
  event: requestProgress(id: $id, after: $after) { eventId state } }`;

/** Watches the stages of all files from the first event on, until the signal aborts. */
export function watchStages(world: World, signal: AbortSignal): void {
  void watch(world, { query: STAGES }, signal);
}

/** Watches one request until it has finished; does nothing while many are watched. */
export function watchRequest(world: World, id: number, signal: AbortSignal): void {
  const open = world.watches.filter(({ requestId, isOver }) => requestId !== undefined && !isOver);
  if (open.length < MAX_WATCHED) void watch(world, { query: PROGRESS, id }, signal);
}

async function watch(world: World, { query, id }: { query: string; id?: number }, signal: AbortSignal): Promise<void> {
  const mine: Watch = { requestId: id, told: [], isOver: false, isCut: false };
  world.watches.push(mine);
  let state = '';
  while (!signal.aborted && !mine.isOver) {
    try {
      const after = mine.told.at(-1) ?? 0n;
      for await (const { event } of follow<Told>(urlOf(world) ?? '', query, { id, after })) {
        mine.told.push(event.eventId);
        state = event.state ?? state;
        if (signal.aborted) return;
      }
      // by what was told, so that one who is told too early that it is complete misses what follows
      mine.isOver = FINISHED.includes(state);
      mine.isCut ||= !mine.isOver;
    } catch {
      // the gateway or its database is away
    }
    await sleep(PAUSE_MS, undefined, { signal }).catch(() => {}); // woken by the end
  }
}

interface Told {
  event: { eventId: bigint; state?: string };
}
