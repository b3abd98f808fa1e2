/** Rows of which only the columns are read that a query asks for: by one statement a level, with what Prisma reads of the same rows. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  type Choice,
  chooseColumns,
  fileColumns,
  holdColumns,
  quotaColumns,
  requestColumns,
} from '../../src/operations/chosen-columns.js';
import { cancelRequest } from '../../src/operations/requests/ends.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { makeRequest } from '../support/rest.js';
import { recordStatements } from '../support/statements.js';

const FILES = 30;
const pathOf = (n: number) => `/chosen/${String(n).padStart(3, '0')}.nc`;

let app: TestApp;
let id: number;
beforeAll(async () => {
  app = await startApp();
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addFiles(
    app.ctx,
    Array.from({ length: FILES }, (_, n) => ({ path: pathOf(n), size: BigInt(n) })),
  );
  id = await makeRequest(app, { quota: 'alice', patterns: '/chosen/' });
});
afterAll(() => app.close());

async function textsOf(query: string, variables: object = {}): Promise<string[]> {
  return (await recordStatements(() => askData(app, query, variables))).map(({ text }) => text);
}

test('a request with its quota and a page of its files takes two statements', async () => {
  for (const first of [1, 25, 30, 400]) {
    const query = `{ request(id: ${id}) { id label quota { user size } filesTotal
      holds(first: ${first}) { edges { cursor node { state size file { id path stage isAtPrimaryPlace } } } pageInfo { hasNextPage endCursor } } } }`;
    const texts = await textsOf(query);
    expect(texts).toEqual([expect.stringContaining('FROM request r'), expect.stringContaining('any_hold')]);
    const data = await askData<{ request: { holds: { edges: unknown[]; pageInfo: object } } }>(app, query);
    const { edges, pageInfo } = data.request.holds;
    expect([edges.length, pageInfo]).toEqual([
      Math.min(first, FILES),
      expect.objectContaining({ hasNextPage: first < FILES }),
    ]);
  }
});

test('only the columns that are asked for are read', async () => {
  const [request = '', holds = ''] = await textsOf(
    `{ request(id: ${id}) { a: label b: label ...on Request { state } holds(first: 2) { edges { node { file { size } } } } } }`,
  );
  expect(/SELECT (.*?) FROM/s.exec(request)?.[1]?.match(/"\w+"/g)?.sort()).toEqual(['"id"', '"label"', '"state"']);
  expect(holds.match(/AS "[\w.]+"/g)).toEqual(['AS "file.size"']);
});

test('a page of files takes one statement, from both ends and after a cursor', async () => {
  const query = `query ($first: Int, $last: Int, $after: String, $before: String, $match: String) {
    tapeFiles(first: $first, last: $last, after: $after, before: $before, match: $match) { edges { cursor node { path size } } } }`;
  interface Answer {
    tapeFiles: { edges: { cursor: string; node: { path: string } }[] };
  }
  const read = async (variables: object) => (await askData<Answer>(app, query, variables)).tapeFiles.edges;
  const all = await read({ first: FILES });
  expect(all.map(({ node }) => node.path)).toEqual(Array.from({ length: FILES }, (_, n) => pathOf(n)));
  const pages = [
    [{ first: 5 }, 0, 5],
    [{ first: 5, after: all[9]?.cursor }, 10, 15],
    [{ last: 5 }, FILES - 5, FILES],
    [{ last: 7, before: all[20]?.cursor }, 13, 20],
    [{ first: 3, match: '/chosen/01' }, 10, 13],
  ] as const;
  for (const [variables, from, to] of pages) {
    expect(await read(variables)).toEqual(all.slice(from, to));
    expect(await textsOf(query, variables)).toHaveLength(1);
  }
});

test('a request that was compacted has the same files', async () => {
  const query = (of: number) =>
    `{ request(id: ${of}) { holds(last: 3) { edges { cursor node { size file { path } } } } } }`;
  const other = await makeRequest(app, { quota: 'alice', patterns: '/chosen/' });
  const before = await askData(app, query(other));
  await cancelRequest(app.ctx, other);
  expect(await askData(app, query(other))).toEqual(before);
});

test('what is chosen is what Prisma reads', async () => {
  const { prisma, pool } = app.ctx.db;
  const compare = async (columns: Record<string, never>, from: string, row: object | null) => {
    const choice: Choice = { columns: Object.keys(columns), of: {} };
    const { text, values } = chooseColumns({ columns }, choice);
    const { rows } = await pool.query(`SELECT ${text} FROM ${from} LIMIT 1`, values);
    expect(row).toMatchObject(rows[0]);
    expect(Object.keys(rows[0]).sort()).toEqual([...choice.columns].sort());
  };
  await compare(
    requestColumns as never,
    `request r WHERE r.id = ${id}`,
    await prisma.request.findUnique({ where: { id } }),
  );
  await compare(quotaColumns as never, 'quota q', await prisma.quota.findFirst());
  const file = await prisma.tapeFile.findFirst({ where: { path: pathOf(7) } });
  await compare(fileColumns as never, `tape_file f WHERE f.path = '${pathOf(7)}'`, file);
  const hold = await prisma.hold.findFirst({ where: { requestId: id, ordinal: 3 } });
  await compare(holdColumns as never, `hold h WHERE h.request_id = ${id} AND h.ordinal = 3`, hold);
});

test('a fragment has what stands beside it in one place and not in another', async () => {
  const fragment = 'fragment Page on Request { holds(first: 2) { edges { node { file { path } } } } }';
  const ofBoth = (more: string) =>
    `{ a: request(id: ${id}) { ...Page } b: request(id: ${id}) { ...Page holds(first: 2) { edges { node { ${more} } } } } } ${fragment}`;
  for (const more of ['size file { size stage }', 'file { size restoredPath }']) {
    const alone = `{ request(id: ${id}) { holds(first: 2) { edges { node { file { path } ${more} } } } } }`;
    const { request } = await askData<{ request: object }>(app, alone);
    const { a, b } = await askData<{ a: object; b: object }>(app, ofBoth(more));
    expect([a, b]).toEqual([
      { holds: { edges: [0, 1].map((n) => ({ node: { file: { path: pathOf(n) } } })) } },
      request,
    ]);
  }
});
