// Prints the bill of materials (CycloneDX) of the production packages in package-lock.json, for all platforms.
//
// `npm sbom --omit=dev` omits packages that a development package also needs (npm 10 and 11). So this script gives it a project
// without development packages.
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const readJson = (file) => JSON.parse(readFileSync(new URL(`../${file}`, import.meta.url), 'utf8'));

const { devDependencies: _, scripts: __, ...manifest } = readJson('package.json');
const lock = readJson('package-lock.json');
delete lock.packages[''].devDependencies;
lock.packages = Object.fromEntries(Object.entries(lock.packages).filter(([, { dev, link }]) => !dev && !link));

const folder = path.join(mkdtempSync(path.join(tmpdir(), 'tapegate-sbom-')), manifest.name);
try {
  mkdirSync(folder);
  writeFileSync(path.join(folder, 'package.json'), JSON.stringify(manifest));
  writeFileSync(path.join(folder, 'package-lock.json'), JSON.stringify(lock));
  const args = ['sbom', '--package-lock-only', '--sbom-format=cyclonedx', '--loglevel=error'];
  const text = execFileSync('npm', args, { cwd: folder, encoding: 'utf8', maxBuffer: 2 ** 26 });
  const known = new Set(JSON.parse(text).components.map(({ name, version }) => `${name}@${version}`));
  const missing = Object.entries(lock.packages)
    .filter(([place]) => place !== '')
    .map(([place, { name, version }]) => `${name ?? place.replace(/^.*node_modules\//, '')}@${version}`)
    .filter((each) => !known.has(each));
  if (missing.length > 0) throw new Error(`the bill lacks ${missing.join(', ')}`);
  process.stdout.write(text);
} finally {
  rmSync(path.dirname(folder), { recursive: true });
}
