/** Ends all failures, waits until no work remains, and runs the checker. */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf } from '../../src/core/errors.js';
import { setDisk } from '../../src/domain/disks/disks.js';
import { archiveRest } from './catalogue-changes.js';
import { check, type Violation } from './checker.js';
import { READ_EARLY_ENDS } from './clock-jumps.js';
import { freeRoom, restoreDisks } from './disk-trouble.js';
import { type Facts, readSnapshot } from './facts.js';
import { resumeAll } from './operators.js';
import { endInTime, READ_DOUBLE_CLAIMS } from './processes.js';
import { countUnnoticed } from './removed-copies.js';
import { readStageRequests } from './stage-requests.js';
import { type Demand, findStaged, READ_DEMANDS } from './staging-systems.js';
import { CALM_FILE } from './tape-faults.js';
import { retireRest } from './volume-changes.js';
import { askDoctor, describeWork } from './work.js';
import type { World } from './world.js';

const LOOK_MS = 500;
/** Time for periodic jobs, which alone can repair some states, see src/engine/runner.ts. */
const PATIENCE_MS = 25_000;

/** Ends all failures: the mail server accepts emails, the disks have room, and all processes run. */
export async function calmDown(world: World): Promise<void> {
  await writeFile(path.join(world.dataDir, CALM_FILE), '');
  world.stagingSystems.calmDown();
  for (const server of [world.mail, world.webhooks]) {
    server.faults.refusals = 0;
    server.faults.lostResponses = 0;
    await server.comeBack();
  }
  for (const process of [world.gateway, ...world.engines]) process.resume();
  await restoreDisks(world);
  await freeRoom(world);
  const work = async () => {
    await resumeAll(world.ctx);
    for (const { mountpoint, capacity } of world.disks) {
      // small files need more disk blocks than bytes
      await setDisk(world.ctx, { mountpoint, size: capacity === undefined ? 3n * world.totalBytes : capacity / 2n });
    }
  };
  // retry: the database may be starting
  for (let triesLeft = 20; triesLeft > 0; triesLeft--) {
    if (
      await work().then(
        () => true,
        () => false,
      )
    )
      return;
    await sleep(LOOK_MS);
  }
  await work();
}

export interface Verdict {
  violations: Violation[];
  facts: Facts;
}

/**
 * Waits until no work remains, and then until the checker finds no violation.
 * @param signal ends both waits
 */
export async function settleAndCheck(
  world: World,
  signal: AbortSignal,
  report: (work: string) => void,
): Promise<Verdict> {
  const timeUp = new Promise<undefined>((resolve) => signal.addEventListener('abort', () => resolve(undefined)));
  let work = 'unknown';
  while (work !== '' && !signal.aborted) {
    work = (await Promise.race([findWork(world).catch(messageOf), timeUp])) ?? work;
    report(work || 'nothing');
    await sleep(LOOK_MS);
  }
  const violations: Violation[] = work === '' ? [] : [{ kind: 'unsettled', text: `work remains: ${work}` }];
  for (const process of [world.gateway, ...world.engines]) await endInTime(process, world.observed.stuck);
  const { observed } = world;
  const isExpected = (place: string) => observed.changedPaths.has(place);
  for (const deadline = Date.now() + PATIENCE_MS; ; await sleep(4 * LOOK_MS)) {
    const facts = await readWorld(world);
    const found = check(facts);
    if (found.length === 0) found.push(...(await askDoctor(world.ctx, isExpected)));
    if (found.length === 0 || Date.now() > deadline || signal.aborted) {
      return { facts, violations: [...violations, ...found] };
    }
  }
}

async function findWork(world: World): Promise<string> {
  const trees = await archiveRest(world);
  await resumeAll(world.ctx); // engines suspend a volume after failed mounts
  const volumes = await retireRest(world);
  const unnoticed = await countUnnoticed(world);
  const more = { 'trees to archive': trees, 'volumes to retire': volumes, 'removed copies to notice': unnoticed };
  return await describeWork(world.ctx, more);
}

async function readWorld({ ctx, clock, observed, stagingSystems, counts }: World): Promise<Facts> {
  observed.stageRequestStatus = await readStageRequests(ctx);
  return await readSnapshot(ctx, observed, async (query) => {
    if (clock) observed.earlyEnds = (await query<{ text: string }>(READ_EARLY_ENDS)).map(({ text }) => text);
    observed.doubleClaims = (await query<{ text: string }>(READ_DOUBLE_CLAIMS)).map(({ text }) => text);
    const demands = await query<Demand>(READ_DEMANDS);
    const staged = stagingSystems.systems.map((system) => findStaged(system, demands));
    counts.unnamedDemands = staged.reduce((sum, { unnamed }) => sum + unnamed, 0);
    observed.staged = staged.flatMap(({ files }) => files);
  });
}
