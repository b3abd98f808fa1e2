/** Which files users ask for. */
import type { Random } from './random.js';
import { REMOTE_PREFIX } from './remote.js';
import type { World } from './world.js';

const NEVER = 0.1;
const MIXED = 0.6;

/** A few, some that are there, some that will be, and now and then one that never is. */
export function pickFiles(world: World, random: Random): string[] {
  const count = random.integer(1, 12);
  return random.chance(MIXED)
    ? pickMixed(world, random, count)
    : withNever(random, random.sample(pathsOf(world), count));
}

/** About as many of staging libraries as of drive libraries. */
export function pickMixed(world: World, random: Random, count: number): string[] {
  const paths = pathsOf(world);
  const staged = random.sample(paths.filter(isRemote), Math.ceil(count / 2));
  const others = random.sample(
    paths.filter((path) => !isRemote(path)),
    Math.floor(count / 2),
  );
  return withNever(random, random.sample([...staged, ...others], count));
}

/** Is it a file of a staging library? */
export const isRemote = (path: string): boolean => path.startsWith(`${REMOTE_PREFIX}/`);

const pathsOf = ({ sources }: World): string[] => [...sources.keys()];

function withNever(random: Random, files: string[]): string[] {
  return random.chance(NEVER) ? [...files, `/never/${random.integer(1, 1000)}`] : files;
}
