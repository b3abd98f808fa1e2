/** The packages that are installed: which of them run in production, under which licences, and what may run while they are. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/package-root.js';
import { type LockedPackage, nameOf, productionPackages, readLock } from '../support/packages.js';

const lock = readLock();
const { allowScripts, dependencies, devDependencies } = JSON.parse(
  readFileSync(path.join(packageRoot, 'package.json'), 'utf8'),
);

/** They ask for no more than that their own notice is kept. */
const LICENCES = [
  '0BSD',
  'Apache-2.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'BlueOak-1.0.0',
  'ISC',
  'MIT',
  'MIT-0',
  'PostgreSQL',
];

const withoutLicence = (packages: readonly LockedPackage[]) =>
  packages.filter(({ license }) => !LICENCES.includes(license ?? '')).map(({ name, license }) => `${name}: ${license}`);

test('every package of the production tree has a licence of the list, as its own package.json says', () => {
  expect(productionPackages.length).toBeGreaterThan(100);
  expect(withoutLicence(productionPackages)).toEqual([]);
  for (const { place, license } of productionPackages) {
    const file = path.join(packageRoot, place, 'package.json');
    // of another platform
    if (!existsSync(file)) expect(lock.packages[place]).toMatchObject({ optional: true });
    else expect({ place, license: JSON.parse(readFileSync(file, 'utf8')).license }).toEqual({ place, license });
  }
});

test('a package without a licence, or with one that is not of the list, is seen', () => {
  const packages = ['GPL-3.0', 'SEE LICENSE IN EULA', undefined].map((license) => ({
    place: 'a',
    name: 'a',
    version: '1',
    license,
  }));
  expect(withoutLicence(packages)).toEqual(['a: GPL-3.0', 'a: SEE LICENSE IN EULA', 'a: undefined']);
});

test('the production tree holds nothing that is for building or testing', () => {
  const names = new Set(productionPackages.map(({ name }) => name));
  const building = [
    'prisma',
    '@prisma/engines',
    'typescript',
    'react',
    'mysql2',
    'vitest',
    'fast-check',
    'oidc-provider',
  ];
  expect(building.filter((name) => names.has(name))).toEqual([]);
  expect([...names]).toEqual(expect.arrayContaining(Object.keys(dependencies)));
  // npm installs these with --omit=dev: what is wanted in production for choice alone, and is there for building
  expect(Object.entries(lock.packages).filter(([, entry]) => entry.devOptional)).toEqual([]);
  expect(names.size).toBeLessThan(220);
});

test('each version is fixed, what is installed is known by its hash, and no place to fetch it from is written down', () => {
  const versions = Object.values({ ...dependencies, ...devDependencies });
  expect(versions.filter((version) => !/^(npm:[\w@/-]+@)?\d+\.\d+\.\d+(-[\w.]+)?$/.test(String(version)))).toEqual([]);
  const entries = Object.entries(lock.packages).filter(([place]) => place !== '');
  expect(entries.filter(([, entry]) => entry.resolved !== undefined)).toEqual([]);
  const isOfOtherPlatform = (place: string) => place.startsWith('node_modules/@biomejs/cli-');
  expect(
    entries.filter(([place, entry]) => !entry.integrity?.startsWith('sha512-') && !isOfOtherPlatform(place)),
  ).toEqual([]);
  const text = readFileSync(path.join(packageRoot, 'package-lock.json'), 'utf8');
  expect(text.match(/.*\bregistry\b.*/gi)).toBeNull();
  expect(existsSync(path.join(packageRoot, '.npmrc'))).toBe(false);
});

test('each package with an install script is allowed or denied to run it', () => {
  const withScripts = Object.entries(lock.packages).filter(([, entry]) => entry.hasInstallScript);
  const names = withScripts.map(([place, entry]) => nameOf(place, entry));
  expect(names.filter((name) => allowScripts[name] === undefined)).toEqual([]);
  expect(Object.keys(allowScripts).filter((name) => !names.includes(name))).toEqual([]);
});

test('the bill of materials names every package of the production tree, with its hash and licence, and nothing else', () => {
  const text = execFileSync('npm', ['run', '--silent', 'sbom'], {
    cwd: packageRoot,
    encoding: 'utf8',
    maxBuffer: 2 ** 26,
  });
  const bill = JSON.parse(text);
  expect(bill).toMatchObject({ bomFormat: 'CycloneDX', specVersion: expect.stringMatching(/^1\.\d$/) });
  expect(bill.metadata.component).toMatchObject({ name: 'tapegate' });
  const shown = bill.components.map(({ name, version, hashes, licenses, purl }: Record<string, unknown[]>) => ({
    each: `${name}@${version}`,
    isWhole: hashes?.length === 1 && (licenses?.length ?? 0) > 0 && String(purl).startsWith('pkg:npm/'),
  }));
  const expected = [...new Set(productionPackages.map(({ name, version }) => `${name}@${version}`))];
  const sorted = shown.sort((a: { each: string }, b: { each: string }) => (a.each < b.each ? -1 : 1));
  expect(sorted).toEqual(expected.sort().map((each) => ({ each, isWhole: true })));
  const references = new Set([bill.metadata.component, ...bill.components].map((each) => each['bom-ref']));
  const edges: string[] = bill.dependencies.flatMap(({ ref, dependsOn = [] }: { ref: string; dependsOn: string[] }) => [
    ref,
    ...dependsOn,
  ]);
  expect(edges.filter((each) => !references.has(each))).toEqual([]);
});
