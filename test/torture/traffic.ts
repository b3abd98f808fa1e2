/** Users: they make, change, extend, shorten, revive and cancel requests, over REST and GraphQL, and never wait. */
import { setTimeout as sleep } from 'node:timers/promises';
import { addSeconds } from '../../src/time.js';
import { currentTime } from '../support/clock.js';
import { pickCaller } from './callers.js';
import { cancel, changeSomehow, type Known } from './changes.js';
import { graphql, rest, urlOf } from './gateway.js';
import { pickFiles } from './picks.js';
import { pickWeighted, type Random } from './random.js';
import { watchRequest } from './watchers.js';
import type { World } from './world.js';

const PAUSE_MS = { low: 30, high: 500 };
/** Of the requests made last, those that users still think of. */
const REMEMBERED = 60;
/** Of the requests, as far as not too many are watched already. */
const WATCHED = 0.3;

/** One user of several, until there is `peace`; what the user watches is watched for longer. */
export async function makeTraffic(
  world: World,
  random: Random,
  { peace, watching }: { peace: AbortSignal; watching: AbortSignal },
): Promise<void> {
  const known: Known[] = [];
  while (!peace.aborted) {
    const request = known.length > 0 ? random.pick(known) : undefined;
    try {
      if (urlOf(world) === undefined) {
        // the gateway is starting
      } else if (!request || random.chance(0.45)) {
        const made = await makeRequest(world, random);
        for (const { id } of made) if (random.chance(WATCHED)) watchRequest(world, id, watching);
        known.push(...made);
        const forgotten = known.splice(0, known.length - REMEMBERED);
        // otherwise all files would be held in the end, and nothing be recalled any more
        for (const request of forgotten) if (random.chance(0.9)) await cancel(world, random, request);
      } else await changeSomehow(world, random, request);
    } catch {
      world.counts.unanswered++; // the gateway or its database was away, or stood still
    }
    await sleep(random.integer(PAUSE_MS.low, PAUSE_MS.high), undefined, { signal: peace }).catch(() => {}); // woken by the end
  }
}

async function makeRequest(world: World, random: Random): Promise<Known[]> {
  const user = random.pick(world.users);
  const address = () => (random.chance(0.5) ? `${user}@example.org` : undefined);
  const wish = {
    quota: user,
    retention: random.chance(0.75) ? addSeconds(currentTime(), random.integer(1, 12)) : undefined,
    first: address(),
    last: address(),
    ...(random.chance(0.5)
      ? { files: pickFiles(world, random), pattern: undefined }
      : { files: undefined, pattern: pickPattern(world, random) }),
  };
  const limit = random.chance(0.2) ? random.integer(1, 30) : undefined;
  const as = pickCaller(world, random, user);
  const id = random.chance(0.5) ? await makeByRest(world, wish, as) : await makeByGraphql(world, wish, limit, as);
  if (id === undefined) {
    world.counts.refusals++;
    return [];
  }
  world.counts.requests++;
  world.acknowledged.add(id);
  return [{ id, user, files: wish.files }];
}

interface Wish {
  quota: string;
  pattern: string | undefined;
  files: string[] | undefined;
  retention: string | undefined;
  first: string | undefined;
  last: string | undefined;
}

/** A folder, a number in any folder, a tree that may come later, or everything. */
function pickPattern(world: World, random: Random): string {
  const path = random.pick([...world.sources.keys()]);
  const parts = path.split('/');
  return pickWeighted(random, [
    [12, parts.slice(0, -1).join('/')],
    [6, path.slice(-6)],
    [6, random.pick(['/late', ...world.lateTrees.map((tree) => tree.prefix)])],
    [1, '/'],
  ]);
}

async function makeByRest(
  world: World,
  { pattern, first, last, ...wish }: Wish,
  as: string | undefined,
): Promise<number | undefined> {
  const body = { ...wish, patterns: pattern, notify_on_first_file: first, notify_on_last_file: last };
  const answer = await rest<{ req_id: number }>(world, 'POST', '/requests', { body, as });
  return answer?.req_id;
}

const CREATE = `mutation ($input: CreateRequestInput!) {
  result: createRequest(input: $input) { ... on Request { requestId } } }`;

async function makeByGraphql(
  world: World,
  { first, last, ...wish }: Wish,
  maxFiles: number | undefined,
  as: string | undefined,
): Promise<number | undefined> {
  const input = { ...wish, maxFiles, notifyOnFirstFile: first, notifyOnLastFile: last };
  const result = await graphql<{ requestId?: number }>(world, CREATE, { input }, as);
  return result.requestId;
}
