/**
 * Runs the torture test: a small archive with several engines, a gateway, a database and other servers.
 * All processes are killed, paused and starved while users make requests. Then the failures end, and the checker runs.
 */
import { setMaxListeners } from 'node:events';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { startDeadline } from '../../src/core/deadline.js';
import { useArchivePaths } from './archive-paths.js';
import { archiveRest } from './catalogue-changes.js';
import { createRandom } from './random.js';
import { setUp } from './set-up.js';
import { calmDown, settleAndCheck, type Verdict } from './settle.js';
import { makeStageRequests } from './stage-requests.js';
import { isStaged, type StagingSystems } from './staging-systems.js';
import { checkTokens } from './tokens.js';
import { makeTrouble } from './trouble.js';
import { makeRequests } from './users.js';
import { watchStages } from './watchers.js';
import type { Counts } from './world.js';

export interface TortureOptions {
  seed: number;
  /** Number of kills after which the failures end. */
  kills: number;
  /** Time limits for the failures, and for the remaining work after the failures. */
  troubleMs: number;
  settleMs: number;
  /** Number of files at the start, and the size of the largest file. */
  files: number;
  maxBytes: number;
  /** Number of small trees that are archived during the run. */
  lateTrees: number;
  /** Whether to keep the directory with the logs if there are violations. */
  keepDir: boolean;
  signal: AbortSignal;
}

export interface TortureResult extends Verdict {
  counts: Counts;
  stagingTroubles: StagingSystems['troubles'];
  dir: string;
}

const USERS_AT_ONCE = 5;
const TOOLS_AT_ONCE = 2;
const PROGRESS_MS = 30_000;

/** @param report is called with a line of progress from time to time */
export async function runTorture(options: TortureOptions, report: (line: string) => void): Promise<TortureResult> {
  const random = createRandom(options.seed);
  const { world, dir, tearDown } = await setUp(random.fork(), options);
  let phase = 'trouble';
  const progress = setInterval(() => report(describeProgress(world.counts, phase)), PROGRESS_MS);
  const watching = new AbortController();
  let keepDir = false;
  try {
    watchStages(world, watching.signal);
    const done = new AbortController();
    const trouble = startDeadline(options.troubleMs, done.signal, options.signal);
    const { signal } = trouble;
    setMaxListeners(0, signal); // all participants wait for this signal
    const users = Array.from({ length: USERS_AT_ONCE }, () =>
      makeRequests(world, random.fork(), signal, watching.signal),
    );
    const tools = Array.from({ length: TOOLS_AT_ONCE }, () => makeStageRequests(world, random.fork(), signal));
    const archive = useArchivePaths(world, random.fork(), signal);
    const tokens = checkTokens(world, random.fork(), signal);
    await makeTrouble(world, random.fork(), { kills: options.kills, signal });
    done.abort();
    trouble.end();
    await Promise.all([...users, ...tools, archive, tokens]);
    report(describeProgress(world.counts, 'the trouble has ended'));
    phase = 'calming down';
    await calmDown(world);
    phase = 'archiving the last trees';
    const archiving = startDeadline(options.settleMs, options.signal);
    await archiveRest(world, archiving.signal).finally(archiving.end);
    const settling = startDeadline(options.settleMs, options.signal);
    const verdict = await settleAndCheck(world, settling.signal, (work) => {
      phase = `remaining work: ${work}`;
    }).finally(settling.end);
    options.signal.throwIfAborted();
    keepDir = options.keepDir && verdict.violations.length > 0;
    if (keepDir) await dumpFacts(path.join(dir, 'facts.json'), verdict);
    return { ...verdict, counts: world.counts, stagingTroubles: world.stagingSystems.troubles, dir };
  } finally {
    clearInterval(progress);
    watching.abort();
    await tearDown(keepDir);
  }
}

function describeProgress(counts: Counts, phase: string): string {
  const { kills, pauses, databaseRestarts, hangs, moves, requests, stageRequests, rejections, unanswered } = counts;
  return `${kills} kills, ${pauses} pauses, ${databaseRestarts} database restarts, ${hangs} hangs, ${moves} files moved, ${requests} requests, ${stageRequests} stage requests, ${rejections} rejected, ${unanswered} unanswered; ${phase}`;
}

/** Writes violations and facts as JSON, for an analysis of the cause. @param more other values to write */
export async function dumpFacts(file: string, { facts, violations }: Verdict, more: object = {}): Promise<void> {
  const plain = (_name: string, value: unknown) => {
    if (typeof value === 'bigint') return String(value);
    return value instanceof Set || value instanceof Map ? [...value] : value;
  };
  const { observed, ...stored } = facts;
  const { sources: _, ...known } = observed;
  await writeFile(file, JSON.stringify({ violations, ...more, ...stored, ...known }, plain, 1));
}

/** @returns a line about the run, and a line about the staging systems */
export function describeResult({ counts, facts, stagingTroubles, violations }: TortureResult, seed: number): string[] {
  const paths = new Map(facts.files.map(({ id, path }) => [id, path]));
  const restored = facts.stageEvents.flatMap(({ toStage, fileId }) =>
    toStage === 'RESTORED' ? [paths.get(fileId) ?? ''] : [],
  );
  const mixed = new Map<number, Set<boolean>>();
  for (const { requestId, fileId } of facts.requestFiles) {
    mixed.set(requestId, (mixed.get(requestId) ?? new Set()).add(isStaged(paths.get(fileId) ?? '')));
  }
  const kept = facts.staging.filter(({ state }) => state === 'KEPT').length;
  const { silenceMs, ...others } = counts;
  return [
    [
      ...Object.entries(others).map(([name, count]) => `${name} ${count}`),
      `requests of drive and staging libraries ${[...mixed.values()].filter(({ size }) => size === 2).length}`,
      `files restored ${restored.length}, ${restored.filter(isStaged).length} of them from staging libraries`,
      `emails ${facts.observed.mails.length}`,
      `events watched ${facts.observed.watches.reduce((sum, { received }) => sum + received.length, 0)}`,
      `longest silence ${Math.ceil(silenceMs / 1000)} s`,
      `violations ${violations.length}`,
      `seed ${seed}`,
    ].join(', '),
    [...[...stagingTroubles].map(([what, times]) => `${what} ${times}`), `files kept by their lifetime ${kept}`].join(
      ', ',
    ),
  ];
}
