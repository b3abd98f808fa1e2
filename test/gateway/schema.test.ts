import { readFileSync } from 'node:fs';
import path from 'node:path';
import {
  buildClientSchema,
  type GraphQLSchema,
  getIntrospectionQuery,
  getNamedType,
  isEnumType,
  isInputObjectType,
  isInterfaceType,
  isIntrospectionType,
  isObjectType,
  isScalarType,
  isSpecifiedScalarType,
  isUnionType,
  Kind,
  parse,
  validate,
} from 'graphql';
import { expect, test } from 'vitest';
import { START_QUERY } from '../../graphql/server/graphiql.js';
import { printSorted } from '../../graphql/server/sdl.js';
import { packageRoot } from '../../src/core/package-root.js';
import { integerFields } from '../../src/generated/operations.js';
import { startBeside } from '../support/app.js';
import { addPaths, addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { send, sendAsIs } from '../support/http.js';
import { useApp } from '../support/use-app.js';

let schema: GraphQLSchema;
const app = useApp({}, async () => {
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addPaths(app.ctx, '/demo/ocean/2024/a.nc');
  schema = buildClientSchema(await askData(app, getIntrospectionQuery({ specifiedByUrl: true })));
});

const PLACE = '/graphql/schema.graphql';

test('graphql/schema.graphql is the schema, is served as text, and has an ETag; npm run schema prints it', async () => {
  const file = readFileSync(path.join(packageRoot, 'graphql/schema.graphql'), 'utf8');
  expect(file).toBe(printSorted(schema));
  const answer = await sendAsIs(app, PLACE);
  expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'text/plain; charset=utf-8']);
  expect(answer.text).toBe(file);
  const tag = { 'If-None-Match': answer.headers.get('etag') ?? '' };
  expect((await sendAsIs(app, PLACE, { headers: tag })).status).toBe(304);
  const head = await sendAsIs(app, PLACE, { method: 'HEAD' });
  expect([head.status, head.text]).toEqual([200, '']);
});

/** Yields each name of the schema with its description, which may be empty. */
function* describeAll(): Generator<[name: string, description: string]> {
  for (const type of Object.values(schema.getTypeMap())) {
    if (isIntrospectionType(type) || isSpecifiedScalarType(type)) continue;
    // a union needs no description, because its members have one
    if (!isUnionType(type)) yield [type.name, type.description ?? ''];
    if (isEnumType(type)) {
      for (const value of type.getValues()) yield [`${type.name}.${value.name}`, value.description ?? ''];
    }
    if (!isObjectType(type) && !isInterfaceType(type) && !isInputObjectType(type)) continue;
    for (const field of Object.values(type.getFields())) {
      yield [`${type.name}.${field.name}`, field.description ?? ''];
      if (!('args' in field)) continue;
      for (const arg of field.args) yield [`${type.name}.${field.name}(${arg.name}:)`, arg.description ?? ''];
    }
  }
}

test('each type, field, argument and value has a description', () => {
  const all = [...describeAll()];
  expect(all.length).toBeGreaterThan(400);
  expect(all.filter(([, description]) => !/^\S.*[.:]$/s.test(description)).map(([name]) => name)).toEqual([]);
});

test('each custom scalar links to its specification', () => {
  const scalars = Object.values(schema.getTypeMap()).filter(
    (type) => isScalarType(type) && !isSpecifiedScalarType(type),
  );
  expect(scalars.map(String)).toEqual(['BigInt', 'DateTime']);
  expect(scalars.every((type) => isScalarType(type) && URL.canParse(type.specifiedByURL ?? ''))).toBe(true);
});

test('each type has at most one connection type and one edge type', () => {
  const nodes = Object.values(schema.getTypeMap()).flatMap((type) => {
    const node = isObjectType(type) && type.name.endsWith('Edge') ? type.getFields().node : undefined;
    return node ? [String(getNamedType(node.type))] : [];
  });
  expect(nodes.length).toBeGreaterThan(10);
  expect(nodes.filter((name, n) => nodes.indexOf(name) !== n)).toEqual([]);
});

test('the commands parse each BigInt field exactly, and no other field has such a name', () => {
  const types = Object.values(schema.getTypeMap()).filter((type) => isObjectType(type) || isInterfaceType(type));
  const fields = types.flatMap((type) => Object.values(type.getFields()));
  const isInteger = (field: (typeof fields)[number]) => getNamedType(field.type).name === 'BigInt';
  expect(new Set(fields.filter(isInteger).map(({ name }) => name))).toEqual(integerFields);
  expect(fields.filter((field) => integerFields.has(field.name) && !isInteger(field))).toEqual([]);
});

test('the schema returns 404 without introspection, and 401 to unknown callers of a closed gateway', async () => {
  const quiet = await startBeside(app, { config: { introspection: false } });
  const closed = await startBeside(app, { config: { access: { ...app.ctx.config.access, auth: new Set(['token']) } } });
  try {
    expect((await sendAsIs(quiet, PLACE)).status).toBe(404);
    expect((await sendAsIs(closed, PLACE)).status).toBe(401);
    const headers = { Authorization: `Bearer ${closed.token}` };
    expect((await sendAsIs(closed, PLACE, { headers })).status).toBe(200);
  } finally {
    await quiet.close();
    await closed.close();
  }
});

const operations = parse(START_QUERY).definitions.filter((each) => each.kind === Kind.OPERATION_DEFINITION);

test('the start page of GraphiQL has valid operations of each kind', async () => {
  expect(validate(schema, parse(START_QUERY)).map(String)).toEqual([]);
  const kinds = new Set(operations.map(({ operation }) => operation));
  expect(kinds).toEqual(new Set(['query', 'mutation', 'subscription']));
  const { text } = await send(app, '/graphql', { headers: { Accept: 'text/html' } });
  expect(text).toContain(JSON.stringify(START_QUERY).slice(1, 60));
});

const answered = operations.filter(({ operation }) => operation !== 'subscription').map(({ name }) => name?.value);

test.each(answered)('the operation %s of the start page succeeds on the demo archive', async (operationName) => {
  const body = { query: START_QUERY, operationName };
  const answer = await send(app, '/graphql', { body, headers: { 'Content-Type': 'application/json' } });
  expect(answer.body).toEqual({ data: expect.anything() });
  expect(answer.text).not.toContain('"errors":[{');
});
