/** The cost of operations: the gateway reports what the formula in docs/reference/graphql.md yields. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import {
  buildSchema,
  type DocumentNode,
  type FieldNode,
  type FragmentDefinitionNode,
  type GraphQLInputType,
  type GraphQLNamedType,
  getArgumentValues,
  getNamedType,
  getNullableType,
  getOperationAST,
  isEnumType,
  isInputObjectType,
  isInterfaceType,
  isListType,
  isObjectType,
  Kind,
  parse,
  print,
  type SelectionSetNode,
  separateOperations,
  typeFromAST,
} from 'graphql';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { startBeside } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { ask, type GraphqlAnswer, sendGraphql } from '../support/graphql.js';
import { send } from '../support/http.js';
import { useApp } from '../support/use-app.js';

const app = useApp({}, async () => {
  await addQuota(app.ctx, 'alice', 1_000_000n);
});

const schema = buildSchema(readFileSync(path.join(packageRoot, 'graphql/schema.graphql'), 'utf8'));
const LIMITS = { complexity: 100_000, depth: 12, breadth: 200 };
const REPORT = { 'GraphQL-Cost': 'report' };

type Variables = Record<string, unknown>;
interface Figures {
  complexity: number;
  depth: number;
  breadth: number;
}

const NONE: Figures = { complexity: 0, depth: 0, breadth: 0 };

/** Computes an operation's cost with the documented formula. */
function computeCost(document: DocumentNode, variables: Variables): Figures {
  const fragments = document.definitions.filter((node) => node.kind === Kind.FRAGMENT_DEFINITION);
  const operation = getOperationAST(document);
  const root = operation && schema.getRootType(operation.operation);
  return root ? costOfSet(operation.selectionSet, root, { fragments, variables }) : NONE;
}

interface Given {
  fragments: FragmentDefinitionNode[];
  variables: Variables;
}

function costOfSet({ selections }: SelectionSetNode, type: GraphQLNamedType, given: Given): Figures {
  return selections.reduce((sum, node) => {
    const part = node.kind === Kind.FIELD ? costOfField(node, type, given) : costOfFragment(node, type, given);
    return {
      complexity: sum.complexity + part.complexity,
      depth: Math.max(sum.depth, part.depth),
      breadth: sum.breadth + part.breadth,
    };
  }, NONE);
}

function costOfFragment(
  node: Exclude<SelectionSetNode['selections'][number], FieldNode>,
  type: GraphQLNamedType,
  given: Given,
): Figures {
  const isInline = node.kind === Kind.INLINE_FRAGMENT;
  const fragment = isInline ? node : given.fragments.find(({ name }) => name.value === node.name.value);
  const condition = fragment?.typeCondition && schema.getType(fragment.typeCondition.name.value);
  return fragment ? costOfSet(fragment.selectionSet, condition ?? type, given) : NONE;
}

function costOfField(node: FieldNode, type: GraphQLNamedType, given: Given): Figures {
  const field = isObjectType(type) || isInterfaceType(type) ? type.getFields()[node.name.value] : undefined;
  if (!field) return { complexity: 1, depth: 1, breadth: 1 };
  const args = getArgumentValues(field, node, given.variables);
  const [, own = 1, times = 1] = /Query cost: (\d+)(?:, plus (\d+) times)?/.exec(field.description ?? '') ?? [];
  const ids = node.name.value === 'nodes' ? (args.ids as unknown[]) : undefined;
  const size = Math.min(Number(ids?.length ?? args.first ?? args.last ?? 50), 1000);
  const isPaged = ids !== undefined || field.args.some(({ name }) => name === 'first');
  const paths = node.name.value === 'pathMatches' ? (args.paths as unknown[]).length : undefined;
  const factor =
    paths !== undefined ? paths : isPaged ? size / 10 : isListType(getNullableType(field.type)) ? 10 : Number(times);
  const below = node.selectionSet ? costOfSet(node.selectionSet, getNamedType(field.type), given) : NONE;
  return {
    complexity: Number(own) + countValues(args) / 10 + factor * below.complexity,
    depth: below.depth + 1,
    breadth: below.breadth + 1,
  };
}

function countValues(value: unknown): number {
  if (Array.isArray(value)) return value.length;
  if (typeof value !== 'object' || value === null) return 0;
  return Object.values(value).reduce((sum: number, each) => sum + countValues(each), 0);
}

/** Returns a value of a type. Each list in the value has three items. */
function makeValue(given: GraphQLInputType): unknown {
  const type = getNullableType(given);
  if (isListType(type)) return Array.from({ length: 3 }, () => makeValue(type.ofType));
  if (isEnumType(type)) return type.getValues()[0]?.name;
  if (isInputObjectType(type)) {
    const fields = Object.values(type.getFields());
    return Object.fromEntries(fields.map((field) => [field.name, makeValue(field.type)]));
  }
  const scalars: Variables = { Int: 7, Float: 0.5, Boolean: true, BigInt: '7', DateTime: '2026-11-20' };
  return scalars[type.name] ?? 'x';
}

function makeVariables(document: DocumentNode): Variables {
  const definitions = getOperationAST(document)?.variableDefinitions ?? [];
  return Object.fromEntries(
    definitions.map(({ variable, type }) => {
      const found = typeFromAST(schema, type as Parameters<typeof typeFromAST>[1]);
      return [variable.name.value, makeValue(found as GraphQLInputType)];
    }),
  );
}

/** Returns the operations of the commands, the dashboard and the TypeScript client. */
function readOperations(): [name: string, document: DocumentNode][] {
  const directory = path.join(packageRoot, 'clients/typescript/operations');
  const texts = readdirSync(directory).map((file) => readFileSync(path.join(directory, file), 'utf8'));
  return Object.entries(separateOperations(parse(texts.join('\n'))));
}

const OTHERS = [
  '{ nodes(ids: ["a", "b", "c"]) { id ... on Quota { user members { edges { node { name } } } } } }',
  '{ __typename __schema { types { name } } }',
  '{ requests { totalCount pageInfo { endCursor } edges { cursor node { requestId } } } }',
  '{ requests(first: null, last: 30) { edges { node { files(first: 5000) { edges { node { state } } } } } } }',
  '{ a: requests(first: 0) { totalCount } b: tapeFiles(stages: [ONTAPE, ONDISK]) { totalCount } }',
  '{ ...F ...F @skip(if: true) } fragment F on Query { plan { at } quota(user: "alice") { members { edges { node { name } } } user } }',
  '{ directory(path: "/") { entries(first: 40) { edges { node { file { path } } } } } }',
  'mutation { repairFindings(input: { first: 3 }) { repaired { next findings { kind } } errors { message } } }',
];

/** Sends an operation, and returns the response or the only result of the event stream. */
async function run(gateway: typeof app, document: DocumentNode, variables: Variables): Promise<GraphqlAnswer> {
  const isStream = getOperationAST(document)?.operation === 'subscription';
  const Accept = isStream ? 'text/event-stream' : 'application/json';
  const headers = { 'Content-Type': 'application/json', Accept, ...REPORT };
  const { text } = await send(gateway, '/graphql', { headers, body: { query: print(document), variables } });
  return JSON.parse(isStream ? (/^data: (.*)$/m.exec(text)?.[1] ?? 'null') : text);
}

test('the reported cost is the documented cost, and operations above the limit are not executed', async () => {
  const gateway = await startBeside(app, { limits: { graphqlDepth: 30, graphqlComplexity: 0 } });
  try {
    const others = OTHERS.map((query): [string, DocumentNode] => [query, parse(query)]);
    const operations = [...readOperations(), ...others];
    expect(operations.length).toBeGreaterThan(80);
    for (const [name, document] of operations) {
      const variables = makeVariables(document);
      const { complexity, ...expected } = computeCost(document, variables);
      const limits = { ...LIMITS, complexity: 0, depth: 30 };
      const cost = { ...expected, complexity: expect.closeTo(complexity, 2), limits };
      const answer = await run(gateway, document, variables);
      expect({ name, ...answer }).toMatchObject({ name, extensions: { cost }, errors: [{}] });
      expect(answer).not.toHaveProperty('data');
    }
  } finally {
    await gateway.close();
  }
});

test('a result contains the cost only if the client asks for it', async () => {
  const query = '{ quotas(first: 2) { edges { node { user size } } } }';
  const data = { quotas: { edges: [{ node: { user: 'alice', size: '1000000' } }] } };
  const cost = { complexity: 7.2, depth: 4, breadth: 5, limits: LIMITS };
  expect((await sendGraphql(app, { query }, { headers: REPORT })).body).toEqual({ data, extensions: { cost } });
  expect(await ask(app, query)).toEqual({ data });
});
