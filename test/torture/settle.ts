/** The end of all trouble, and the wait until nothing is left to do. */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { messageOf } from '../../src/errors.js';
import { setDisk } from '../../src/operations/disks/disks.js';
import { pollBulks } from './bulk-polls.js';
import { check } from './checker.js';
import { dropBallast, mendDisks } from './disk-trouble.js';
import { askDoctor } from './doctor.js';
import { READ_DOUBLE_CLAIMS } from './drive-claims.js';
import { type Facts, readFacts } from './facts.js';
import { CALM_FILE } from './faults.js';
import { archiveRest } from './late.js';
import { resumeAll } from './operators.js';
import { endsInTime } from './processes.js';
import { listLeft, type NotedDemand, READ_DEMANDS } from './remote-left.js';
import { retireRest } from './retirements.js';
import { lookAtStranger } from './stranger-scan.js';
import type { Violation } from './violations.js';
import { countWork, describeWork } from './work.js';
import type { World } from './world.js';

const LOOK_MS = 500;
/** Passes that run every so often get the time to mend what only they can: see src/engine/runner.ts. */
const PATIENCE_MS = 25_000;

/** No fault from now on: mail is taken, the disks have room, all processes run. */
export async function calmDown(world: World): Promise<void> {
  await writeFile(path.join(world.dataDir, CALM_FILE), '');
  world.remotes.calmDown();
  world.mail.mood.refusals = 0;
  world.mail.mood.lostAnswers = 0;
  world.hooks.mood.refusals = 0;
  world.hooks.mood.lostAnswers = 0;
  await Promise.all([world.mail.comeBack(), world.hooks.comeBack()]);
  for (const kept of [world.gateway, ...world.engines]) kept.goOn();
  await mendDisks(world);
  await dropBallast(world);
  await persist(async () => {
    await resumeAll(world.ctx);
    for (const { mountpoint, capacity } of world.disks) {
      // small files take more room than they have bytes
      const size = capacity === undefined ? 3n * world.totalBytes : capacity / 2n;
      await setDisk(world.ctx, { mountpoint, size });
    }
  });
}

/** Until it goes well: the database may be starting. */
async function persist(work: () => Promise<void>): Promise<void> {
  for (let left = 20; ; left--) {
    try {
      return await work();
    } catch (error) {
      if (left === 0) throw error;
      await sleep(LOOK_MS);
    }
  }
}

export interface Verdict {
  violations: Violation[];
  facts: Facts;
}

/**
 * Waits until nothing is left to do, and then until the checker is content, but neither for ever.
 * @param tell is given what is left to do
 */
export async function settleAndCheck(
  world: World,
  signal: AbortSignal,
  tell: (left: string) => void,
): Promise<Verdict> {
  const timeUp = new Promise<undefined>((resolve) => signal.addEventListener('abort', () => resolve(undefined)));
  let left = 'the first look';
  while (left !== '' && !signal.aborted) {
    left = (await Promise.race([findWork(world).catch(messageOf), timeUp])) ?? left;
    tell(left || 'nothing');
    await sleep(LOOK_MS);
  }
  const violations: Violation[] =
    left === '' ? [] : [{ kind: 'unsettled', text: `there is still work to do: ${left}` }];
  for (const kept of [world.gateway, ...world.engines]) await endsInTime(kept, world.stuck);
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const facts = await readWorld(world);
    const found = check(facts);
    if (found.length === 0) found.push(...(await askDoctor(world)));
    if (found.length === 0 || Date.now() > deadline || signal.aborted) {
      return { facts, violations: [...violations, ...found] };
    }
    await sleep(4 * LOOK_MS);
  }
}

/** What is left to do, in words; empty when there is nothing. */
async function findWork(world: World): Promise<string> {
  const trees = await archiveRest(world);
  await resumeAll(world.ctx); // a last failed mount may have held its volume since
  const volumes = await retireRest(world);
  const rest = { 'trees to be archived': BigInt(trees), 'volumes to be retired': BigInt(volumes) };
  return describeWork({ ...(await countWork(world.ctx)), ...rest });
}

async function readWorld(world: World): Promise<Facts> {
  const client: pg.PoolClient = await world.ctx.db.pool.connect();
  try {
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
    const query = async <Row extends object>(text: string) => (await client.query<Row>(text)).rows;
    const strange = await lookAtStranger(world.stranger);
    const doubleClaims = (await query<{ text: string }>(READ_DOUBLE_CLAIMS)).map(({ text }) => text);
    const noted = await query<NotedDemand>(READ_DEMANDS);
    const left = world.remotes.systems.map((remote) => listLeft(remote, noted));
    world.counts.unnamedDemands = left.reduce((sum, { unnamed }) => sum + unnamed, 0);
    const {
      sources,
      stuck,
      callers,
      mail,
      touched,
      acknowledged,
      bulks,
      revivals,
      asked,
      watches,
      miswritten,
      withdrawn,
      versions,
      openRetirements,
    } = world;
    return await readFacts(query, {
      sources,
      mails: mail.mails,
      told: world.hooks.told,
      touched,
      acknowledged,
      bulks,
      polls: await pollBulks(world.ctx),
      revivals,
      asked,
      watches,
      miswritten,
      withdrawn,
      versions,
      openRetirements,
      archivePaths: { root: world.linkRoot, lost: world.linksLost },
      strange,
      staged: left.flatMap(({ files }) => files),
      stuck,
      doubleClaims,
      wrong: callers.wrong,
    });
  } finally {
    await client.query('ROLLBACK').catch(() => {}); // the connection may be what failed
    client.release();
  }
}
