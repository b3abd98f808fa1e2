/** Files that come into the catalogue while all the rest goes on, by a command that may be killed on the way. */
import type { ChildProcess } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { cliFile, runCommand } from './processes.js';
import type { Random } from './random.js';
import { type LateTree, VOLUME_BYTES, type World } from './world.js';

/** One of two is killed within this time of its start. */
const KILL_MS = { low: 200, high: 2500 };

/** Archives one more tree, or tries to. */
export async function archiveLate(world: World, random: Random): Promise<void> {
  const tree = world.lateTrees.find((candidate) => !candidate.isArchived);
  const isKilled = random.chance(0.5);
  const afterMs = random.integer(KILL_MS.low, KILL_MS.high);
  if (!tree) return;
  const kill = async (child: ChildProcess) => {
    await sleep(afterMs);
    if (child.exitCode === null && child.signalCode === null && child.kill('SIGKILL')) world.counts.kills++;
  };
  await archive(world, tree, (child) => void (isKilled && kill(child)));
}

/** Archives what is left, killed or not before, until the signal aborts. @returns what is still left */
export async function archiveRest(world: World, signal?: AbortSignal): Promise<number> {
  for (const tree of world.lateTrees) if (!tree.isArchived && !signal?.aborted) await archive(world, tree);
  return world.lateTrees.filter((tree) => !tree.isArchived).length;
}

async function archive(world: World, tree: LateTree, onStart?: (child: ChildProcess) => void): Promise<void> {
  const args = [cliFile, 'archive', tree.dir, '--prefix', tree.prefix, '--volume-size', String(VOLUME_BYTES)];
  const env = () => ({ DATA_DIR: world.dataDir });
  const code = await runCommand({ name: 'archive', args, env, logDir: world.logDir }, onStart);
  if (code === 0) tree.isArchived = true;
}
