/**
 * Users who create, extend, shorten, revive, release and cancel requests over REST and GraphQL, without waiting for
 * restores.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { addSeconds } from '../../src/core/time.js';
import { currentTime } from '../support/clock.js';
import { graphql, mutate, pickToken, recordAction, rest, urlOf } from './gateway.js';
import { pickWeighted, type Random, type Weighted } from './random.js';
import { isStaged } from './staging-systems.js';
import { watchRequest } from './watchers.js';
import type { World } from './world.js';

/** A request that a user remembers. Without `files`, the request has a pattern. */
interface Known {
  id: number;
  user: string;
  files: readonly string[] | undefined;
}

const PAUSE_MS = { low: 30, high: 500 };
const REMEMBERED = 60;
/** Fraction of requests that are watched. */
const WATCHED = 0.3;
const DAY = 24 * 3600;

/** Runs one of several users until the signal aborts. Watches continue until `watching` aborts. */
export async function makeRequests(
  world: World,
  random: Random,
  signal: AbortSignal,
  watching: AbortSignal,
): Promise<void> {
  const known: Known[] = [];
  while (!signal.aborted) {
    const request = known.length > 0 ? random.pick(known) : undefined;
    try {
      if (urlOf(world) === undefined) {
        // the gateway is starting
      } else if (!request || random.chance(0.45)) {
        const made = await makeRequest(world, random);
        if (made && random.chance(WATCHED)) watchRequest(world, made.id, watching);
        if (made) known.push(made);
        // cancel old requests: otherwise live requests would contain all files, and no recalls would remain
        for (const old of known.splice(0, known.length - REMEMBERED))
          if (random.chance(0.9)) await cancel(world, random, old);
      } else await pickWeighted(random, CHANGES)(world, random, request);
    } catch {
      world.counts.unanswered++; // the gateway or its database is down
    }
    await sleep(random.integer(PAUSE_MS.low, PAUSE_MS.high), undefined, { signal }).catch(() => {}); // aborted
  }
}

const CREATE = `mutation ($input: CreateRequestInput!) {
  result: createRequest(input: $input) { request { requestId } } }`;

async function makeRequest(world: World, random: Random): Promise<Known | undefined> {
  const user = random.pick(world.users);
  const address = () => (random.chance(0.5) ? `${user}@example.org` : undefined);
  const retention = random.chance(0.75) ? addSeconds(currentTime(), random.integer(1, 12)) : undefined;
  const [first, last] = [address(), address()];
  const files = random.chance(0.5) ? pickFiles(world, random) : undefined;
  const pattern = files ? undefined : pickPattern(world, random);
  const maxFiles = random.chance(0.2) ? random.integer(1, 30) : undefined;
  const as = pickToken(world, random, user);
  let id: number | undefined;
  if (random.chance(0.5)) {
    const body = {
      quota: user,
      retention,
      files,
      patterns: pattern,
      notify_on_first_file: first,
      notify_on_last_file: last,
    };
    id = (await rest<{ req_id: number }>(world, 'POST', '/requests', { body, as }))?.req_id;
  } else {
    const input = {
      quota: user,
      retention,
      files,
      pattern,
      maxFiles,
      notifyOnFirstFile: first,
      notifyOnLastFile: last,
    };
    id = (await graphql<{ request: { requestId: number } | null }>(world, CREATE, { input }, as)).request?.requestId;
  }
  world.counts[id === undefined ? 'rejections' : 'requests']++;
  if (id === undefined) return undefined;
  world.observed.acknowledged.add(id);
  return { id, user, files };
}

/** Picks a pattern: a directory, a number in any directory, a tree that may be archived later, or everything. */
function pickPattern({ observed, lateTrees }: World, random: Random): string {
  const path = random.pick([...observed.sources.keys()]);
  return pickWeighted(random, [
    [12, path.split('/').slice(0, -1).join('/')],
    [6, path.slice(-6)],
    [6, random.pick(['/late', ...lateTrees.map(({ prefix }) => prefix)])],
    [1, '/'],
  ]);
}

/** Picks a few files: existing files, files that are added later, and sometimes a file that never exists. */
function pickFiles(world: World, random: Random): string[] {
  const count = random.integer(1, 12);
  if (random.chance(0.6)) return pickMixed(world, random, count);
  return addUnknown(random, random.sample([...world.observed.sources.keys()], count));
}

/** Picks files, about half of them from staging libraries. */
export function pickMixed({ observed }: World, random: Random, count: number): string[] {
  const paths = [...observed.sources.keys()];
  const staged = random.sample(paths.filter(isStaged), Math.ceil(count / 2));
  const others = random.sample(
    paths.filter((path) => !isStaged(path)),
    Math.floor(count / 2),
  );
  return addUnknown(random, random.sample([...staged, ...others], count));
}

const addUnknown = (random: Random, files: string[]): string[] =>
  random.chance(0.1) ? [...files, `/never/${random.integer(1, 1000)}`] : files;

type Change = (world: World, random: Random, request: Known) => Promise<unknown>;

/** Changes of requests in any state. */
const CHANGES: Weighted<Change> = [
  [20, cancel],
  [15, (world, random, request) => setRetention(world, random, request, random.integer(1, 8))],
  [15, (world, random, request) => setRetention(world, random, request, random.integer(DAY, 3 * DAY))],
  [10, (world, random, request) => setRetention(world, random, request, -random.integer(0, DAY))],
  [10, (world, random, { id, user }) => rest(world, 'GET', `/requests/${id}`, { as: pickToken(world, random, user) })],
  [5, (world, random, { user }) => rest(world, 'GET', `/quota/${user}`, { as: pickToken(world, random, user) })],
  [15, releaseSome],
  [5, setRequestPriority],
];

async function cancel(world: World, random: Random, { id, user }: Known): Promise<void> {
  const as = pickToken(world, random, user);
  await recordAction(world, 'cancelRequest', id, () => mutate(world, 'cancelRequest', { requestId: id }, { as }));
}

/** Releases some files of a request, or files in a directory. Often no file matches, and the release is rejected. */
async function releaseSome(world: World, random: Random, { id, user, files }: Known): Promise<void> {
  const choice = files
    ? { paths: random.sample(files, random.integer(1, 3)) }
    : { match: `/g00${random.integer(0, 9)}/` };
  const as = pickToken(world, random, user);
  const send = () => mutate(world, 'releaseFiles', { requestId: id, ...choice }, { as });
  await recordAction(world, 'releaseFiles', id, send);
}

async function setRequestPriority(world: World, random: Random, { id }: Known): Promise<void> {
  await mutate(world, 'setRequestPriority', { requestId: id, priority: random.integer(-5, 5) });
}

/** Extends, shortens, ends or revives a request. */
async function setRetention(world: World, random: Random, { id, user }: Known, seconds: number): Promise<void> {
  const { revivals } = world.observed;
  const retention = addSeconds(currentTime(), seconds);
  if (seconds > 0) revivals.set(id, (revivals.get(id) ?? 0) + 1);
  const as = pickToken(world, random, user);
  const send = random.chance(0.5)
    ? async () => (await rest(world, 'PUT', `/requests/${id}`, { body: { quota: user, retention }, as })) !== undefined
    : () => mutate(world, 'updateRequest', { requestId: id, retention }, { as });
  await recordAction(world, 'updateRequest', id, send);
}
