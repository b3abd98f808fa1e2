/** Runs parts of a test as another user of the host, if the tests run as root. */
import { chownSync } from 'node:fs';

export const isRoot = process.geteuid?.() === 0;

export const UNPRIVILEGED_UID = 65_534;

/** Runs `work` as an unprivileged user, because permissions do not restrict root. */
export async function asUnprivilegedUser<T>(work: () => Promise<T>): Promise<T> {
  if (!isRoot) return await work();
  process.seteuid?.(UNPRIVILEGED_UID);
  try {
    return await work();
  } finally {
    process.seteuid?.(0);
  }
}

export const giveToUnprivilegedUser = (file: string): void => chownSync(file, UNPRIVILEGED_UID, UNPRIVILEGED_UID);
