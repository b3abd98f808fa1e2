/** Calls of the gateway over REST and GraphQL, which may be away at any moment. */
import { sendGraphql } from '../support/graphql.js';
import { type Answer, type Gateway, send } from '../support/http.js';
import { call } from '../support/rest.js';
import { TAPE } from '../support/tape-rest.js';
import type { World } from './world.js';

const ANSWER_MS = 10_000;

function noteAnswer(world: World): void {
  const now = performance.now();
  world.counts.silenceMs = Math.max(world.counts.silenceMs, now - (world.answeredAt ?? now));
  world.answeredAt = now;
  world.counts.answered++;
}

/** As every protocol says it. */
const INTERNAL = 'Internal error';

function noteInternal({ callers }: World, what: string): void {
  callers.wrong.push({ kind: 'answer-internal', text: `${what} was answered with an internal error` });
}

/** What is no answer: the gateway, or its database, is away. */
function throwAway(world: World, what: string, { status, text }: Answer): void {
  // what may have been done, and is not confirmed, is 500 as well
  if (text.includes(INTERNAL)) noteInternal(world, what);
  if (status >= 500) throw new Error(`answered ${status}`);
}

/** A token, where one is shown. */
function show(secret: string | undefined): Record<string, string> {
  return secret === undefined ? {} : { Authorization: `Bearer ${secret}` };
}

/** What becomes of a bearer of a token. @throws where nobody answers */
export async function statusOf(world: World, secret: string): Promise<number> {
  const how = { headers: show(secret), signal: AbortSignal.timeout(ANSWER_MS) };
  return (await call(gatewayOf(world), 'GET', '/quota/ample', how)).status;
}

/** @returns undefined for what is refused with a reason */
export async function rest<T>(
  world: World,
  method: string,
  path: string,
  { body, as }: { body?: object; as?: string | undefined } = {},
): Promise<T | undefined> {
  const headers = show(as);
  const answer = await call(gatewayOf(world), method, path, { body, headers, signal: AbortSignal.timeout(ANSWER_MS) });
  throwAway(world, `${method} ${path}`, answer);
  noteAnswer(world);
  return answer.status === 200 ? (answer.body as [T])[0] : undefined;
}

/** By the WLCG Tape REST API. @returns undefined for what is refused with a reason; an answer that says nothing more is empty */
export async function tapeRest(
  world: World,
  method: string,
  path: string,
  { body, as }: { body?: object; as: string },
): Promise<unknown> {
  const headers = { ...show(as), ...(body && { 'Content-Type': 'application/json' }) };
  const signal = AbortSignal.timeout(ANSWER_MS);
  const answer = await send(gatewayOf(world), `${TAPE}${path}`, { method, headers, body, signal });
  throwAway(world, `${method} ${path}`, answer);
  noteAnswer(world);
  return answer.status < 300 ? (answer.body ?? {}) : undefined;
}

export async function graphql<T>(world: World, query: string, variables: object, as?: string): Promise<T> {
  const signal = AbortSignal.timeout(ANSWER_MS);
  const { body } = await sendGraphql({ ...gatewayOf(world), token: as }, { query, variables }, { signal });
  const told = body.errors?.find(({ message }) => message === INTERNAL);
  if (told) noteInternal(world, query);
  if (!body.data) throw new Error('answered with an error');
  noteAnswer(world);
  return (body.data as { result: T }).result;
}

function gatewayOf(world: World): Gateway {
  const url = urlOf(world);
  if (url === undefined) throw new Error('the gateway is starting');
  return { url };
}

/** Undefined while the gateway is starting. */
export function urlOf(world: World): string | undefined {
  return world.gateway.find(/ready at (\S+)/);
}
