/**
 * The torture: a small archive with several engines, a gateway, a database and a mail server, all of which are killed,
 * stopped and starved while users make requests; then peace, and the checker.
 */
import { rmSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { createRandom } from './random.js';
import { setUp } from './set-up.js';
import { calmDown, settleAndCheck, type Verdict } from './settle.js';
import { makeTraffic } from './traffic.js';
import { makeTrouble } from './trouble.js';
import type { Counts } from './world.js';

export interface TortureOptions {
  seed: number;
  /** Ends the trouble. */
  kills: number;
  /** Bounds for the trouble, and for the settling after it. */
  troubleMs: number;
  settleMs: number;
  /** Of the archive: files that are there from the beginning, and their greatest size. */
  files: number;
  maxBytes: number;
  /** Gives the whole up. */
  signal: AbortSignal;
}

export interface TortureResult extends Verdict {
  counts: Counts;
  /** Kept when there are violations. */
  dir: string;
}

const USERS_AT_ONCE = 5;
const PROGRESS_MS = 30_000;

/** @param tell is given a line for people now and then */
export async function runTorture(options: TortureOptions, tell: (line: string) => void): Promise<TortureResult> {
  const random = createRandom(options.seed);
  const { world, dir, tearDown } = await setUp(random.fork(), options);
  const progress = setInterval(() => tell(describe(world.counts)), PROGRESS_MS);
  let isContent = false;
  try {
    const done = new AbortController();
    const peace = AbortSignal.any([done.signal, options.signal, AbortSignal.timeout(options.troubleMs)]);
    const traffic = Array.from({ length: USERS_AT_ONCE }, () => makeTraffic(world, random.fork(), peace));
    await makeTrouble(world, random.fork(), { kills: options.kills, signal: peace });
    done.abort();
    await Promise.all(traffic);
    tell(`${describe(world.counts)}; now waiting for peace`);
    await calmDown(world);
    const bound = AbortSignal.any([options.signal, AbortSignal.timeout(options.settleMs)]);
    const verdict = await settleAndCheck(world, bound);
    isContent = verdict.violations.length === 0;
    if (!isContent) await dump(dir, verdict);
    return { ...verdict, counts: world.counts, dir };
  } finally {
    clearInterval(progress);
    await tearDown();
    if (isContent) rmSync(dir, { recursive: true, force: true });
  }
}

/** For whoever looks for the cause. */
async function dump(dir: string, { facts, violations }: Verdict): Promise<void> {
  const { outside, ...stored } = facts;
  const plain = {
    violations,
    ...stored,
    mails: outside.mails,
    touched: [...outside.touched],
    revivals: [...outside.revivals],
  };
  const text = JSON.stringify(plain, null, 1);
  await writeFile(path.join(dir, 'facts.json'), text);
}

function describe(counts: Counts): string {
  const { kills, pauses, databaseRestarts, requests, refusals, unanswered } = counts;
  return `${kills} kills, ${pauses} pauses, ${databaseRestarts} database restarts, ${requests} requests, ${refusals} refused, ${unanswered} unanswered`;
}
