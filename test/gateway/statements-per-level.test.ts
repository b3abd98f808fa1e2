/** The number of SQL statements does not grow with the number of rows. */
import {
  type GraphQLField,
  type GraphQLObjectType,
  getNamedType,
  isLeafType,
  isListType,
  isNonNullType,
  isObjectType,
  isRequiredArgument,
} from 'graphql';
import { expect, test } from 'vitest';
import { schema } from '../../graphql/schema/schema.js';
import { addPaths, addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { get, makeRequest } from '../support/rest.js';
import { recordStatements } from '../support/statements.js';
import { useApp } from '../support/use-app.js';

const FEW = 2;
const MANY = 12;

type Field = GraphQLField<unknown, unknown>;

const app = useApp({}, async () => {
  const { pool } = app.ctx.db;
  await pool.query(`INSERT INTO volume (name) SELECT 'V' || n FROM generate_series(1, ${MANY}) n`);
  for (let n = 0; n < MANY; n++) {
    await addQuota(app.ctx, `user${n}`, 10n ** 9n);
    await addPaths(app.ctx, ...[0, 1, 2].map((file) => `/level/${n}/${file}.nc`));
    await makeRequest(app, { quota: `user${n}`, patterns: `/level/${n}/` });
    await makeRequest(app, { quota: 'user0', files: [`/level/${n}/0.nc`, `/unknown/${n}`] });
  }
  await pool.query('UPDATE tape_file f SET volume_id = (SELECT min(v.id) + f.id % 12 FROM volume v)');
});

const isConnection = (field: Field) =>
  field.args.some(({ name }) => name === 'first') && !field.args.some(isRequiredArgument);
const fieldsOf = (field: Field) => {
  const type = getNamedType(field.type);
  return isObjectType(type) ? Object.values((type as GraphQLObjectType).getFields()) : [];
};
const isList = (field: Field) => isListType(isNonNullType(field.type) ? field.type.ofType : field.type);
/** Fields that the planner computes for each row. */
const COSTLY = ['waiting', 'plan'];

/** Returns a selection of all fields of a row, and of related rows. */
function selectionOf(field: Field, depth: number, size: number): string {
  const parts = fieldsOf(field).flatMap((inner) => {
    if (inner.args.some(isRequiredArgument) || COSTLY.includes(inner.name)) return [];
    if (isLeafType(getNamedType(inner.type))) return [inner.name];
    if (depth === 0) return [];
    if (isConnection(inner)) return [connectionOf(inner, depth - 1, size)];
    const nested = isList(inner) ? '' : selectionOf(inner, depth - 1, size);
    return nested === '' ? [] : [`${inner.name} { ${nested} }`];
  });
  return parts.join(' ');
}

function connectionOf(field: Field, depth: number, size: number): string {
  const edges = fieldsOf(field).find(({ name }) => name === 'edges');
  const node = edges && fieldsOf(edges).find(({ name }) => name === 'node');
  return `${field.name}(first: ${size}) { edges { cursor node { ${node ? selectionOf(node, depth, size) : ''} } } pageInfo { hasNextPage } }`;
}

const lists = Object.values(schema.getQueryType()?.getFields() ?? {}).filter(
  (field) => isConnection(field) && !COSTLY.includes(field.name),
);

/** Excludes the settings of connections, because the pool may open a connection for any query. */
const readTexts = async (query: string) =>
  (await recordStatements(() => askData(app, query))).filter(({ text }) => !text.startsWith('SET TRANSACTION'));

test.each(lists.map((field) => [field.name, field] as const))(
  'the list %s takes as many statements for many rows as for few',
  async (_name, field) => {
    const [few, many] = [FEW, MANY].map((size) => `{ ${connectionOf(field, 1, size)} }`);
    const before = (await readTexts(few ?? '')).map(({ text }) => text);
    const after = (await readTexts(many ?? '')).map(({ text }) => text);
    expect(after.length, after.join('\n')).toBeLessThanOrEqual(before.length);
  },
);

test('nested lists take as many statements for many rows as for few', async () => {
  const query = (size: number) =>
    `{ quotas(first: ${size}) { edges { node { user used requests(first: ${size}) { totalCount edges { node { state filesUnknown
      files(first: ${size}) { edges { node { state file { path volume { name } } } } } unresolved(first: ${size}) { edges { node { path } } } } } } } } } }`;
  const [few, many] = [await readTexts(query(FEW)), await readTexts(query(4))];
  expect(many.length, many.map(({ text }) => text).join('\n')).toBeLessThanOrEqual(few.length);
  expect(many.length).toBeLessThan(15);
});

test('nodes by id are read together', async () => {
  const { tapeFiles } = await askData<{ tapeFiles: { edges: { node: { id: string } }[] } }>(
    app,
    `{ tapeFiles(first: ${MANY}) { edges { node { id } } } }`,
  );
  const ids = tapeFiles.edges.map(({ node }) => node.id);
  const query = (wanted: readonly string[]) =>
    `{ ${wanted.map((id, n) => `n${n}: node(id: "${id}") { ... on TapeFile { path } }`).join(' ')} }`;
  const texts = await readTexts(query(ids));
  expect(texts.length).toBeLessThanOrEqual((await readTexts(query(ids.slice(0, 1)))).length);
});

test('REST reads a request by one statement, whatever it contains', async () => {
  const ids = [
    await makeRequest(app, { quota: 'user0', files: Array.from({ length: 25 }, (_, n) => `/level/${n}/1.nc`) }),
    await makeRequest(app, { quota: 'user0', patterns: '/level/' }),
    await makeRequest(app, { quota: 'user0', patterns: '/none/' }),
  ];
  for (const id of ids) {
    const statements = await recordStatements(async () => expect((await get(app, `/requests/${id}`)).status).toBe(200));
    expect(statements.map(({ text }) => text)).toEqual([expect.stringContaining('FROM request_file')]);
  }
  expect(await recordStatements(async () => expect((await get(app, '/requests/999')).status).toBe(404))).toHaveLength(
    1,
  );
});
