/** Tokens, members and path rules that change during the run, and a check that revoked tokens stay revoked. */
import { setTimeout as sleep } from 'node:timers/promises';
import { createToken } from '../../src/domain/access/tokens.js';
import type { Context } from '../../src/domain/context.js';
import { nameAction } from './facts.js';
import { type Clients, graphql, mutate, recordAction, statusOf } from './gateway.js';
import type { Random } from './random.js';
import type { World } from './world.js';

export async function createClients(ctx: Context, users: readonly string[]): Promise<Clients> {
  const create = async (input: Parameters<typeof createToken>[1]) => {
    const { token, secret } = await createToken(ctx, input);
    return { id: token.id, secret };
  };
  const tokens: Clients['users'] = new Map();
  for (const name of users) tokens.set(name, await create({ name, role: 'USER' }));
  const service = await create({ name: 'portal', role: 'SERVICE', quotas: users });
  return { users: tokens, service, operator: await create({ name: 'operator', role: 'OPERATOR' }), revoked: [] };
}

const CREATE = `mutation ($input: CreateTokenInput!) {
  result: createToken(input: $input) { secret token { tokenId } } }`;

/** Creates a new token for a user, and revokes the user's previous token. */
export async function renewToken(world: World, random: Random): Promise<void> {
  const { clients, observed } = world;
  const user = random.pick(world.users);
  const { secret: as } = clients.operator;
  type Created = { secret: string | null; token: { tokenId: number } | null };
  const { secret, token } = await graphql<Created>(world, CREATE, { input: { name: user, role: 'USER' } }, as);
  const before = clients.users.get(user);
  if (!secret || !token || !before) return;
  observed.actions.set(nameAction('createToken', token.tokenId), { requested: 1, confirmed: 1 });
  clients.users.set(user, { id: token.tokenId, secret });
  await recordAction(world, 'revokeToken', before.id, async () => {
    const isDone = await mutate(world, 'revokeToken', { tokenId: before.id }, { as });
    if (isDone) clients.revoked.push({ token: before, at: performance.now() });
    return isDone;
  });
}

export async function changeMember(world: World, random: Random): Promise<void> {
  const [quota = '', name] = random.sample(world.users, 2);
  const input = { quota, kind: 'USER', name };
  const as = random.pick([world.clients.operator, world.clients.users.get(quota)])?.secret;
  if (random.chance(0.6)) await mutate(world, 'setQuotaMember', { ...input, isManager: random.chance(0.3) }, { as });
  else await mutate(world, 'removeQuotaMember', input, { as });
}

/**
 * Sets or removes a path rule for the action FETCH. The checker cannot predict the effects of rules for other actions.
 */
export async function changeRule(world: World, random: Random): Promise<void> {
  const prefix = `/data/g00${random.integer(0, 9)}`;
  const input = { prefix, action: 'FETCH', kind: 'USER', name: random.pick(world.users) };
  await mutate(world, random.pick(['addPathRule', 'removePathRule']), input);
}

/** Time in which a gateway may still accept a revoked token from its cache. */
const CACHED_MS = 5000;
const PAUSE_MS = { low: 100, high: 700 };

/** Sends calls with revoked and valid tokens until the signal aborts. */
export async function checkTokens(world: World, random: Random, signal: AbortSignal): Promise<void> {
  const { clients, observed } = world;
  while (!signal.aborted) {
    await sleep(random.integer(PAUSE_MS.low, PAUSE_MS.high), undefined, { signal }).catch(() => {}); // aborted
    const expired = clients.revoked.filter(({ at }) => performance.now() - at > CACHED_MS);
    // prefer the last token, which a gateway may have accepted until now
    const revoked = random.pick([expired.at(-1), expired.length > 0 ? random.pick(expired) : undefined])?.token;
    const user = random.pick(world.users);
    const valid = revoked ? undefined : clients.users.get(user);
    const token = revoked ?? valid;
    const status = token && (await statusOf(world, token.secret).catch(() => undefined)); // the gateway is down
    if (!token || status === undefined) continue;
    world.counts.tokenChecks++;
    const text = `token ${token.id} got ${status}`;
    if (revoked && status === 200) observed.wrongResponses.push({ kind: 'token-revived', text });
    const isStillValid = valid && clients.users.get(user) === valid;
    if (isStillValid && status === 401) observed.wrongResponses.push({ kind: 'token-refused', text });
  }
}
