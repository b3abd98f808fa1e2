/**
 * The torture: a small archive with several engines, a gateway, a database and a mail server, all of which are killed,
 * stopped and starved while users make requests; then peace, and the checker.
 */
import path from 'node:path';
import { startDeadline } from '../../src/deadline.js';
import { useArchivePaths } from './archive-paths.js';
import { makeBulks } from './bulks.js';
import { showTokens } from './callers.js';
import { dumpFacts } from './dump.js';
import { archiveRest } from './late.js';
import { createRandom } from './random.js';
import type { RemoteSystems } from './remote.js';
import { setUp } from './set-up.js';
import { calmDown, settleAndCheck, type Verdict } from './settle.js';
import { makeStrangeDeeds } from './strange-deeds.js';
import { makeTraffic } from './traffic.js';
import { makeTrouble } from './trouble.js';
import { watchStages } from './watchers.js';
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
  /** Small trees of files that come into the catalogue later on. */
  lateTrees: number;
  /** Whether the folder with the logs stays when there are violations. */
  keepFolder: boolean;
  /** Gives the whole up. */
  signal: AbortSignal;
}

export interface TortureResult extends Verdict {
  counts: Counts;
  /** How often each kind of trouble has happened at the systems behind staging libraries. */
  remoteTroubles: RemoteSystems['troubles'];
  /** With the logs, where it was kept. */
  dir: string;
}

const USERS_AT_ONCE = 5;
const TOOLS_AT_ONCE = 2;
const PROGRESS_MS = 30_000;

/** @param tell is given a line for people now and then */
export async function runTorture(options: TortureOptions, tell: (line: string) => void): Promise<TortureResult> {
  const random = createRandom(options.seed);
  const { world, dir, tearDown } = await setUp(random.fork(), options);
  let left = '';
  const progress = setInterval(() => tell(`${describe(world.counts)}${left}`), PROGRESS_MS);
  const watching = new AbortController();
  let keepFolder = false;
  try {
    watchStages(world, watching.signal);
    const done = new AbortController();
    const trouble = startDeadline(options.troubleMs, done.signal, options.signal);
    const peace = trouble.signal;
    const signals = { peace, watching: watching.signal };
    const traffic = Array.from({ length: USERS_AT_ONCE }, () => makeTraffic(world, random.fork(), signals));
    const bulks = Array.from({ length: TOOLS_AT_ONCE }, () => makeBulks(world, random.fork(), peace));
    const strange = makeStrangeDeeds(world, random.fork(), peace);
    const archive = useArchivePaths(world, random.fork(), peace);
    const shown = showTokens(world, random.fork(), peace);
    await makeTrouble(world, random.fork(), { kills: options.kills, signal: peace });
    done.abort();
    trouble.end();
    await Promise.all([...traffic, ...bulks, strange, archive, shown]);
    tell(`${describe(world.counts)}; now waiting for peace`);
    left = '; calming down';
    await calmDown(world);
    left = '; the last trees are archived';
    const archiving = startDeadline(options.settleMs, options.signal);
    await archiveRest(world, archiving.signal).finally(archiving.end);
    const bound = startDeadline(options.settleMs, options.signal);
    const verdict = await settleAndCheck(world, bound.signal, (work) => {
      left = `; left to do: ${work}`;
    }).finally(bound.end);
    options.signal.throwIfAborted();
    keepFolder = options.keepFolder && verdict.violations.length > 0;
    if (keepFolder) await dumpFacts(path.join(dir, 'facts.json'), verdict);
    return { ...verdict, counts: world.counts, remoteTroubles: world.remotes.troubles, dir };
  } finally {
    clearInterval(progress);
    watching.abort();
    await tearDown(keepFolder);
  }
}

function describe(counts: Counts): string {
  const { kills, stops, databaseRestarts, hangs, moves, strangeDeeds, requests, bulks, refusals, unanswered } = counts;
  return `${kills} kills, ${stops} stops, ${databaseRestarts} database restarts, ${hangs} hangs, ${moves} files moved, ${strangeDeeds} strange deeds, ${requests} requests, ${bulks} bulks, ${refusals} refused, ${unanswered} unanswered`;
}
