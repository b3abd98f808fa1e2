/** Everything that goes wrong: processes, database, mail, disks, and hands in the restore area. */
import { setTimeout as sleep } from 'node:timers/promises';
import { changeMember, changeRule, renewToken } from './callers.js';
import { registerCopies, takeFromDisk } from './copies.js';
import { hangDatabase, signalDatabase } from './database.js';
import { dropBallast, spoilDisk, takeRoom, touchCopy } from './disk-trouble.js';
import { archiveLate } from './late.js';
import { resizeDisk, resizeQuota, resumeAll, resumeOne, suspendOne, verifyAgain } from './operators.js';
import { endsInTime, type Kept } from './processes.js';
import { pickWeighted, type Random } from './random.js';
import { moveRemote } from './remote-moves.js';
import { forgetSome, renameSome } from './renames.js';
import { moveFiles } from './renewals.js';
import { retireVolume } from './retirements.js';
import { moveVolume } from './volume-moves.js';
import { listCompletely, reinstateSome, withdrawSome } from './withdrawals.js';
import type { World } from './world.js';

const PAUSE_MS = { low: 50, high: 1800 };
/** On a slow machine as well, users get some answers between two troubles, unless nobody gets any for a while. */
const ANSWERS = 2;
const LOOK_MS = 50;
const MAX_LOOKS = 60;
/** Longer than the lease of an engine. */
const STILL_MS = { low: 2500, high: 5000 };
const HANG_MS = { low: 500, high: 8000 };
const MAIL_AWAY_MS = { low: 1000, high: 8000 };

export interface TroubleLimits {
  kills: number;
  /** Ends the trouble, however many kills there were. */
  signal: AbortSignal;
}

/** Makes trouble until there were so many kills. Never throws: what cannot be done just now is left out. */
export async function makeTrouble(world: World, random: Random, limits: TroubleLimits): Promise<void> {
  const ends: Promise<unknown>[] = [];
  while (!limits.signal.aborted && world.counts.kills < limits.kills) {
    const trouble = pickWeighted(random, TROUBLES);
    // each goes its way, so that several come at once
    ends.push(trouble(world, random).catch(() => {}));
    const pauseMs = random.integer(PAUSE_MS.low, PAUSE_MS.high);
    const { answered } = world.counts;
    await sleep(pauseMs, undefined, { signal: limits.signal }).catch(() => {}); // woken by the end
    for (let looks = 0; world.counts.answered < answered + ANSWERS && looks < MAX_LOOKS; looks++) await sleep(LOOK_MS);
  }
  await Promise.all(ends);
}

type Trouble = (world: World, random: Random) => Promise<void>;

const TROUBLES: readonly (readonly [number, Trouble])[] = [
  [40, async (world, random) => killProcess(world, random.pick(world.engines))],
  [8, async (world) => killProcess(world, world.gateway)],
  [6, async (world) => killDatabase(world)],
  [2, async (world) => void stopDatabase(world, 'SIGINT')],
  [2, async (world) => void stopDatabase(world, 'SIGTERM')],
  [4, hangForAWhile],
  [14, (world, random) => standStill(world, random, random.pick(world.engines))],
  [2, (world, random) => standStill(world, random, world.gateway)],
  [4, async (world) => void askToEnd(world, world.gateway)],
  [4, async (world, random) => void askToEnd(world, random.pick(world.engines))],
  [4, leaveMail],
  [4, async (world, random) => annoyMail(world, random)],
  [3, leaveHooks],
  [3, async (world, random) => annoyHooks(world, random)],
  [6, resizeDisk],
  [5, (world, random) => takeRoom(world, random)],
  [3, (world) => dropBallast(world)],
  [4, spoilDisk],
  [8, (world, random) => touchCopy(world, random)],
  [4, resizeQuota],
  [4, suspendOne],
  [4, (world) => resumeAll(world.ctx)],
  [4, resumeOne],
  [2, verifyAgain],
  [8, (world, random) => archiveLate(world, random)],
  [4, registerCopies],
  [10, moveFiles],
  [4, moveRemote],
  [8, moveVolume],
  [8, retireVolume],
  [5, withdrawSome],
  [6, reinstateSome],
  [4, listCompletely],
  [10, renameSome],
  [5, forgetSome],
  [4, takeFromDisk],
  [6, renewToken],
  [3, changeMember],
  [3, changeRule],
];

function killProcess(world: World, kept: Kept): void {
  if (kept.signal('SIGKILL')) world.counts.kills++;
}

/** Looked at in the background: nothing waits for it. */
function askToEnd(world: World, kept: Kept): void {
  if (!kept.isPaused) endsInTime(kept, world.stuck).catch(() => {});
}

function stopDatabase(world: World, signal: NodeJS.Signals): boolean {
  const isThere = signalDatabase(world.dataDir, signal);
  if (isThere) world.counts.databaseRestarts++;
  return isThere;
}

function killDatabase(world: World): void {
  if (stopDatabase(world, 'SIGKILL')) world.counts.kills++;
}

async function hangForAWhile(world: World, random: Random): Promise<void> {
  if (await hangDatabase(world.dataDir, random.integer(HANG_MS.low, HANG_MS.high))) world.counts.hangs++;
}

/** Often it dies as soon as it has awoken, when it does not know yet what it has lost. */
async function standStill(world: World, random: Random, kept: Kept): Promise<void> {
  const forMs = random.integer(STILL_MS.low, STILL_MS.high);
  const dies = random.chance(0.5);
  const afterMs = random.integer(0, 60);
  if (kept.isPaused || !kept.pause()) return;
  world.counts.stops++;
  await sleep(forMs);
  if (!kept.isPaused) return;
  kept.goOn();
  if (!dies) return;
  await sleep(afterMs);
  killProcess(world, kept);
}

async function leaveMail(world: World, random: Random): Promise<void> {
  const forMs = random.integer(MAIL_AWAY_MS.low, MAIL_AWAY_MS.high);
  await world.mail.goAway();
  await sleep(forMs);
  await world.mail.comeBack();
}

function annoyMail(world: World, random: Random): void {
  world.mail.mood.refusals = random.pick([0, 0.1, 0.5]);
  world.mail.mood.lostAnswers = random.pick([0, 0.2]);
}

async function leaveHooks(world: World, random: Random): Promise<void> {
  const forMs = random.integer(MAIL_AWAY_MS.low, MAIL_AWAY_MS.high);
  await world.hooks.goAway();
  await sleep(forMs);
  await world.hooks.comeBack();
}

function annoyHooks(world: World, random: Random): void {
  world.hooks.mood.refusals = random.pick([0, 0.1, 0.5]);
  world.hooks.mood.lostAnswers = random.pick([0, 0.2]);
}
