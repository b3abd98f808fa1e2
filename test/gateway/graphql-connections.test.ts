import { afterAll, beforeAll, expect, test } from 'vitest';
import { createRequest } from '../../src/operations/requests/create.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData, type Connection, PAGE_INFO } from '../support/graphql.js';
import { recordStatements } from '../support/statements.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
});
afterAll(() => app.close());

interface FilePage {
  tapeFiles: Connection<{ path: string }>;
}

interface FileArgs {
  match?: string;
  stages?: string[] | null;
  first?: number;
  after?: string | null;
  last?: number;
  before?: string | null;
}

async function readFiles(args: FileArgs): Promise<FilePage['tapeFiles']> {
  const query = `query ($match: String, $stages: [Stage!], $first: Int, $after: String, $last: Int, $before: String) {
    tapeFiles(match: $match, stages: $stages, first: $first, after: $after, last: $last, before: $before) {
      totalCount edges { cursor node { path } } ${PAGE_INFO} } }`;
  return (await askData<FilePage>(app, query, args)).tapeFiles;
}

const paths = ({ edges }: Connection<{ path: string }>) => edges.map(({ node }) => node.path);

/** All pages one after the other, in the order in which they were read. */
async function readAll<Node>(read: (after: string | null) => Promise<Connection<Node>>): Promise<Node[][]> {
  const pages: Node[][] = [];
  for (let after: string | null = null; ; ) {
    const { edges, pageInfo }: Connection<Node> = await read(after);
    pages.push(edges.map(({ node }) => node));
    expect(pageInfo.endCursor).toBe(edges.at(-1)?.cursor ?? null);
    expect(pageInfo.startCursor).toBe(edges[0]?.cursor ?? null);
    if (!pageInfo.hasNextPage) return pages;
    after = pageInfo.endCursor;
  }
}

test('tape files page forward in order of their paths, and the total is that of all pages', async () => {
  await addFiles(
    app.ctx,
    ['/f/e', '/f/c', '/f/a', '/f/d', '/f/b'].map((path) => ({ path })),
  );
  const pages = await readAll(async (after) => {
    const page = await readFiles({ match: '/f/', first: 2, after });
    expect(page.totalCount).toBe(5);
    return page;
  });
  expect(pages.map((page) => page.map(({ path }) => path))).toEqual([['/f/a', '/f/b'], ['/f/c', '/f/d'], ['/f/e']]);
});

test('tape files page backward from the end', async () => {
  await addFiles(
    app.ctx,
    ['/b/1', '/b/2', '/b/3', '/b/4', '/b/5'].map((path) => ({ path })),
  );
  const last = await readFiles({ match: '/b/', last: 2 });
  expect(paths(last)).toEqual(['/b/4', '/b/5']);
  expect(last.pageInfo).toMatchObject({ hasPreviousPage: true, hasNextPage: false });
  const middle = await readFiles({ match: '/b/', last: 2, before: last.pageInfo.startCursor });
  expect(paths(middle)).toEqual(['/b/2', '/b/3']);
  expect(middle.pageInfo).toMatchObject({ hasPreviousPage: true, hasNextPage: true });
  const first = await readFiles({ match: '/b/', last: 2, before: middle.pageInfo.startCursor });
  expect(paths(first)).toEqual(['/b/1']);
  expect(first.pageInfo).toMatchObject({ hasPreviousPage: false, hasNextPage: true });
});

test('a file whose stage changes between two pages takes no other file out of the list', async () => {
  await addFiles(
    app.ctx,
    ['/move/1', '/move/2', '/move/3', '/move/4', '/move/5'].map((path) => ({ path })),
  );
  const args = { match: '/move/', stages: ['ONTAPE'] };
  const first = await readFiles({ ...args, first: 2 });
  const last = await readFiles({ ...args, last: 2 });
  await app.ctx.db.pool.query(`UPDATE tape_file SET stage = 'RESTORING' WHERE path IN ('/move/2', '/move/4')`);
  const next = await readFiles({ ...args, first: 1, after: first.pageInfo.endCursor });
  expect(paths(next)).toEqual(['/move/3']);
  expect(next.pageInfo.hasNextPage).toBe(true);
  const previous = await readFiles({ ...args, last: 1, before: last.pageInfo.startCursor });
  expect(paths(previous)).toEqual(['/move/3']);
  expect(previous.pageInfo.hasPreviousPage).toBe(true);
});

test('no character of match is a wildcard, and case counts', async () => {
  const names = ['100%', '100x', 'a_b', 'aXb', 'c\\d', 'cd', 'Case', 'ünï', "q'uote"];
  await addFiles(
    app.ctx,
    names.map((name) => ({ path: `/w/${name}` })),
  );
  for (const [match, found] of [
    ['0%', ['/w/100%']],
    ['a_b', ['/w/a_b']],
    ['c\\', ['/w/c\\d']],
    ['/w/C', ['/w/Case']],
    ['/w/case', []],
    ['ünï', ['/w/ünï']],
    ["q'u", ["/w/q'uote"]],
    ['/w/%', []],
  ] as const) {
    const page = await readFiles({ match, first: 10 });
    expect({ match, paths: paths(page), total: page.totalCount }).toEqual({ match, paths: found, total: found.length });
  }
  expect((await readFiles({ match: '', first: 1 })).totalCount).toBe((await readFiles({ first: 1 })).totalCount);
});

test('stages choose the files at any of them; none chooses no file', async () => {
  await addFiles(app.ctx, [
    { path: '/s/u', stage: 'UNVERIFIED' },
    { path: '/s/d', stage: 'ONDISK' },
    { path: '/s/t', stage: 'ONTAPE' },
  ]);
  const read = async (stages: string[] | null) => paths(await readFiles({ match: '/s/', stages }));
  expect(await read(['ONTAPE', 'UNVERIFIED'])).toEqual(['/s/t', '/s/u']);
  expect(await read(['ONDISK'])).toEqual(['/s/d']);
  expect(await read(['RESTORED'])).toEqual([]);
  expect(await read([])).toEqual([]);
  expect(await read(null)).toEqual(['/s/d', '/s/t', '/s/u']);
});

test('requests page forward and backward, by user and by state', async () => {
  await addQuota(app.ctx, 'pat', 1_000_000n);
  await addQuota(app.ctx, 'quinn', 1_000_000n);
  await addFiles(app.ctx, [{ path: '/r/1' }, { path: '/r/disk', stage: 'ONDISK' }]);
  const ids: number[] = [];
  for (let n = 0; n < 5; n++) ids.push(await createRequest(app.ctx, { quota: 'pat', pattern: '/r/' }));
  const done = await createRequest(app.ctx, { quota: 'pat', files: ['/r/disk'] });
  await createRequest(app.ctx, { quota: 'quinn', pattern: '/r/' });
  const read = async (args: string) => {
    const query = `{ requests(${args}) { totalCount edges { cursor node { requestId } } ${PAGE_INFO} } }`;
    return (await askData<{ requests: Connection<{ requestId: number }> }>(app, query)).requests;
  };
  const queued = 'quota: "pat", states: [QUEUED]';
  const pages = await readAll((after) => read(`${queued}, first: 2${after ? `, after: "${after}"` : ''}`));
  expect(pages.map((page) => page.map(({ requestId }) => requestId))).toEqual([
    ids.slice(0, 2),
    ids.slice(2, 4),
    ids.slice(4),
  ]);
  const last = await read(`${queued}, last: 3`);
  expect(last.edges.map(({ node }) => node.requestId)).toEqual(ids.slice(2));
  expect(last.totalCount).toBe(5);
  expect((await read('quota: "pat"')).totalCount).toBe(6);
  expect((await read('quota: "pat", states: [COMPLETED]')).edges.map(({ node }) => node.requestId)).toEqual([done]);
  expect((await read('quota: "nobody"')).totalCount).toBe(0);
});

interface Held {
  request: { holds: Connection<{ file: { path: string } }>; awaited: Connection<{ path: string; reason: string }> };
}

test('the files of a request page both ways in the order of its list, and a page reads no more than itself', async () => {
  const listed = Array.from({ length: 300 }, (_, n) => `/list/${(n * 7) % 300}`);
  await addFiles(
    app.ctx,
    listed.map((path) => ({ path })),
  );
  await addQuota(app.ctx, 'rosa', 1_000_000n);
  const missing = ['/none/3', '/none/1', '/none/2'];
  const id = await createRequest(app.ctx, { quota: 'rosa', files: [...listed, ...missing] });
  const read = (field: string, args: string) =>
    askData<Held>(
      app,
      `{ request(id: ${id}) { ${field}(${args}) {
        edges { cursor node { ${field === 'holds' ? 'file { path }' : 'path reason'} } } ${PAGE_INFO} } } }`,
    );
  const pages = await readAll(
    async (after) => (await read('holds', `first: 120${after ? `, after: "${after}"` : ''}`)).request.holds,
  );
  expect(pages.flat().map(({ file }) => file.path)).toEqual(listed);
  const { holds: last } = (await read('holds', 'last: 2')).request;
  expect(last.edges.map(({ node }) => node.file.path)).toEqual(listed.slice(-2));
  const before = `last: 3, before: "${last.pageInfo.startCursor}"`;
  const { holds: previous } = (await read('holds', before)).request;
  expect(previous.edges.map(({ node }) => node.file.path)).toEqual(listed.slice(-5, -2));
  expect(previous.pageInfo).toMatchObject({ hasNextPage: true, hasPreviousPage: true });

  const { awaited } = (await read('awaited', 'first: 2')).request;
  expect(awaited.edges.map(({ node }) => node)).toEqual([
    { path: '/none/3', reason: 'UNKNOWN' },
    { path: '/none/1', reason: 'UNKNOWN' },
  ]);
  const after = (await read('holds', 'first: 1')).request.holds.pageInfo.endCursor;
  const statements = await recordStatements(() => read('holds', `first: 2, after: "${after}"`));
  expect(Math.max(...statements.map(({ rows }) => rows))).toBe(3); // and one to know whether there are more
});

test('the holds of a request are chosen by state', async () => {
  await addFiles(app.ctx, [
    { path: '/h/1' },
    { path: '/h/2', stage: 'ONDISK' },
    { path: '/h/3' },
    { path: '/h/4', stage: 'UNVERIFIED' },
  ]);
  await addQuota(app.ctx, 'sven', 1_000_000n);
  const id = await createRequest(app.ctx, { quota: 'sven', pattern: '/h/' });
  const query = `query ($id: Int!, $states: [HoldState!]) { request(id: $id) {
    holds(states: $states) { edges { node { file { path } size state error errorClass } } } } }`;
  const read = async (states: string[] | null) =>
    (await askData<Held>(app, query, { id, states })).request.holds.edges.map(({ node }) => node);
  const hold = (path: string, state: string) => ({
    file: { path },
    size: '1000',
    state,
    error: null,
    errorClass: null,
  });
  const [one, two, three, four] = [
    hold('/h/1', 'WAITING'),
    hold('/h/2', 'ON_DISK'),
    hold('/h/3', 'WAITING'),
    hold('/h/4', 'ON_DISK'),
  ];
  expect(await read(['WAITING'])).toEqual([one, three]);
  expect(await read(['ON_DISK', 'FAILED'])).toEqual([two, four]);
  expect(await read(null)).toEqual([one, two, three, four]);
});

test('the requests of a quota come newest first, ended ones too', async () => {
  await addQuota(app.ctx, 'tove', 1_000_000n);
  await addFiles(app.ctx, [{ path: '/t/1' }]);
  const ids: number[] = [];
  for (let n = 0; n < 5; n++) ids.unshift(await createRequest(app.ctx, { quota: 'tove', pattern: '/t/' }));
  await askData(app, `mutation { cancelRequest(id: ${ids[1]}) { __typename } }`);
  const read = async (args: string) => {
    const query = `{ quota(user: "tove") { requests(${args}) { totalCount edges { cursor node { requestId } } ${PAGE_INFO} } } }`;
    return (await askData<{ quota: { requests: Connection<{ requestId: number }> } }>(app, query)).quota.requests;
  };
  const pages = await readAll((after) => read(`first: 2${after ? `, after: "${after}"` : ''}`));
  expect(pages.flat().map(({ requestId }) => requestId)).toEqual(ids);
  const last = await read('last: 2');
  expect(last.edges.map(({ node }) => node.requestId)).toEqual(ids.slice(-2));
  expect(last.totalCount).toBe(5);
  const previous = await read(`last: 2, before: "${last.pageInfo.startCursor}"`);
  expect(previous.edges.map(({ node }) => node.requestId)).toEqual(ids.slice(1, 3));
});
