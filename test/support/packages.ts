/** The packages of package-lock.json. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/package-root.js';

interface LockEntry {
  /** Where it is not that of its folder. */
  name?: string;
  version: string;
  license?: string;
  resolved?: string;
  integrity?: string;
  hasInstallScript?: boolean;
  dev?: boolean;
  optional?: boolean;
  devOptional?: boolean;
}

export interface LockedPackage {
  /** Its folder, such as `node_modules/a/node_modules/b`. */
  place: string;
  name: string;
  version: string;
  license: string | undefined;
}

export function readLock(): { packages: Record<string, LockEntry> } {
  return JSON.parse(readFileSync(path.join(packageRoot, 'package-lock.json'), 'utf8'));
}

/** Of what, and where, an entry of the lock file is. */
export function nameOf(place: string, { name }: Pick<LockEntry, 'name'>): string {
  return name ?? place.replace(/^.*node_modules\//, '');
}

/** What `npm ci --omit=dev` installs, on all platforms. */
export const productionPackages: LockedPackage[] = Object.entries(readLock().packages)
  .filter(([place, { dev }]) => place !== '' && !dev)
  .map(([place, entry]) => ({
    place,
    name: nameOf(place, entry),
    version: entry.version,
    license: entry.license,
  }));
