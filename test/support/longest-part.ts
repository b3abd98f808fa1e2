/** Checks whether a file waited longer than the planner's rules allow. */
import type { Medium } from '../../src/planner/media.js';
import { defaultPolicy, HALF_LIFE_SECONDS, type SchedulePolicy } from '../../src/planner/schedule.js';
import type { SimulationResult, Wait } from '../../src/simulator/simulate.js';

/**
 * Returns the maximum wait of a file in seconds, for users with equal weights. The wait has three parts.
 * During `maxWaitSeconds`, files with higher priority and volumes with better yield may go first.
 * Then users with less drive time may catch up. After one user had all drive time, it takes
 * `HALF_LIFE_SECONDS × log2(users)` until all users have equal drive time.
 * Finally each user with waiting files gets an equal share of the drives, in turns.
 */
function boundOf({ policy, medium, drives, users, ownSeconds }: Situation): number {
  const turnSeconds = Math.max(policy.quantumSeconds, policy.sweepSeconds) + policy.turnSeconds;
  const mountSeconds = medium.mountSeconds + medium.unmountSeconds;
  const catchingUp = HALF_LIFE_SECONDS * Math.log2(users);
  return policy.maxWaitSeconds + catchingUp + (users * ownSeconds) / drives + users * (turnSeconds + mountSeconds);
}

interface Situation {
  policy: SchedulePolicy;
  medium: Medium;
  drives: number;
  users: number;
  /** Drive time of the file and of all earlier files of the same user. */
  ownSeconds: number;
}

/** @returns the longest wait of a file, as a fraction of the file's maximum wait */
export function findLongestPart(
  outcome: SimulationResult,
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
    // files that the user requested before this file was read may have been read first
    waits.sort((a, b) => a.at + a.seconds - (b.at + b.seconds));
    const asked = waits.toSorted((a, b) => a.at - b.at);
    let next = 0;
    let ownSeconds = 0;
    for (const wait of waits) {
      for (; (asked[next]?.at ?? Number.POSITIVE_INFINITY) <= wait.at + wait.seconds; next++) {
        ownSeconds += asked[next]?.driveSeconds ?? 0;
      }
      const bound = boundOf({ policy, medium, drives, users: byUser.size, ownSeconds });
      longest = Math.max(longest, wait.seconds / bound);
    }
  }
  return longest;
}
