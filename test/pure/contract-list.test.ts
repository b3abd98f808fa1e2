/** Compares the rules in docs/reference/rest-contract.md with the numbers of the contract tests. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';

const root = path.join(import.meta.dirname, '../..');

function readRules(): string[] {
  const text = readFileSync(path.join(root, 'docs/reference/rest-contract.md'), 'utf8');
  return [...text.matchAll(/^- \*\*(R\d+)\*\* /gm)].map(([, number]) => String(number));
}

function readTests(): string[] {
  const dir = path.join(root, 'test');
  const files = readdirSync(dir, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.test.ts'));
  return files.flatMap((name) => {
    const text = readFileSync(path.join(dir, name), 'utf8');
    return [...text.matchAll(/^\s*test\(\s*['"`](R\d+) /gm)].map(([, number]) => String(number));
  });
}

test('rules are numbered from R01 without gaps', () => {
  const rules = readRules();
  expect(rules.length).toBeGreaterThan(0);
  expect(rules).toEqual(rules.map((_, index) => `R${String(index + 1).padStart(2, '0')}`));
});

test('each rule has exactly one test, and each numbered test a rule', () => {
  expect(readTests().sort()).toEqual(readRules().sort());
});

test('each rule names its source', () => {
  const text = readFileSync(path.join(root, 'docs/reference/rest-contract.md'), 'utf8');
  const rules = text.split('\n').filter((line) => line.startsWith('- **R'));
  const nowhere = rules.filter(
    (line) => !/\((§\d(\.\d)?|D\d+|domain|ours)(, (§\d(\.\d)?|D\d+|domain|ours))*\)$/.test(line),
  );
  expect(nowhere).toEqual([]);
});
