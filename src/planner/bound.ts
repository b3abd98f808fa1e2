/**
 * How long a file waits at most, by the rules of schedule.ts. Pure.
 *
 * - For `maxWaitSeconds` higher priorities, and better yields among its own user's volumes, may go first.
 * - Its user may have had more drive time than the others, and they may catch up first. What counts of it halves in a
 *   `HALF_LIFE_SECONDS`: when one user has had all, and `n - 1` others have all from then on, the shares are even after
 *   `HALF_LIFE_SECONDS × log2(n)`.
 * - From then on each of `n` users with work gets the n-th part of the drives, in slices of `sweepSeconds` (or `quantumSeconds`, where
 *   that is longer) and `turnSeconds`.
 */
import type { Medium } from './media.js';
import type { SchedulePolicy } from './schedule.js';
import { HALF_LIFE_SECONDS } from './schedule.js';

export function longestWaitSeconds(situation: {
  policy: SchedulePolicy;
  medium: Medium;
  drives: number;
  /** Users with work, all of one weight. */
  users: number;
  /** Drive time of the files of the same user that go before this one, and its own. */
  ownSeconds: number;
}): number {
  const { policy, medium, drives, users, ownSeconds } = situation;
  const catchingUp = HALF_LIFE_SECONDS * Math.log2(users);
  const mounting = medium.mountSeconds + medium.unmountSeconds;
  return (
    policy.maxWaitSeconds +
    catchingUp +
    (users * ownSeconds) / drives +
    users * (Math.max(policy.quantumSeconds, policy.sweepSeconds) + policy.turnSeconds + mounting)
  );
}
