/** The inputs of the fuzz, without a server. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { buildSchema, parse, TypeInfo, visit, visitWithTypeInfo } from 'graphql';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/package-root.js';
import { type Input, inputs } from './inputs.js';
import { NUMBER_MARK } from './known.js';
import { sumArenas } from './memory.js';

const INPUTS = 12_000;

/** The committed schema, and not that of the modules that generate the inputs. */
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
    // broken on purpose
  }
}

test('the memory of arenas is distinguished from other resident memory', () => {
  const region = (from: number, to: number, mode: string, kilobytes: number, name = '') =>
    `${from.toString(16)}-${to.toString(16)} ${mode} 00000000 00:00 0${name && `    ${name}`}\nSize: 4 kB\nRss:   ${kilobytes} kB\n`;
  const [arena, mega] = [64 * 2 ** 20, 2 ** 20];
  const smaps = [
    region(arena, arena + 3 * mega, 'rw-p', 2000), // an arena
    region(arena + 3 * mega, 2 * arena, '---p', 0),
    region(2 * arena, 3 * arena, 'rw-p', 60_000), // a full arena
    region(5 * arena, 5 * arena + mega, 'rw-p', 900), // aligned by chance
    region(6 * arena, 6 * arena + mega, 'rw-p', 800, '[heap]'),
    region(6 * arena + mega, 7 * arena, '---p', 0),
    region(8 * arena + mega, 8 * arena + 2 * mega, 'rw-p', 700),
  ];
  expect(sumArenas(smaps.join(''))).toBe(62_000 * 1024);
});
