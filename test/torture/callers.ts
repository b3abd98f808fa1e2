/**
 * Who asks: users, a service and an operator with tokens, over REST and GraphQL, and whoever asks without any. Tokens are made and revoked
 * meanwhile, members and rules come and go, and somebody goes on showing tokens that were revoked.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../../src/context.js';
import { createToken } from '../../src/operations/access/tokens.js';
import { noteDeed } from './deeds.js';
import { nameDeed } from './facts.js';
import { graphql, statusOf } from './gateway.js';
import type { Random } from './random.js';
import type { World } from './world.js';

/** A token, and its id. */
export interface Shown {
  id: number;
  secret: string;
}

export interface Callers {
  /** The token that each user shows now. */
  users: Map<string, Shown>;
  /** Acts for all of them. */
  service: Shown;
  operator: Shown;
  /** With the time by the process's own clock at which it was answered that they are. */
  revoked: { token: Shown; at: number }[];
  /** What should not have been answered, or not to whom it was: sentences. */
  wrong: { kind: 'token-revived' | 'token-refused' | 'answer-internal'; text: string }[];
}

export async function createCallers(ctx: Context, users: readonly string[]): Promise<Callers> {
  const make = async (
    name: string,
    role: 'USER' | 'SERVICE' | 'OPERATOR',
    quotas?: readonly string[],
  ): Promise<Shown> => {
    const { token, secret } = await createToken(ctx, { name, role, quotas });
    return { id: token.id, secret };
  };
  const tokens = new Map<string, Shown>();
  for (const user of users) tokens.set(user, await make(user, 'USER'));
  const service = await make('portal', 'SERVICE', users);
  return { users: tokens, service, operator: await make('operator', 'OPERATOR'), revoked: [], wrong: [] };
}

/** As whom something is done for a user; undefined for nobody in particular. */
export function pickCaller({ callers }: World, random: Random, user: string): string | undefined {
  const { users, service } = callers;
  return random.pick([undefined, users.get(user)?.secret, users.get(user)?.secret, service.secret]);
}

type Made = { secret?: string; token?: { tokenId: number } };

const CREATE = `mutation ($input: CreateTokenInput!) {
  result: createToken(input: $input) { ... on CreatedToken { secret token { tokenId } } } }`;
const REVOKE = 'mutation ($id: Int!) { result: revokeToken(id: $id) { __typename } }';

/** A user gets another token, and the one before is revoked. */
export async function renewToken(world: World, random: Random): Promise<void> {
  const { callers } = world;
  const user = random.pick(world.users);
  const input = { name: user, role: 'USER' };
  const made = await graphql<Made>(world, CREATE, { input }, callers.operator.secret);
  const before = callers.users.get(user);
  if (made.secret === undefined || !made.token || !before) return;
  const { tokenId: id } = made.token;
  world.asked.set(nameDeed('createToken', id), { times: 1, confirmed: 1 });
  callers.users.set(user, { id, secret: made.secret });
  await noteDeed(world, 'revokeToken', before.id, async () => {
    const answer = await graphql<{ __typename: string }>(world, REVOKE, { id: before.id }, callers.operator.secret);
    const isDone = answer.__typename === 'Token';
    if (isDone) callers.revoked.push({ token: before, at: performance.now() });
    return isDone;
  });
}

const SET_MEMBER = 'mutation ($input: SetMemberInput!) { result: setMember(input: $input) { __typename } }';
const REMOVE_MEMBER = 'mutation ($input: RemoveMemberInput!) { result: removeMember(input: $input) { __typename } }';

export async function changeMember(world: World, random: Random): Promise<void> {
  const [quota = '', name] = random.sample(world.users, 2);
  const input = { quota, kind: 'USER', name };
  const as = random.pick([world.callers.operator, world.callers.users.get(quota)])?.secret;
  if (random.chance(0.6)) {
    await graphql(world, SET_MEMBER, { input: { ...input, isManager: random.chance(0.3) } }, as);
  } else await graphql(world, REMOVE_MEMBER, { input }, as);
}

const SET_RULE = 'mutation ($input: PathRuleInput!) { result: setPathRule(input: $input) { __typename } }';
const REMOVE_RULE = 'mutation ($input: PathRuleInput!) { result: removePathRule(input: $input) { __typename } }';

/** Who may fetch: by the other rules requests would take less, and watchers be told less, than the checker knows of. */
export async function changeRule(world: World, random: Random): Promise<void> {
  const prefix = `/data/g00${random.integer(0, 9)}`;
  const input = { prefix, action: 'FETCH', kind: 'USER', name: random.pick(world.users) };
  await graphql(world, random.chance(0.5) ? SET_RULE : REMOVE_RULE, { input }, world.callers.operator.secret);
}

/** So long after it was answered nobody is known by a revoked token any more, whatever was killed meanwhile. */
const KNOWN_MS = 5000;
const PROBE_MS = { low: 100, high: 700 };

/** Shows tokens that were revoked, and such as are good, until the signal aborts. */
export async function showTokens(world: World, random: Random, signal: AbortSignal): Promise<void> {
  const { callers } = world;
  while (!signal.aborted) {
    await sleep(random.integer(PROBE_MS.low, PROBE_MS.high), undefined, { signal }).catch(() => {}); // woken by the end
    const over = callers.revoked.filter(({ at }) => performance.now() - at > KNOWN_MS);
    // the last ones most of all: a gateway may have known them until just now
    const ended = random.pick([over.at(-1), over.length > 0 ? random.pick(over) : undefined])?.token;
    const user = random.pick(world.users);
    const good = ended ? undefined : callers.users.get(user);
    const token = ended ?? good;
    if (!token) continue;
    const status = await statusOf(world, token.secret).catch(() => undefined); // nobody is there
    if (status === undefined) continue;
    world.counts.tokensShown++;
    const text = `token ${token.id} was answered with ${status}`;
    if (ended && status === 200) callers.wrong.push({ kind: 'token-revived', text });
    if (good && status === 401 && callers.users.get(user) === good) callers.wrong.push({ kind: 'token-refused', text });
  }
}
