/** Checks that files, scripts and imports named in the developers' pages exist. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';

const directory = 'docs/developers';
const pages = readdirSync(path.join(packageRoot, directory)).filter((name) => name.endsWith('.md'));

/** Files that readers of the pages create. */
const created = ['src/tape/tar/index.ts', 'src/cli/drives.ts', 'test/process/drives.test.ts'];

const PATH = /(?<![\w./-])(?:src|test|graphql|rest|prisma|bench|clients|docs)\/[\w./-]*\w/g;

test.each(pages)('%s names files and scripts that exist', (page) => {
  const text = readFileSync(path.join(packageRoot, directory, page), 'utf8').replace(/\]\([^)]*\)/g, ']');
  const files = (text.match(PATH) ?? []).filter((file) => !created.includes(file));
  expect(files.filter((file) => !existsSync(path.join(packageRoot, file)))).toEqual([]);
  const { scripts } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8'));
  const named = [...text.matchAll(/npm run ([\w:]+)/g)].map(([, name = '']) => name);
  expect(named.filter((name) => !(name in scripts))).toEqual([]);
});

test.each(pages)('the samples in %s import files that exist', (page) => {
  const text = readFileSync(path.join(packageRoot, directory, page), 'utf8');
  const imports = [...text.matchAll(/^import .* from '(\.[^']+)\.js';$/gm)].map(
    ([, specifier = '']) => `${specifier}.ts`,
  );
  const places = created.map((file) => path.join(packageRoot, path.dirname(file)));
  const exists = (file: string) => file.includes('generated/') || places.some((at) => existsSync(path.join(at, file)));
  expect(imports.filter((file) => !exists(file))).toEqual([]);
});
