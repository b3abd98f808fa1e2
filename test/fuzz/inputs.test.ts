/** What the fuzz sends, without a server: nothing of the schema may be left out. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { buildSchema, type GraphQLSchema, parse, TypeInfo, visit, visitWithTypeInfo } from 'graphql';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/package-root.js';
import { sumArenas } from './arenas.js';
import type { Input } from './input.js';
import { inputs } from './inputs.js';

const INPUTS = 12_000;

/** As the committed schema has it, and not the modules that make the inputs. */
const schema = buildSchema(readFileSync(path.join(packageRoot, 'graphql/schema.graphql'), 'utf8'));

test('each root field of the schema is asked for, with each of its arguments', () => {
  const asked = new Set<string>();
  for (const input of fc.sample(inputs, { numRuns: INPUTS, seed: 3 })) {
    for (const query of queriesOf(input)) note(query, asked);
  }
  expect(rootFields(schema).filter((name) => !asked.has(name))).toEqual([]);
});

function rootFields({ getQueryType, getMutationType, getSubscriptionType }: GraphQLSchema): string[] {
  const roots = [getQueryType, getMutationType, getSubscriptionType].map((get) => get.call(schema));
  return roots.flatMap((root) =>
    Object.values(root?.getFields() ?? {}).flatMap(({ name, args }) => [
      `${root}.${name}`,
      ...args.map((arg) => `${root}.${name}(${arg.name})`),
    ]),
  );
}

function queriesOf(input: Input): string[] {
  if (input.kind === 'exchange') return input.operations.map(({ body }) => JSON.parse(body.replace(MARK, '1')).query);
  return input.kind === 'http' && input.query !== undefined ? [input.query] : [];
}

/** What is filled in when it is sent. */
const MARK = /~i\d+~/g;

function note(query: string, asked: Set<string>): void {
  const info = new TypeInfo(schema);
  try {
    visit(
      parse(query.replace(MARK, '1')),
      visitWithTypeInfo(info, {
        Field: () => void asked.add(`${info.getParentType()}.${info.getFieldDef()?.name}`),
        Argument: ({ name }) => void asked.add(`${info.getParentType()}.${info.getFieldDef()?.name}(${name.value})`),
      }),
    );
  } catch {
    // broken on purpose
  }
}

test('what the allocator keeps for threads is told from what else is resident', () => {
  const region = (from: number, to: number, mode: string, kilobytes: number, name = '') =>
    `${from.toString(16)}-${to.toString(16)} ${mode} 00000000 00:00 0${name && `    ${name}`}\nSize: 4 kB\nRss:   ${kilobytes} kB\n`;
  const [arena, mega] = [64 * 2 ** 20, 2 ** 20];
  const smaps = [
    region(arena, arena + 3 * mega, 'rw-p', 2000), // an arena
    region(arena + 3 * mega, 2 * arena, '---p', 0),
    region(2 * arena, 3 * arena, 'rw-p', 60_000), // one that is used up
    region(5 * arena, 5 * arena + mega, 'rw-p', 900), // aligned by chance
    region(6 * arena, 6 * arena + mega, 'rw-p', 800, '[heap]'),
    region(6 * arena + mega, 7 * arena, '---p', 0),
    region(8 * arena + mega, 8 * arena + 2 * mega, 'rw-p', 700),
  ];
  expect(sumArenas(smaps.join(''))).toBe(62_000 * 1024);
});
