/** Causes failures and changes at random during a run. */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  archiveLate,
  importComplete,
  moveStaged,
  purgeSome,
  registerCopies,
  reinstateSome,
  renameSome,
  takeFromDisk,
  withdrawSome,
} from './catalogue-changes.js';
import { jumpClock } from './clock-jumps.js';
import { runClone } from './database-clone.js';
import { changeCopy, failDisk, freeRoom, takeRoom } from './disk-trouble.js';
import { resizeQuota, resizeRestoreDisk, resumeAll, resumeOne, suspendOne, verifyFiles } from './operators.js';
import { endInTime, hangDatabase, type KeptProcess, signalDatabase } from './processes.js';
import { pickWeighted, type Random, type Weighted } from './random.js';
import type { FaultyServer } from './receivers.js';
import { removeCopies } from './removed-copies.js';
import { changeRole } from './role-settings.js';
import { changeMember, changeRule, renewToken } from './tokens.js';
import { moveFiles, moveVolume, retireVolume } from './volume-changes.js';
import type { World } from './world.js';

const PAUSE_MS = { low: 50, high: 1800 };
/**
 * Minimum number of responses between two failures, so that users make progress on a slow machine.
 * After MAX_LOOKS checks, the next failure starts anyway.
 */
const RESPONSES = 2;
const LOOK_MS = 50;
const MAX_LOOKS = 60;
/** Duration of a pause, longer than an engine's lease. */
const PAUSED_MS = { low: 2500, high: 5000 };
const HANG_MS = { low: 500, high: 8000 };
const AWAY_MS = { low: 1000, high: 8000 };

/**
 * Causes failures until the number of kills is reached or the signal aborts.
 * Errors are ignored, because some failures are impossible at some times.
 */
export async function makeTrouble(
  world: World,
  random: Random,
  { kills, signal }: { kills: number; signal: AbortSignal },
): Promise<void> {
  const ends: Promise<unknown>[] = [];
  const once = [...ONCE];
  let rounds = 0;
  while (!signal.aborted && world.counts.kills < kills) {
    const isRare = rounds++ % (BETWEEN + 1) === BETWEEN;
    const trouble = (isRare ? once.shift() : undefined) ?? pickWeighted(random, TROUBLES);
    ends.push(trouble(world, random).catch(() => {})); // several failures may run at the same time
    const pauseMs = random.integer(PAUSE_MS.low, PAUSE_MS.high);
    const { answered } = world.counts;
    await sleep(pauseMs, undefined, { signal }).catch(() => {}); // aborted
    for (let looks = 0; world.counts.answered < answered + RESPONSES && looks < MAX_LOOKS; looks++)
      await sleep(LOOK_MS);
  }
  await Promise.all(ends);
}

const TROUBLES: Weighted<(world: World, random: Random) => Promise<void>> = [
  [40, async (world, random) => killProcess(world, random.pick(world.engines))],
  [8, async (world) => killProcess(world, world.gateway)],
  [6, async (world) => void (stopDatabase(world, 'SIGKILL') && world.counts.kills++)],
  [2, async (world) => void stopDatabase(world, 'SIGINT')],
  [2, async (world) => void stopDatabase(world, 'SIGTERM')],
  [4, hangDatabaseOnce],
  [14, (world, random) => pauseProcess(world, random, random.pick(world.engines))],
  [2, (world, random) => pauseProcess(world, random, world.gateway)],
  [4, async (world) => stopProcess(world, world.gateway)],
  [4, async (world, random) => stopProcess(world, random.pick(world.engines))],
  [4, ({ mail }, random) => leave(mail, random)],
  [4, async ({ mail }, random) => changeFaults(mail, random)],
  [3, ({ webhooks }, random) => leave(webhooks, random)],
  [3, async ({ webhooks }, random) => changeFaults(webhooks, random)],
  [6, resizeRestoreDisk],
  [5, takeRoom],
  [3, freeRoom],
  [4, failDisk],
  [8, changeCopy],
  [4, resizeQuota],
  [4, suspendOne],
  [4, (world) => resumeAll(world.ctx, { isClockRight: false })],
  [4, resumeOne],
  [2, verifyFiles],
  [8, archiveLate],
  [4, registerCopies],
  [10, moveFiles],
  [4, moveStaged],
  [8, moveVolume],
  [8, retireVolume],
  [5, withdrawSome],
  [6, reinstateSome],
  [4, importComplete],
  [10, renameSome],
  [5, purgeSome],
  [4, takeFromDisk],
  [6, renewToken],
  [3, changeMember],
  [3, changeRule],
  [4, jumpClock],
  [2, runClone],
  [6, removeCopies],
  [4, changeRole],
];

/** Rare failures. Each rare failure happens at least once, even in a short run. */
const ONCE = [runClone, changeRole, jumpClock, removeCopies];
/** Number of other failures before each rare failure. */
const BETWEEN = 3;

function killProcess(world: World, kept: KeptProcess): void {
  if (kept.signal('SIGKILL')) world.counts.kills++;
}

/** Stops a process gracefully. A check in the background reports a process that does not end. */
function stopProcess(world: World, kept: KeptProcess): void {
  if (!kept.isPaused) endInTime(kept, world.observed.stuck).catch(() => {});
}

function stopDatabase(world: World, signal: NodeJS.Signals): boolean {
  const isSent = signalDatabase(world.dataDir, signal);
  if (isSent) world.counts.databaseRestarts++;
  return isSent;
}

async function hangDatabaseOnce(world: World, random: Random): Promise<void> {
  const forMs = random.integer(HANG_MS.low, HANG_MS.high);
  if (await hangDatabase(world.dataDir, () => sleep(forMs))) world.counts.hangs++;
}

/** Pauses a process. Often kills the process when it resumes, before it notices that its lease has ended. */
async function pauseProcess(world: World, random: Random, kept: KeptProcess): Promise<void> {
  const forMs = random.integer(PAUSED_MS.low, PAUSED_MS.high);
  const isKilled = random.chance(0.5);
  const afterMs = random.integer(0, 60);
  if (kept.isPaused || !kept.pause()) return;
  world.counts.pauses++;
  await sleep(forMs);
  if (!kept.isPaused) return;
  kept.resume();
  if (!isKilled) return;
  await sleep(afterMs);
  killProcess(world, kept);
}

async function leave(server: FaultyServer, random: Random): Promise<void> {
  const forMs = random.integer(AWAY_MS.low, AWAY_MS.high);
  await server.goAway();
  await sleep(forMs);
  await server.comeBack();
}

function changeFaults({ faults }: FaultyServer, random: Random): void {
  faults.refusals = random.pick([0, 0.1, 0.5]);
  faults.lostResponses = random.pick([0, 0.2]);
}
