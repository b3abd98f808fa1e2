/** Calls of the gateway over REST and GraphQL, which may be away at any moment. */
import type { World } from './world.js';

const ANSWER_MS = 10_000;

function noteAnswer(world: World): void {
  const now = performance.now();
  world.counts.silenceMs = Math.max(world.counts.silenceMs, now - (world.answeredAt ?? now));
  world.answeredAt = now;
  world.counts.answered++;
}

/** @returns undefined for what is refused with a reason */
export async function rest<T>(world: World, method: string, path: string, body?: object): Promise<T | undefined> {
  const response = await fetch(`${urlOf(world)}/tape_control/api/v1${path}`, {
    method,
    signal: AbortSignal.timeout(ANSWER_MS),
    ...(body && { body: JSON.stringify([body]) }),
  });
  const [answer] = (await response.json()) as [T];
  if (response.status >= 500) throw new Error(`answered ${response.status}`);
  noteAnswer(world);
  return response.status === 200 ? answer : undefined;
}

export async function graphql<T>(world: World, query: string, variables: object): Promise<T> {
  const response = await fetch(`${urlOf(world)}/graphql`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    signal: AbortSignal.timeout(ANSWER_MS),
    body: JSON.stringify({ query, variables }),
  });
  const { data } = (await response.json()) as { data?: { result: T } | null };
  if (!data) throw new Error('answered with an error');
  noteAnswer(world);
  return data.result;
}

/** Undefined while the gateway is starting. */
export function urlOf(world: World): string | undefined {
  return world.gateway.find(/ready at (\S+)/);
}
