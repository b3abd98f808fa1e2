/** Every list of the schema costs as many statements for many rows as for two, with whatever may be asked of each row. */
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
import { afterAll, beforeAll, expect, test } from 'vitest';
import { schema } from '../../graphql/schema.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { makeRequest } from '../support/rest.js';
import { recordStatements } from '../support/statements.js';

const FEW = 2;
const MANY = 12;

type Field = GraphQLField<unknown, unknown>;

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
  const { pool } = app.ctx.db;
  await pool.query(`INSERT INTO volume (name) SELECT 'V' || n FROM generate_series(1, ${MANY}) n`);
  for (let n = 0; n < MANY; n++) {
    await addQuota(app.ctx, `user${n}`, 10n ** 9n);
    await addFiles(
      app.ctx,
      [0, 1, 2].map((file) => ({ path: `/level/${n}/${file}.nc`, size: 1n })),
    );
    await makeRequest(app, { quota: `user${n}`, patterns: `/level/${n}/` });
    await makeRequest(app, { quota: 'user0', files: [`/level/${n}/0.nc`, `/unknown/${n}`] });
  }
  await pool.query('UPDATE tape_file f SET volume_id = (SELECT min(v.id) + f.id % 12 FROM volume v)');
});
afterAll(() => app.close());

const isConnection = (field: Field) =>
  field.args.some(({ name }) => name === 'first') && !field.args.some(isRequiredArgument);
const fieldsOf = (field: Field) => {
  const type = getNamedType(field.type);
  return isObjectType(type) ? Object.values((type as GraphQLObjectType).getFields()) : [];
};
const isList = (field: Field) => isListType(isNonNullType(field.type) ? field.type.ofType : field.type);
/** They are made anew for each row by planning, and cost as much as an operation may have of them. */
const COSTLY = ['waiting', 'plan'];

/** Everything of a row, and of what belongs to it. */
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

const readTexts = (query: string) => recordStatements(() => askData(app, query));

test.each(lists.map((field) => [field.name, field] as const))('%s', async (_name, field) => {
  const [few, many] = [FEW, MANY].map((size) => `{ ${connectionOf(field, 1, size)} }`);
  const before = (await readTexts(few ?? '')).map(({ text }) => text);
  const after = (await readTexts(many ?? '')).map(({ text }) => text);
  expect(after.length, after.join('\n')).toBeLessThanOrEqual(before.length);
});

test('lists within lists within lists', async () => {
  const query = (size: number) =>
    `{ quotas(first: ${size}) { edges { node { user used requests(first: ${size}) { totalCount edges { node { state filesUnknown
      holds(first: ${size}) { edges { node { state file { path volume { name } } } } } awaited(first: ${size}) { edges { node { path } } } } } } } } } }`;
  const [few, many] = [await readTexts(query(FEW)), await readTexts(query(4))];
  expect(many.length, many.map(({ text }) => text).join('\n')).toBeLessThanOrEqual(few.length);
  expect(many.length).toBeLessThan(15);
});

test('nodes that are asked for by their ids are read together', async () => {
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
