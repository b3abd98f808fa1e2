/** What users and operators do with requests that are there. */
import { addSeconds } from '../../src/time.js';
import { currentTime } from '../support/clock.js';
import { nameDeed } from './facts.js';
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

export async function cancel(world: World, { id }: Known): Promise<void> {
  await noteDeed(world, 'cancelRequest', id, () => change(world, CANCEL, { id }));
}

/** Before it is sent: the answer may be lost, and the change not. @param send gives whether it was confirmed */
async function noteDeed(world: World, operation: string, id: number, send: () => Promise<boolean>): Promise<void> {
  const name = nameDeed(operation, id);
  const deed = world.asked.get(name) ?? { times: 0, confirmed: 0 };
  world.asked.set(name, deed);
  deed.times++;
  if (await send()) deed.confirmed++;
}

/** @returns false for what is refused with a reason */
async function change(world: World, mutation: string, variables: object): Promise<boolean> {
  return (await graphql<{ __typename: string }>(world, mutation, variables)).__typename === 'Request';
}

type Change = (world: World, random: Random, request: Known) => Promise<unknown>;

const CHANGES: readonly (readonly [number, Change])[] = [
  [20, (world, _random, request) => cancel(world, request)],
  [15, (world, random, request) => retain(world, random, request, random.integer(1, 8))],
  [15, (world, random, request) => retain(world, random, request, random.integer(DAY, 3 * DAY))],
  [10, (world, random, request) => retain(world, random, request, -random.integer(0, DAY))],
  [10, (world, _random, { id }) => rest(world, 'GET', `/requests/${id}`)],
  [5, (world, _random, { user }) => rest(world, 'GET', `/quota/${user}`)],
  [15, releaseSome],
  [5, (world, random, { id }) => graphql(world, PRIORITY, { id, priority: random.integer(-5, 5) })],
];

const UPDATE = 'mutation ($input: UpdateRequestInput!) { result: updateRequest(input: $input) { __typename } }';
const CANCEL = 'mutation ($id: Int!) { result: cancelRequest(id: $id) { __typename } }';
const RELEASE = 'mutation ($input: ReleaseFilesInput!) { result: releaseFiles(input: $input) { __typename } }';
const PRIORITY =
  'mutation ($id: Int!, $priority: Int!) { result: setPriority(id: $id, priority: $priority) { __typename } }';

/** Some of its files, or those in a folder of many trees; often there is no such file, which is refused. */
async function releaseSome(world: World, random: Random, { id, files }: Known): Promise<void> {
  const choice = files
    ? { paths: random.sample(files, random.integer(1, 3)) }
    : { match: `/g00${random.integer(0, 9)}/` };
  await noteDeed(world, 'releaseFiles', id, () => change(world, RELEASE, { input: { id, ...choice } }));
}

/** Extends, shortens, ends or revives a request, whatever it is now. */
async function retain(world: World, random: Random, { id, user }: Known, seconds: number): Promise<void> {
  const retention = addSeconds(currentTime(), seconds);
  // before it is sent: the answer may be lost, and the change not
  if (seconds > 0) world.revivals.set(id, (world.revivals.get(id) ?? 0) + 1);
  const send = random.chance(0.5)
    ? async () => (await rest(world, 'PUT', `/requests/${id}`, { quota: user, retention })) !== undefined
    : () => change(world, UPDATE, { input: { id, retention } });
  await noteDeed(world, 'updateRequest', id, send);
}
