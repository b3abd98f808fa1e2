/** The OpenAPI document: valid, committed, and with each endpoint and rule of the contract. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Validator } from '@seriousme/openapi-schema-validator';
import { expect, test } from 'vitest';
import { endpoints, routesOf } from '../../rest/endpoints.js';
import { describeRest, formatRest } from '../../rest/openapi.js';
import { packageRoot } from '../../src/package-root.js';

const read = (file: string) => readFileSync(path.join(packageRoot, file), 'utf8');

test('rest/openapi.json is the served document (npm run schema writes it)', () => {
  expect(read('rest/openapi.json')).toBe(formatRest());
});

test('the document is valid OpenAPI 3.1', async () => {
  const validator = new Validator();
  const plain = JSON.parse(JSON.stringify(describeRest()));
  expect(await validator.validate(plain)).toMatchObject({ valid: true });
  expect(validator.version).toBe('3.1');
});

test('the document contains exactly the routes and their methods', () => {
  const described = Object.entries(describeRest().paths).map(([at, operations]) => [
    at,
    Object.keys(operations).sort(),
  ]);
  const routes = routesOf(endpoints).map(({ path: at, ...handlers }) => [
    at.replace(/:(\w+)/g, '{$1}'),
    Object.keys(handlers).sort(),
  ]);
  expect(described).toEqual(routes);
});

/** Returns the numbers of the rules below each heading of rest/CONTRACT.md, such as `GET /files`. */
function readSections(): [heading: string, rules: number[]][] {
  const sections = read('rest/CONTRACT.md').split(/^## /m).slice(1);
  return sections.map((text) => [
    text.slice(0, text.indexOf('\n')),
    [...text.matchAll(/^- \*\*R(\d+)\*\* /gm)].map(([, number]) => Number(number)),
  ]);
}

test('each endpoint of the contract is described with all its rules', () => {
  const bare = (heading: string) => heading.replace(/\{\w+\}/, '{}');
  const described = endpoints.map(({ method, path: at, rules }): [string, number[]] => [
    bare(`${method.toUpperCase()} ${at}`),
    rules.flatMap(([first, last]) => Array.from({ length: last - first + 1 }, (_, n) => first + n)),
  ]);
  const sections = readSections().filter(([heading]) => /^(GET|POST|PUT) /.test(heading));
  expect(sections.length).toBe(endpoints.length);
  for (const [heading, rules] of sections) {
    const found = described.find(([name]) => name === bare(heading));
    expect([heading, found?.[1]]).toEqual([heading, expect.arrayContaining(rules)]);
  }
});
