/** Of the drive seconds that a user has had, half counts no longer after this time. */
export const HALF_LIFE_SECONDS = 24 * 3600;

/** What is left of a number of drive seconds after a while; seconds. */
export function decay(driveSeconds: number, seconds: number): number {
  return driveSeconds * 0.5 ** (Math.max(seconds, 0) / HALF_LIFE_SECONDS);
}
