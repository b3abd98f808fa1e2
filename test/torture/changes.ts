/** What users and operators do with requests that are there. */
import { addSeconds } from '../../src/time.js';
import { currentTime } from '../support/clock.js';
import { pickCaller } from './callers.js';
import { noteDeed } from './deeds.js';
import { graphql, rest } from './gateway.js';
import { pickWeighted, type Random } from './random.js';
import type { World } from './world.js';

/** A request that a user still thinks of. */
export interface Known {
  id: number;
  user: string;
  /** Undefined: it has a pattern. */
  files: readonly string[] | undefined;
}

const DAY = 24 * 3600;

/** Whatever the request is now. */
export async function changeSomehow(world: World, random: Random, request: Known): Promise<void> {
  await pickWeighted(random, CHANGES)(world, random, request);
}

export async function cancel(world: World, random: Random, { id, user }: Known): Promise<void> {
  const as = pickCaller(world, random, user);
  await noteDeed(world, 'cancelRequest', id, () => change(world, CANCEL, { id }, as));
}

/** @returns false for what is refused with a reason */
async function change(world: World, mutation: string, variables: object, as: string | undefined): Promise<boolean> {
  return (await graphql<{ __typename: string }>(world, mutation, variables, as)).__typename === 'Request';
}

type Change = (world: World, random: Random, request: Known) => Promise<unknown>;

const CHANGES: readonly (readonly [number, Change])[] = [
  [20, cancel],
  [15, (world, random, request) => retain(world, random, request, random.integer(1, 8))],
  [15, (world, random, request) => retain(world, random, request, random.integer(DAY, 3 * DAY))],
  [10, (world, random, request) => retain(world, random, request, -random.integer(0, DAY))],
  [10, (world, random, { id, user }) => rest(world, 'GET', `/requests/${id}`, { as: pickCaller(world, random, user) })],
  [5, (world, random, { user }) => rest(world, 'GET', `/quota/${user}`, { as: pickCaller(world, random, user) })],
  [15, releaseSome],
  [5, (world, random, { id }) => setPriority(world, random, id)],
];

const UPDATE = 'mutation ($input: UpdateRequestInput!) { result: updateRequest(input: $input) { __typename } }';
const CANCEL = 'mutation ($id: Int!) { result: cancelRequest(id: $id) { __typename } }';
const RELEASE = 'mutation ($input: ReleaseFilesInput!) { result: releaseFiles(input: $input) { __typename } }';
const PRIORITY =
  'mutation ($id: Int!, $priority: Int!) { result: setPriority(id: $id, priority: $priority) { __typename } }';

/** Operators alone may. */
async function setPriority(world: World, random: Random, id: number): Promise<void> {
  await graphql(world, PRIORITY, { id, priority: random.integer(-5, 5) }, world.callers.operator.secret);
}

/** Some of its files, or those in a folder of many trees; often there is no such file, which is refused. */
async function releaseSome(world: World, random: Random, { id, user, files }: Known): Promise<void> {
  const choice = files
    ? { paths: random.sample(files, random.integer(1, 3)) }
    : { match: `/g00${random.integer(0, 9)}/` };
  const as = pickCaller(world, random, user);
  await noteDeed(world, 'releaseFiles', id, () => change(world, RELEASE, { input: { id, ...choice } }, as));
}

/** Extends, shortens, ends or revives a request, whatever it is now. */
async function retain(world: World, random: Random, { id, user }: Known, seconds: number): Promise<void> {
  const retention = addSeconds(currentTime(), seconds);
  // before it is sent: the answer may be lost, and the change not
  if (seconds > 0) world.revivals.set(id, (world.revivals.get(id) ?? 0) + 1);
  const as = pickCaller(world, random, user);
  const send = random.chance(0.5)
    ? async () => (await rest(world, 'PUT', `/requests/${id}`, { body: { quota: user, retention }, as })) !== undefined
    : () => change(world, UPDATE, { input: { id, retention } }, as);
  await noteDeed(world, 'updateRequest', id, send);
}
