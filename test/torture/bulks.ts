/**
 * Transfer tools: they stage many files under one id by the WLCG Tape REST API, of the drive libraries and of those that stage at once, and
 * cancel, release and remove them, whatever has become of them by then.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { tapeRest, urlOf } from './gateway.js';
import { pickMixed } from './picks.js';
import { pickWeighted, type Random } from './random.js';
import type { World } from './world.js';

const PAUSE_MS = { low: 300, high: 2500 };
/** Files of one. */
const FILES = { low: 20, high: 200 };
/** Of one tool: others are forgotten, and removed. */
const REMEMBERED = 5;
const LIFETIMES = ['PT4S', 'PT15S', 'P1D', undefined];

interface Bulk {
  id: string;
  user: string;
  paths: readonly string[];
}

/** One tool of several, until there is `peace`. */
export async function makeBulks(world: World, random: Random, peace: AbortSignal): Promise<void> {
  const known: Bulk[] = [];
  while (!peace.aborted) {
    const bulk = known.length > 0 ? random.pick(known) : undefined;
    try {
      if (urlOf(world) === undefined) {
        // the gateway is starting
      } else if (!bulk || random.chance(0.3)) {
        const made = await stage(world, random);
        if (made) known.push(made);
        for (const forgotten of known.splice(0, known.length - REMEMBERED)) await remove(world, forgotten);
      } else await pickWeighted(random, CHANGES)(world, bulk, random);
    } catch {
      world.counts.unanswered++; // the gateway or its database was away, or stood still
    }
    await sleep(random.integer(PAUSE_MS.low, PAUSE_MS.high), undefined, { signal: peace }).catch(() => {}); // woken by the end
  }
}

async function stage(world: World, random: Random): Promise<Bulk | undefined> {
  const user = random.pick(world.users);
  const paths = pickMixed(world, random, random.integer(FILES.low, FILES.high));
  const lifetimes = random.sample(LIFETIMES, random.integer(1, 3));
  // a service and an operator say whose quota it is
  const targetedMetadata = { default: { quota: user } };
  const files = paths.map((path) => ({ path, diskLifetime: random.pick(lifetimes), targetedMetadata }));
  const as = random.pick([secretOf(world, user), world.callers.service.secret]);
  const answer = await tapeRest(world, 'POST', '/stage', { body: { files }, as });
  if (answer === undefined) {
    world.counts.refusals++;
    return undefined;
  }
  const { requestId: id } = answer as { requestId: string };
  world.counts.bulks++;
  world.counts.bulkFiles += paths.length;
  world.bulks.add(id);
  return { id, user, paths };
}

type Change = (world: World, bulk: Bulk, random: Random) => Promise<unknown>;

const CHANGES: readonly (readonly [number, Change])[] = [
  [30, (world, { id, user }) => tapeRest(world, 'GET', `/stage/${id}`, { as: secretOf(world, user) })],
  [25, (world, bulk, random) => letGo(world, bulk, `/stage/${bulk.id}/cancel`, random)],
  [20, (world, bulk, random) => letGo(world, bulk, `/release/${bulk.id}`, random)],
  [5, (world, bulk, random) => letGo(world, bulk, '/release/gfal2-placeholder-id', random)],
  [10, (world, bulk) => remove(world, bulk)],
];

/** Some files, or all of them. */
async function letGo(world: World, { user, paths }: Bulk, path: string, random: Random): Promise<void> {
  const some = random.chance(0.3) ? paths : random.sample(paths, random.integer(1, 20));
  const answer = await tapeRest(world, 'POST', path, { body: { paths: some }, as: secretOf(world, user) });
  if (answer !== undefined) world.counts.bulkChanges++;
}

async function remove(world: World, { id, user }: Bulk): Promise<void> {
  world.bulks.delete(id); // before it is sent: the answer may be lost, and the change not
  const answer = await tapeRest(world, 'DELETE', `/stage/${id}`, { as: secretOf(world, user) });
  if (answer !== undefined) world.counts.bulkChanges++;
}

function secretOf({ callers }: World, user: string): string {
  return callers.users.get(user)?.secret ?? callers.service.secret;
}
