/**
 * The longest wait of a file by the rules of schedule.ts. Pure functions.
 *
 * - For `maxWaitSeconds`, higher priorities and volumes of its user with better yield may go first.
 * - Then users with less drive time may catch up. Past drive time halves in `HALF_LIFE_SECONDS`: if one user had all of
 *   it, and the `n - 1` others get all from then on, the shares are equal after `HALF_LIFE_SECONDS × log2(n)`.
 * - Then each of `n` users with work gets an n-th of the drives, in slices of `turnSeconds` and the longer of
 *   `sweepSeconds` and `quantumSeconds`.
 */
import type { Medium } from './media.js';
import type { SchedulePolicy } from './schedule.js';
import { HALF_LIFE_SECONDS } from './schedule.js';

export function longestWaitSeconds(situation: {
  policy: SchedulePolicy;
  medium: Medium;
  drives: number;
  /** Users with work, with equal weights. */
  users: number;
  /** Drive time of this file and of its user's earlier files. */
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
