/** Checks the inputs of the fuzz test without a server. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { buildSchema, parse, TypeInfo, visit, visitWithTypeInfo } from 'graphql';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { type Input, inputs } from './inputs.js';
import { NUMBER_MARK } from './known.js';

const INPUTS = 12_000;

/** The committed schema, for comparison with the schema that generates the inputs. */
const schema = buildSchema(readFileSync(path.join(packageRoot, 'graphql/schema.graphql'), 'utf8'));

test('inputs use each root field of the schema with each of its arguments', () => {
  const used = new Set<string>();
  for (const input of fc.sample(inputs, { numRuns: INPUTS, seed: 3 })) {
    for (const query of queriesOf(input)) addUsed(query, used);
  }
  const roots = [schema.getQueryType(), schema.getMutationType(), schema.getSubscriptionType()];
  const fields = roots.flatMap((root) => Object.values(root?.getFields() ?? {}).map((field) => ({ root, ...field })));
  const names = fields.flatMap(({ root, name, args }) => [
    `${root}.${name}`,
    ...args.map((arg) => `${root}.${name}(${arg.name})`),
  ]);
  expect(names.filter((name) => !used.has(name))).toEqual([]);
});

function queriesOf(input: Input): string[] {
  if (input.kind === 'exchange')
    return input.operations.map(({ body }) => JSON.parse(body.replace(NUMBER_MARK, '1')).query);
  return input.kind === 'http' && input.query !== undefined ? [input.query] : [];
}

function addUsed(query: string, used: Set<string>): void {
  const info = new TypeInfo(schema);
  const field = () => `${info.getParentType()}.${info.getFieldDef()?.name}`;
  const visitor = {
    Field: () => void used.add(field()),
    Argument: ({ name }: { name: { value: string } }) => void used.add(`${field()}(${name.value})`),
  };
  try {
    visit(parse(query.replace(NUMBER_MARK, '1')), visitWithTypeInfo(info, visitor));
  } catch {
    // some operations are broken on purpose
  }
}
