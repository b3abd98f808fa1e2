/** Why a request that is watched does not go on, as the plan knows it. */

import { setTimeout as sleep } from 'node:timers/promises';
import { plural } from '../plural.js';
import { ask, type Page } from './client.js';
import { CommandError } from './failure.js';
import type { EndRange } from './times.js';

/** What the plan says of a request that waits. */
export interface WaitingView {
  /** When it says so, by the server's clock. */
  at: string;
  /** A drive reads some of it. */
  isReading: boolean;
  /** When it will be done; null when that cannot be told. */
  end: EndRange | null;
  /** What keeps it, for people. */
  reason: string | undefined;
}

interface PartNode {
  volume: string | null;
  reason: string;
  explanation: string;
  files: number;
}

interface Parts {
  at: string;
  end: EndRange | null;
  parts: Page<PartNode>;
}

/** Reasons that pass by themselves as the drives go on. */
const GOING = ['READING', 'MOUNTED', 'QUEUED'];

const WAITING = `query ($id: Int!) { request(id: $id) { waiting {
  at end { earliest planned latest } parts(first: 100) { edges { node { volume reason explanation files } } pageInfo { hasNextPage endCursor } }
} } }`;

/** Asked so often: reading the plan looks at the whole queue. */
const PAUSE_MS = 5000;

/** Tells what the plan says, again and again until the signal aborts. A server that does not answer is told nothing of. */
export async function followWaiting(
  url: string,
  id: number,
  { signal, tell }: { signal: AbortSignal; tell: (view: WaitingView | undefined) => void },
): Promise<void> {
  while (!signal.aborted) {
    const view = await readWaiting(url, id).catch((error: unknown) => {
      if (error instanceof CommandError) return undefined;
      throw error;
    });
    if (!signal.aborted) tell(view);
    await sleep(PAUSE_MS, undefined, { signal }).catch(() => {}); // woken by the end
  }
}

async function readWaiting(url: string, id: number): Promise<WaitingView | undefined> {
  const waiting = await readParts(url, id);
  if (!waiting) return undefined;
  const { at, end, parts } = waiting;
  const nodes = parts.edges.map(({ node }) => node);
  const kept = nodes.find(({ reason }) => !GOING.includes(reason)) ?? nodes[0];
  const volume = kept?.volume ? `${kept.volume}: ` : '';
  return {
    at,
    isReading: nodes.some(({ reason }) => reason === 'READING'),
    end,
    reason: kept && `${volume}${kept.explanation}`,
  };
}

async function readParts(url: string, id: number): Promise<Parts | undefined> {
  type Answer = { request: { waiting: Parts | null } | null };
  const { request } = await ask<Answer>(url, WAITING, { id });
  return request?.waiting ?? undefined;
}

/** Reasons that nothing tells of that is known of a file alone. */
const OF_ALL = ['NO_DRIVE', 'NO_PLACE'];

/** Why files of a request wait without having been tried: each reason once, with how many files wait for it. */
export async function readReasons(url: string, id: number): Promise<string[]> {
  const nodes = (await readParts(url, id))?.parts.edges.map(({ node }) => node) ?? [];
  const files = new Map<string, number>();
  for (const part of nodes) {
    if (OF_ALL.includes(part.reason)) files.set(part.explanation, (files.get(part.explanation) ?? 0) + part.files);
  }
  return [...files].map(([explanation, count]) => `${explanation} (${plural(count, 'file')})`);
}
