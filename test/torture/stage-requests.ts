/**
 * Transfer tools that stage many files with one WLCG Tape REST request. The tools cancel, release and delete requests
 * in any state.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../../src/domain/context.js';
import { readStageRequest } from '../../src/domain/stage-requests/stage-requests.js';
import { tapeRest, urlOf } from './gateway.js';
import { pickWeighted, type Random, type Weighted } from './random.js';
import { pickMixed } from './users.js';
import type { World } from './world.js';

const PAUSE_MS = { low: 300, high: 2500 };
const FILES = { low: 20, high: 200 };
/** Number of stage requests that a tool remembers. The tool deletes older stage requests. */
const REMEMBERED = 5;
const LIFETIMES = ['PT4S', 'PT15S', 'P1D', undefined];

interface StageRequest {
  id: string;
  user: string;
  paths: readonly string[];
}

/** Runs one of several transfer tools until the signal aborts. */
export async function makeStageRequests(world: World, random: Random, signal: AbortSignal): Promise<void> {
  const known: StageRequest[] = [];
  while (!signal.aborted) {
    const request = known.length > 0 ? random.pick(known) : undefined;
    try {
      if (urlOf(world) === undefined) {
        // the gateway is starting
      } else if (!request || random.chance(0.3)) {
        const made = await stage(world, random);
        if (made) known.push(made);
        for (const old of known.splice(0, known.length - REMEMBERED)) await remove(world, old);
      } else await pickWeighted(random, CHANGES)(world, request, random);
    } catch {
      world.counts.unanswered++; // the gateway or its database is down
    }
    await sleep(random.integer(PAUSE_MS.low, PAUSE_MS.high), undefined, { signal }).catch(() => {}); // aborted
  }
}

const secretOf = ({ clients }: World, user: string) => (clients.users.get(user) ?? clients.service).secret;

async function stage(world: World, random: Random): Promise<StageRequest | undefined> {
  const user = random.pick(world.users);
  const paths = pickMixed(world, random, random.integer(FILES.low, FILES.high));
  const lifetimes = random.sample(LIFETIMES, random.integer(1, 3));
  const targetedMetadata = { default: { quota: user } }; // names the quota, because a service has no quota of its own
  const files = paths.map((path) => ({ path, diskLifetime: random.pick(lifetimes), targetedMetadata }));
  const as = random.pick([secretOf(world, user), world.clients.service.secret]);
  const answer = await tapeRest(world, 'POST', '/stage', { body: { files }, as });
  world.counts[answer === undefined ? 'rejections' : 'stageRequests']++;
  if (answer === undefined) return undefined;
  const { requestId: id } = answer as { requestId: string };
  world.counts.stageRequestFiles += paths.length;
  world.observed.stageRequests.add(id);
  return { id, user, paths };
}

type Change = (world: World, request: StageRequest, random: Random) => Promise<unknown>;

const CHANGES: Weighted<Change> = [
  [30, (world, { id, user }) => tapeRest(world, 'GET', `/stage/${id}`, { as: secretOf(world, user) })],
  [25, (world, request, random) => release(world, request, `/stage/${request.id}/cancel`, random)],
  [20, (world, request, random) => release(world, request, `/release/${request.id}`, random)],
  [5, (world, request, random) => release(world, request, '/release/gfal2-placeholder-id', random)],
  [10, remove],
];

/** Cancels or releases some or all files of a stage request. */
async function release(world: World, { user, paths }: StageRequest, path: string, random: Random): Promise<void> {
  const some = random.chance(0.3) ? paths : random.sample(paths, random.integer(1, 20));
  const answer = await tapeRest(world, 'POST', path, { body: { paths: some }, as: secretOf(world, user) });
  if (answer !== undefined) world.counts.stageRequestChanges++;
}

async function remove(world: World, { id, user }: StageRequest): Promise<void> {
  world.observed.stageRequests.delete(id);
  const answer = await tapeRest(world, 'DELETE', `/stage/${id}`, { as: secretOf(world, user) });
  if (answer !== undefined) world.counts.stageRequestChanges++;
}

/** Status of a stage request, as its client sees it. */
export interface StageRequestStatus {
  id: string;
  isOver: boolean;
  /** States of files, by the paths that the client sent. */
  states: Readonly<Record<string, string>>;
}

export async function readStageRequests(ctx: Context): Promise<StageRequestStatus[]> {
  const { rows } = await ctx.db.pool.query<{ id: string }>('SELECT id FROM stage_request ORDER BY id');
  const found: StageRequestStatus[] = [];
  for (const { id } of rows) {
    await readStageRequest(ctx, id, async ({ endedAt }, pages) => {
      const states: Record<string, string> = {};
      for await (const page of pages) for (const { given, state } of page) states[given] = state;
      found.push({ id, isOver: endedAt !== null, states });
    });
  }
  return found;
}
