/**
 * Calls of the gateway over REST, GraphQL and the WLCG Tape REST API. A call throws an error if the gateway or its
 * database
 * is down.
 */
import { sendGraphql } from '../support/graphql.js';
import { type Answer, type Gateway, send } from '../support/http.js';
import { call } from '../support/rest.js';
import { TAPE } from '../support/tape-rest.js';
import { nameAction } from './facts.js';
import type { Random } from './random.js';
import type { World } from './world.js';

export interface Token {
  id: number;
  secret: string;
}

export interface Clients {
  /** Current token of each user. */
  users: Map<string, Token>;
  /** Token of a service, which may act for all users. */
  service: Token;
  operator: Token;
  /** Revoked tokens, with the time of the confirmation by `performance.now()`. */
  revoked: { token: Token; at: number }[];
}

/** A response that a correct gateway never sends. */
export interface WrongResponse {
  kind: 'token-revived' | 'token-refused' | 'answer-internal';
  text: string;
}

interface Options {
  body?: object;
  /** Secret of the token to use. */
  as?: string | undefined;
}

const RESPONSE_MS = 10_000;
/** Message of internal errors in all protocols. */
const INTERNAL = 'Internal error';

const showToken = (secret?: string) => (secret === undefined ? {} : { Authorization: `Bearer ${secret}` });

/** Returns the gateway's URL; undefined while the gateway is starting. */
export const urlOf = (world: World): string | undefined => world.gateway.find(/ready at (\S+)/);

function gatewayOf(world: World): Gateway {
  const url = urlOf(world);
  if (url === undefined) throw new Error('the gateway is starting');
  return { url };
}

/** @throws Error if the gateway or its database is down */
function recordResponse(world: World, what: string, { status, text }: Pick<Answer, 'status' | 'text'>): void {
  const { counts, observed } = world;
  if (text.includes(INTERNAL)) {
    observed.wrongResponses.push({ kind: 'answer-internal', text: `${what} returned an internal error` });
  }
  if (status >= 500) throw new Error(`returned ${status}`);
  const now = performance.now();
  counts.silenceMs = Math.max(counts.silenceMs, now - (world.answeredAt ?? now));
  world.answeredAt = now;
  counts.answered++;
}

/** Returns the status of a call with this token. */
export async function statusOf(world: World, secret: string): Promise<number> {
  const options = { headers: showToken(secret), signal: AbortSignal.timeout(RESPONSE_MS) };
  return (await call(gatewayOf(world), 'GET', '/quota/ample', options)).status;
}

/** @returns the response, or undefined if the request is rejected with a reason */
export async function rest<T>(
  world: World,
  method: string,
  path: string,
  { body, as }: Options = {},
): Promise<T | undefined> {
  const signal = AbortSignal.timeout(RESPONSE_MS);
  const answer = await call(gatewayOf(world), method, path, { body, headers: showToken(as), signal });
  recordResponse(world, `${method} ${path}`, answer);
  return answer.status === 200 ? (answer.body as [T])[0] : undefined;
}

/** @returns the response, an empty object for a response without a body, or undefined for a rejection with a reason */
export async function tapeRest(
  world: World,
  method: string,
  path: string,
  { body, as }: Options,
): Promise<object | undefined> {
  const headers = { ...showToken(as), ...(body && { 'Content-Type': 'application/json' }) };
  const signal = AbortSignal.timeout(RESPONSE_MS);
  const answer = await send(gatewayOf(world), `${TAPE}${path}`, { method, headers, body, signal });
  recordResponse(world, `${method} ${path}`, answer);
  return answer.status < 300 ? ((answer.body as object) ?? {}) : undefined;
}

export async function graphql<T>(world: World, query: string, variables: object, as?: string): Promise<T> {
  const signal = AbortSignal.timeout(RESPONSE_MS);
  const gateway = { ...gatewayOf(world), token: as };
  const { body, text } = await sendGraphql(gateway, { query, variables }, { signal });
  recordResponse(world, query, { status: body.data ? 200 : 500, text: body.errors ? text : '' });
  return (body.data as { result: T }).result;
}

/** Calls a mutation, by default with the operator's token. @returns whether the mutation succeeded */
export async function mutate(
  world: World,
  field: string,
  input: object,
  { as }: Pick<Options, 'as'> = { as: world.clients.operator.secret },
): Promise<boolean> {
  const type = `${field[0]?.toUpperCase()}${field.slice(1)}Input`;
  const query = `mutation ($input: ${type}!) { result: ${field}(input: $input) { errors { code } } }`;
  return (await graphql<{ errors: object[] }>(world, query, { input }, as)).errors.length === 0;
}

/** Picks a token for a call for this user; undefined for an anonymous call. */
export function pickToken({ clients }: World, random: Random, user: string): string | undefined {
  const own = clients.users.get(user)?.secret;
  return random.pick([undefined, own, own, clients.service.secret]);
}

/** Records an action that the audit must contain. @param send returns whether the action was confirmed */
export async function recordAction(
  { observed }: World,
  operation: string,
  id: number,
  send: () => Promise<boolean>,
): Promise<void> {
  const name = nameAction(operation, id);
  const action = observed.actions.get(name) ?? { requested: 0, confirmed: 0 };
  observed.actions.set(name, action);
  action.requested++;
  if (await send()) action.confirmed++;
}
