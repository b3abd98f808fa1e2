/** Reads package-lock.json. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/core/package-root.js';

interface LockEntry {
  /** Name of the package, if it differs from the name of the package's directory. */
  name?: string;
  version: string;
  license?: string;
  resolved?: string;
  /** Whether the entry links a directory of this repository. */
  link?: boolean;
  integrity?: string;
  hasInstallScript?: boolean;
  dev?: boolean;
  optional?: boolean;
  devOptional?: boolean;
}

export interface LockedPackage {
  /** Directory of the package, such as `node_modules/a/node_modules/b`. */
  place: string;
  name: string;
  version: string;
  license: string | undefined;
}

export function readLock(): { packages: Record<string, LockEntry> } {
  return JSON.parse(readFileSync(path.join(packageRoot, 'package-lock.json'), 'utf8'));
}

/** Returns the name of a package in the lock file. */
export function nameOf(place: string, { name }: Pick<LockEntry, 'name'>): string {
  return name ?? place.replace(/^.*node_modules\//, '');
}

/** Packages that `npm ci --omit=dev` installs, on all platforms. */
export const productionPackages: LockedPackage[] = Object.entries(readLock().packages)
  .filter(([place, { dev, link }]) => place !== '' && !dev && !link)
  .map(([place, entry]) => ({
    place,
    name: nameOf(place, entry),
    version: entry.version,
    license: entry.license,
  }));
