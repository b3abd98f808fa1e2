/** Installed packages: the production packages, their licences, and install scripts. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { type LockedPackage, nameOf, productionPackages, readLock } from '../support/packages.js';

const { packages } = readLock();
const readText = (file: string) => readFileSync(path.join(packageRoot, file), 'utf8');
const { allowScripts, dependencies, devDependencies } = JSON.parse(readText('package.json'));

/** Licences that only require a copy of their notice. */
const LICENCES = '0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause BlueOak-1.0.0 ISC MIT MIT-0 PostgreSQL'.split(' ');

const withoutLicence = (checked: readonly Pick<LockedPackage, 'name' | 'license'>[]) =>
  checked.filter(({ license }) => !LICENCES.includes(license ?? '')).map(({ name, license }) => `${name}: ${license}`);

test('every production package has an allowed licence, by the lock file and its own package.json', () => {
  expect(productionPackages.length).toBeGreaterThan(100);
  expect(withoutLicence(productionPackages)).toEqual([]);
  const planted = ['GPL-3.0', undefined].map((license) => ({ name: 'a', license }));
  expect(withoutLicence(planted)).toEqual(['a: GPL-3.0', 'a: undefined']);
  for (const { place, license } of productionPackages) {
    const file = path.join(place, 'package.json');
    const isInstalled = existsSync(path.join(packageRoot, file));
    if (isInstalled) expect({ place, license: JSON.parse(readText(file)).license }).toEqual({ place, license });
    else expect(packages[place]).toMatchObject({ optional: true }); // optional packages may be for another platform
  }
});

test('the production packages include all dependencies, and none for building or testing', () => {
  const names = new Set(productionPackages.map(({ name }) => name));
  const building = 'prisma @prisma/engines typescript react mysql2 vitest fast-check oidc-provider'.split(' ');
  expect(building.filter((name) => names.has(name))).toEqual([]);
  expect([...names]).toEqual(expect.arrayContaining(Object.keys(dependencies)));
  // packages that `npm ci --omit=dev` would install without need
  expect(Object.entries(packages).filter(([, entry]) => entry.devOptional)).toEqual([]);
  expect(names.size).toBeLessThan(220);
});

test('the lock file has a hash of each package and no URL, and package.json has exact versions', () => {
  const versions = Object.values({ ...dependencies, ...devDependencies });
  expect(
    versions.filter((version) => !/^(npm:[\w@/-]+@)?\d+\.\d+\.\d+(-[\w.]+)?$|^file:/.test(String(version))),
  ).toEqual([]);
  const entries = Object.entries(packages).filter(([place, { link }]) => place.includes('node_modules/') && !link);
  expect(entries.filter(([, entry]) => entry.resolved !== undefined)).toEqual([]);
  const hashed = entries.filter(([place]) => !place.startsWith('node_modules/@biomejs/cli-')); // other platforms
  expect(hashed.filter(([, { integrity }]) => !integrity?.startsWith('sha512-'))).toEqual([]);
  expect(readText('package-lock.json').match(/.*\bregistry\b.*/gi)).toBeNull();
  expect(existsSync(path.join(packageRoot, '.npmrc'))).toBe(false);
});

test('each install script is allowed or denied', () => {
  const withScripts = Object.entries(packages).filter(([, entry]) => entry.hasInstallScript);
  const names = new Set(withScripts.map(([place, entry]) => nameOf(place, entry)));
  expect(Object.keys(allowScripts).sort()).toEqual([...names].sort());
});

test('the bill of materials contains exactly the production packages, each with its hash and licence', () => {
  const text = execFileSync('npm', ['run', '--silent', 'sbom'], {
    cwd: packageRoot,
    encoding: 'utf8',
    maxBuffer: 2 ** 26,
  });
  const bill = JSON.parse(text);
  expect(bill).toMatchObject({ bomFormat: 'CycloneDX', specVersion: expect.stringMatching(/^1\.\d$/) });
  expect(bill.metadata.component).toMatchObject({ name: 'tapegate' });
  type Component = { name: string; version: string; hashes: unknown[]; licenses?: unknown[]; purl: string };
  const components: Component[] = bill.components;
  const found = components.map(({ name, version }) => `${name}@${version}`);
  const expected = new Set(productionPackages.map(({ name, version }) => `${name}@${version}`));
  expect(found.sort()).toEqual([...expected].sort());
  for (const { hashes, licenses, purl } of components) {
    expect([hashes.length, licenses?.length]).toEqual([1, expect.any(Number)]);
    expect(purl).toMatch(/^pkg:npm\//);
  }
  const references = new Set([bill.metadata.component, ...components].map((each) => each['bom-ref']));
  const edges: string[] = bill.dependencies.flatMap(({ ref, dependsOn = [] }: { ref: string; dependsOn: string[] }) => [
    ref,
    ...dependsOn,
  ]);
  expect(edges.filter((each) => !references.has(each))).toEqual([]);
});
