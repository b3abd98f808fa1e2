/**
 * What the systems behind staging libraries do by themselves: what is wanted comes to disk, copies leave it too early or by their lifetime,
 * demands are forgotten, and files cannot be had for a while.
 */
import type { MemoryTapeSystem } from '../../src/tape/staging-memory.js';
import type { RemoteTroubles } from './remote-fates.js';

export const TICK_MS = 150;

/** Of a copy where nothing is released. */
export const LIFETIME_MS = 20_000;
/** In peace, so that what is kept at the end is there when the checker looks. */
const CALM_LIFETIME_MS = 3_600_000;
/** After that nothing comes any more that engines asked for that are dead. */
const LAST_LATE_MS = 15_000;

/** Of a look. */
const ARRIVES = 0.2;
const FORGETS_ONE = 0.03;
/** Rarely: what engines have lost sight of would be forgotten with the rest. */
const FORGETS_ALL = 0.0005;
const FORGETS_DISK = 0.5;
const GOES_EARLY = 0.03;
const FAILS = 0.01;
const MENDS = 0.01;

/** Called every `TICK_MS`. */
export function workTapes(system: MemoryTapeSystem, troubles: RemoteTroubles): void {
  endLifetimes(system, troubles);
  if (troubles.isCalm) system.spoiled.clear();
  else makeTrouble(system, troubles);
  const { isCalm, random, calmSince } = troubles;
  const wanted = [...system.demands.values()].flatMap((paths) => [...paths]).filter((path) => !system.isStaged(path));
  const arriving = wanted.filter(() => isCalm || random.chance(ARRIVES));
  system.arrive(arriving);
  system.log.length = 0;
  if (calmSince === undefined || performance.now() - calmSince < LAST_LATE_MS) return;
  for (const path of arriving) {
    if (system.disk.get(path)) system.disk.set(path, new Date(Date.now() + CALM_LIFETIME_MS));
  }
}

function endLifetimes(system: MemoryTapeSystem, troubles: RemoteTroubles): void {
  for (const path of [...system.disk.keys()]) if (!system.isStaged(path)) troubles.note('lifetimes over');
}

function makeTrouble(system: MemoryTapeSystem, troubles: RemoteTroubles): void {
  const { random } = troubles;
  if (system.ids) forgetDemands(system, troubles);
  const wanted = [...system.disk.keys()].filter((path) => system.isWanted(path));
  if (wanted.length > 0 && random.chance(GOES_EARLY)) {
    troubles.note('copies gone early');
    const path = random.pick(wanted);
    // of a system with names the demand may stay, which brings it again
    if (system.ids && random.chance(0.8)) system.disk.delete(path);
    else system.evict(path);
  }
  if (random.chance(FAILS)) {
    const isLost = random.chance(0.3);
    troubles.note(isLost ? 'files lost for a while' : 'files not to be had for a while');
    system.spoil(random.pick([...system.tape.keys()]), isLost ? 'lost' : 'unavailable');
  }
  const spoiled = [...system.spoiled.keys()];
  if (spoiled.length > 0 && random.chance(MENDS * spoiled.length)) system.spoiled.delete(random.pick(spoiled));
}

function forgetDemands(system: MemoryTapeSystem, troubles: RemoteTroubles): void {
  const { random } = troubles;
  const held = [...system.demands].flatMap(([id, paths]) => (paths.size > 0 ? [id] : []));
  if (held.length > 0 && random.chance(FORGETS_ONE)) {
    system.demands.delete(random.pick(held));
    troubles.note('demands forgotten');
  }
  if (!random.chance(FORGETS_ALL)) return;
  troubles.note('demands forgotten', held.length);
  system.forget();
  if (random.chance(FORGETS_DISK))
    for (const path of random.sample([...system.disk.keys()], 5)) system.disk.delete(path);
}
