/** What an adoption comes to: what it did, and what of the system before is otherwise here, or cannot be taken over. */
import { createHash } from 'node:crypto';

/** Something that is not, or not quite, as it was in the system before. */
export interface Difference {
  /** Stable, for scripts: `quota-differs`, `copy-size`, … */
  kind: string;
  /** A user, a path, the id of a request, a mount point. */
  thing: string;
  /** What the system before has. */
  there: string;
  /** What is here from now on. */
  here: string;
}

/** How many of each were taken over, or changed here since they were changed there. */
export interface Adoption {
  disks: number;
  quotas: number;
  files: number;
  copies: number;
  /** Bytes of the copies. */
  bytes: bigint;
  requests: number;
  /** Adopted before, and changed there since. */
  changed: number;
  /** Adopted before, and gone there since. */
  ended: number;
  /** Adopted before, and the same. */
  same: number;
  differences: number;
}

export const nothingAdopted: Adoption = {
  ...{ disks: 0, quotas: 0, files: 0, copies: 0, bytes: 0n, requests: 0 },
  ...{ changed: 0, ended: 0, same: 0, differences: 0 },
};

/** What an adoption is told to do, and tells. */
export interface Adopting {
  /** Nothing is written. */
  isTrial: boolean;
  tell(difference: Difference): void;
  counts: Adoption;
}

/** By which what was adopted is known to be the same there. */
export function digestOf(values: readonly (string | null)[]): string {
  return createHash('sha256').update(JSON.stringify(values)).digest('hex');
}
