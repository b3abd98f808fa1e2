/** What the fuzz sends, without a server: nothing of the schema may be left out. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { buildSchema, type GraphQLSchema, parse, TypeInfo, visit, visitWithTypeInfo } from 'graphql';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/package-root.js';
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
