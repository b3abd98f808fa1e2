/** What a torture says at its end. */
import { isRemote } from './picks.js';
import type { TortureResult } from './run.js';

/** @returns a line on all of it, and one on the systems behind staging libraries */
export function describeResult({ counts, facts, remoteTroubles, violations }: TortureResult, seed: number): string[] {
  const paths = new Map(facts.files.map(({ id, path }) => [id, path]));
  const restored = facts.stageEvents.filter(({ to }) => to === 'RESTORED').map(({ fileId }) => paths.get(fileId) ?? '');
  const watched = facts.outside.watches.reduce((sum, watch) => sum + watch.told.length, 0);
  const kept = facts.staging.filter(({ state }) => state === 'KEPT').length;
  return [
    [
      `${counts.kills} kills`,
      `${counts.stops} stops`,
      `${counts.databaseRestarts} restarts of PostgreSQL`,
      `${counts.hangs} hangs`,
      `${counts.moves} files moved or replaced`,
      `${counts.volumeMoves} volumes copied onto others, ${counts.retirements} times one retired or used again`,
      `${counts.withdrawals} times files withdrawn or brought back`,
      `${counts.renames} files renamed, ${counts.forgets} times some forgotten`,
      `${counts.strangeDeeds} deeds of a stranger`,
      `${counts.tokensShown} tokens shown`,
      `${counts.requests} requests`,
      `${counts.bulks} bulks of ${counts.bulkFiles} files in all, changed ${counts.bulkChanges} times`,
      `${countMixed(facts, paths)} requests of drive and staging libraries`,
      `${restored.length} files restored`,
      `${restored.filter(isRemote).length} of them from staging libraries`,
      `${facts.outside.mails.length} mails`,
      `${watched} events watched`,
      `${Math.ceil(counts.silenceMs / 1000)} s without an answer at most`,
      `${violations.length} violations`,
      `seed ${seed}`,
    ].join(', '),
    [
      ...[...remoteTroubles].map(([what, times]) => `${what} ${times}`),
      `left to lifetimes: ${kept} files kept, ${counts.unnamedDemands} wanted under names that nobody was told`,
    ].join(', '),
  ];
}

function countMixed({ holds }: TortureResult['facts'], paths: ReadonlyMap<bigint, string>): number {
  const kinds = new Map<number, Set<boolean>>();
  for (const { requestId, fileId } of holds) {
    const found = kinds.get(requestId) ?? new Set();
    kinds.set(requestId, found.add(isRemote(paths.get(fileId) ?? '')));
  }
  return [...kinds.values()].filter(({ size }) => size === 2).length;
}
