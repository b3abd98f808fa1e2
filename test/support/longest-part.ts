/** Did anything wait longer than the planner's rules allow? */
import { longestWaitSeconds } from '../../src/planner/bound.js';
import type { Medium } from '../../src/planner/media.js';
import { defaultPolicy, type SchedulePolicy } from '../../src/planner/schedule.js';
import type { Outcome, Wait } from '../../src/simulator/simulate.js';

/** @returns the greatest part of its bound that a file has waited: 1 is all of it */
export function findLongestPart(
  outcome: Outcome,
  options: { drives: number; medium: Medium; policy?: SchedulePolicy },
): number {
  const { drives, medium, policy = defaultPolicy } = options;
  const byUser = new Map<string, Wait[]>();
  for (const wait of outcome.waits) {
    const known = byUser.get(wait.user);
    if (known) known.push(wait);
    else byUser.set(wait.user, [wait]);
  }
  let longest = 0;
  for (const waits of byUser.values()) {
    // what had been asked for when the file was read may have gone before it
    waits.sort((a, b) => a.at + a.seconds - (b.at + b.seconds));
    const asked = waits.toSorted((a, b) => a.at - b.at);
    let next = 0;
    let ownSeconds = 0;
    for (const wait of waits) {
      for (; (asked[next]?.at ?? Number.POSITIVE_INFINITY) <= wait.at + wait.seconds; next++) {
        ownSeconds += asked[next]?.driveSeconds ?? 0;
      }
      const bound = longestWaitSeconds({ policy, medium, drives, users: byUser.size, ownSeconds });
      longest = Math.max(longest, wait.seconds / bound);
    }
  }
  return longest;
}
