/**
 * Checks that the OpenAPI document is valid, committed, and complete: it covers each endpoint and rule of the contract.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Validator } from '@seriousme/openapi-schema-validator';
import { expect, test } from 'vitest';
import { endpoints, routesOf } from '../../rest/v1/endpoints.js';
import { describeRest, formatRest } from '../../rest/v1/openapi.js';
import { packageRoot } from '../../src/core/package-root.js';

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

test('each endpoint of the contract is described', () => {
  const bare = (heading: string) => heading.replace(/\{\w+\}/, '{}');
  const described = endpoints.map(({ method, path: at }) => bare(`${method.toUpperCase()} ${at}`));
  const headings = [...read('docs/reference/rest-contract.md').matchAll(/^## ((?:GET|POST|PUT) .*)$/gm)].map(
    ([, heading = '']) => bare(heading),
  );
  expect(headings.sort()).toEqual(described.sort());
});
