import { getIntrospectionQuery, Kind, type SelectionNode } from 'graphql';
import { expect, test } from 'vitest';
import { selectedNames } from '../../graphql/schema/pages.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { startBeside } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { ask, askData, askErrors, type Edges, sendGraphql } from '../support/graphql.js';
import { send } from '../support/http.js';
import { recordStatements } from '../support/statements.js';
import { useApp } from '../support/use-app.js';

const USERS = 20;

const app = useApp({}, async () => {
  await addRequests();
});

/**
 * Adds a request for each of `USERS` users. Each request contains three files on three volumes and three unknown paths.
 */
async function addRequests(): Promise<void> {
  await addFiles(
    app.ctx,
    Array.from({ length: 3 * USERS }, (_, n) => ({ path: `/n/${n}`, volume: `V${n}` })),
  );
  for (let n = 0; n < USERS; n++) {
    await addQuota(app.ctx, `user-${n}`, 1_000_000n);
    const files = [0, 1, 2].flatMap((part) => [`/n/${3 * n + part}`, `/none/${n}/${part}`]);
    await createRequest(app.ctx, { quota: `user-${n}`, files });
  }
}

test('nested lists belong to their parents', async () => {
  interface Answer {
    requests: Edges<{ label: string; files: Edges<{ file: { path: string } }>; unresolved: Edges<{ path: string }> }>;
  }
  const query = `{ requests(first: ${USERS}) { edges { node { label
    files(first: 2) { edges { node { file { path } } } } unresolved(last: 2) { edges { node { path } } } } } } }`;
  const { requests } = await askData<Answer>(app, query);
  const found = requests.edges.map(({ node }) => ({
    label: node.label,
    files: node.files.edges.map((edge) => edge.node.file.path),
    unresolved: node.unresolved.edges.map((edge) => edge.node.path),
  }));
  const expected = Array.from({ length: USERS }, (_, n) => ({
    label: `/n/${3 * n}`,
    files: [`/n/${3 * n}`, `/n/${3 * n + 1}`],
    unresolved: [`/none/${n}/1`, `/none/${n}/2`],
  }));
  expect(found).toEqual(expected.reverse());
});

const nest = (depth: number): string =>
  depth <= 0 ? 'label' : `quota { requests(first: 1) { edges { node { ${nest(depth - 5)} } } } }`;

test('a query that is nested too deeply is refused before it reads anything', async () => {
  const query = `{ request(requestId: 1) { ${nest(20)} } }`;
  const statements = await recordStatements(async () => {
    expect(await askErrors(app, query)).toEqual([
      'the operation nests fields 18 levels deep, but the maximum is 12 (GRAPHQL_DEPTH)',
    ]);
  });
  expect(statements).toEqual([]);
  await askData(app, `{ request(requestId: 1) { ${nest(5)} } }`);
});

test('the cost of a query is computed from its variables each time', async () => {
  const inner = 'requests(first: $size) { edges { node { label } } }';
  const query = `query ($size: Int!) { quotas(first: $size) { edges { node { ${inner} } } } }`;
  for (let round = 0; round < 2; round++) {
    expect(await ask(app, query, { size: 2 })).not.toHaveProperty('errors');
    expect(await askErrors(app, query, { size: 1000 })).toEqual([
      expect.stringMatching(/^the operation has a cost of \d+, but the maximum is 100000 \(GRAPHQL_COMPLEXITY\)$/),
    ]);
  }
});

test('a query with too many fields is refused', async () => {
  const query = `{ ${Array.from({ length: 201 }, (_, n) => `q${n}: quota(user: "user-1") { id }`).join(' ')} }`;
  const message = 'the operation has 402 fields, but the maximum is 200 (GRAPHQL_BREADTH)';
  const extensions = { code: 'TOO_LARGE', limit: 'GRAPHQL_BREADTH', found: 402, allowed: 200 };
  expect(await ask(app, query)).toEqual({ errors: [{ message, extensions }] });
  const Accept = 'application/graphql-response+json';
  expect((await sendGraphql(app, { query }, { headers: { Accept } })).status).toBe(400);
  const stream = await send(app, '/graphql/stream', {
    headers: { 'Content-Type': 'application/json', Accept: 'text/event-stream' },
    body: { query },
  });
  expect(stream.text).toContain(`data: ${JSON.stringify({ errors: [{ message, extensions }] })}`);
});

test('a subscription that is too large is refused at its start', async () => {
  const fields = Array.from({ length: 201 }, (_, n) => `p${n}: path`).join(' ');
  const query = `subscription { stageChanges(match: "/never/") { ${fields} } }`;
  for (const path of ['/graphql', '/graphql/stream']) {
    const headers = { 'Content-Type': 'application/json', Accept: 'text/event-stream' };
    expect((await send(app, path, { headers, body: { query } })).text).toContain(
      'the operation has 202 fields, but the maximum is 200 (GRAPHQL_BREADTH)',
    );
  }
});

test('only the executed operation is counted, with its variables', async () => {
  const many = Array.from({ length: 201 }, (_, n) => `q${n}: __typename`).join(' ');
  const query = `query Large { ${many} } query Page($first: Int!) { requests(first: $first) { edges { node { files(first: $first) { edges { node { size } } } } } } }`;
  const run = async (operationName: string, variables: object) =>
    (await sendGraphql(app, { query, operationName, variables })).body.errors;
  expect(await run('Page', { first: 2 })).toBe(undefined);
  expect(await run('Page', { first: 1000 })).toMatchObject([
    { extensions: { code: 'TOO_LARGE', limit: 'GRAPHQL_COMPLEXITY' } },
  ]);
  expect(await run('Large', {})).toMatchObject([{ extensions: { code: 'TOO_LARGE', limit: 'GRAPHQL_BREADTH' } }]);
  expect(await run('Page', { first: 'many' })).toMatchObject([
    {
      message: expect.stringContaining('Variable "$first" got invalid value'),
      extensions: { code: 'BAD_USER_INPUT' },
    },
  ]);
});

const manyOf = (count: number, field: string) => Array.from({ length: count }, (_, n) => `a${n}:${field}`).join(' ');
const RICH = 'fragment F on __Schema { types { name kind description fields { name description } } }';

test.each([['a fragment', `{ ...A } fragment A on Query { ${manyOf(200, '__schema{...F}')} } ${RICH}`]])(
  'an introspection query that is too large is refused: %s',
  async (_what, query) => {
    const says = /^(the introspection in the query has a cost of|the operation has) \d+.* \d+ (is|are) allowed/;
    expect(await askErrors(app, query)).toEqual([expect.stringMatching(says)]);
  },
);

const repeat = (count: number, text: string) => Array(count).fill(text).join(' ');
const fragments = (count: number) =>
  `{ ...F0 } ${Array.from({ length: count }, (_, n) => `fragment F${n} on Query { a: __typename ...F${n + 1} ...F${n + 2} }`).join(' ')}`;

test.each([
  [
    'fields',
    `{ ${repeat(1400, 'a:__typename')} }`,
    'the query has 1400 fields and fragment spreads, but at most 500 are',
  ],
  [
    'fields that are compared',
    `{ ${repeat(300, 'a:quota(user:"u"){id}')} }`,
    'the query has 600 fields and fragment spreads',
  ],
  [
    'fields with arguments',
    `{ ${repeat(51, 'a:quota(user:"u"){id}')} }`,
    'the query has 51 fields with the same alias or name that have arguments or subfields, but at most 50 are allowed',
  ],
  ['fragments', fragments(100), 'the query has 101 operations and fragments, but at most 50 are allowed'],
  ['comments', `{ caller { name } } ${repeat(100_000, '#\n')}`, 'characters, but at most 262144 are allowed'],
  ['commas', `{ caller { name } } ${repeat(150_000, ',')}`, 'characters, but at most 262144 are allowed'],
])('a document with too many %s is refused before it is validated', async (_what, query, says) => {
  const refused = {
    message: expect.stringContaining(says),
    extensions: expect.objectContaining({ code: 'TOO_LARGE' }),
  };
  expect((await ask(app, query)).errors).toEqual([refused]);
  const headers = { 'Content-Type': 'application/json', Accept: 'text/event-stream' };
  expect((await send(app, '/graphql/stream', { headers, body: { query } })).text).toContain(says);
  if (query.length < 8000)
    expect(
      (
        await send(app, `/graphql?query=${encodeURIComponent(query)}`, {
          headers: { Authorization: `Bearer ${app.token}` },
        })
      ).text,
    ).toContain(says);
});

test('the introspection queries of tools are answered, even two in one query', async () => {
  const whole = getIntrospectionQuery({ specifiedByUrl: true, inputValueDeprecation: true, oneOf: true });
  await askData(app, whole);
  await askData(app, whole.replace('__schema {', 'again: __schema { types { ...FullType } } __schema {'));
});

test('a query with too many counts is refused before it reads anything', async () => {
  const counts = (count: number) =>
    `{ ${Array.from({ length: count }, (_, n) => `c${n}: tapeFiles(match: "${n}") { totalCount }`).join(' ')} }`;
  const statements = await recordStatements(async () => {
    const says = ['the query requests the total counts of 60 top-level lists, but at most 25 are allowed'];
    expect(await askErrors(app, counts(60))).toEqual(says);
    const named = `${counts(60).replaceAll('totalCount', '...C')} fragment C on TapeFileConnection { totalCount }`;
    expect(await askErrors(app, named)).toEqual(says);
  });
  expect(statements).toEqual([]);
  await askData(app, counts(25));
});

test('fragments that are nested as deep as one likes do not exhaust the stack', () => {
  let selections: SelectionNode[] = [{ kind: Kind.FIELD, name: { kind: Kind.NAME, value: 'path' } }];
  for (let depth = 0; depth < 100_000; depth++) {
    selections = [{ kind: Kind.INLINE_FRAGMENT, selectionSet: { kind: Kind.SELECTION_SET, selections } }];
  }
  const fieldNodes = [{ selectionSet: { selections } }];
  expect(selectedNames({ fieldNodes, fragments: {} } as never)).toEqual(['path']);
});

test('the limits of depth, breadth and complexity are configured', async () => {
  const narrow = await startBeside(app, { limits: { graphqlDepth: 5, graphqlBreadth: 8, graphqlComplexity: 1000 } });
  try {
    const query = (fields: string) => `{ requests { edges { node { quota { ${fields} } } } } }`;
    await askData(narrow, query('user used'));
    expect(await askErrors(narrow, query('user requests { edges { cursor } }'))).toEqual([
      expect.stringMatching(/the maximum is 5 \(GRAPHQL_DEPTH\)/),
    ]);
    expect(await askErrors(narrow, query('id user used size email'))).toEqual([
      expect.stringMatching(/the maximum is 8 \(GRAPHQL_BREADTH\)/),
    ]);
    const tooCostly = [expect.stringMatching(/the maximum is 1000 \(GRAPHQL_COMPLEXITY\)/)];
    expect(await askErrors(narrow, query('user').replace('requests', 'requests(first: 500)'))).toEqual(tooCostly);
    const listed = (fields: string) => `query ($stages: [Stage!]) { ${fields} }`;
    const stages = Array(6000).fill('ONTAPE');
    await askData(narrow, listed('tapeFiles(stages: $stages) { totalCount }'), { stages });
    const twice = listed('a: tapeFiles(stages: $stages) { totalCount } b: tapeFiles(stages: $stages) { totalCount }');
    expect(await askErrors(narrow, twice, { stages })).toEqual(tooCostly);
  } finally {
    await narrow.close();
  }
});

test.each(['/graphql', '/graphql/stream'])('%s refuses a query of too many tokens', async (path) => {
  const headers = { 'Content-Type': 'application/json', Accept: 'text/event-stream' };
  const body = { query: `{ ${'__typename '.repeat(10_001)} }` };
  expect((await send(app, path, { headers, body })).text).toContain('Document contains more that 10000 tokens');
});

test('the first error of variables is reported, shortened, also on a stream', async () => {
  const ask = async (variables: object, path = '/graphql') => {
    const query = 'query ($i: CreateRequestInput!) { estimateRequest(input: $i) { errors { message } } }';
    const headers = { 'Content-Type': 'application/json', ...(path !== '/graphql' && { Accept: 'text/event-stream' }) };
    return (await send(app, path, { headers, body: { query, variables } })).text;
  };
  const keys = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, n) => [`k${n}`, 'x'.repeat(1000)]));
  for (const path of ['/graphql', '/graphql/stream']) {
    const wrong = await ask({ i: { quota: 'user-1', files: Array(1000).fill(1) } }, path);
    expect(wrong.split('String cannot represent')).toHaveLength(2);
    const unknown = await ask({ i: keys(100) }, path);
    expect(unknown).toContain('got invalid value { k0: ');
    expect(unknown.length).toBeLessThan(1000);
    expect(await ask({ i: { ...keys(1), files: [keys(101)] } }, path)).toContain(
      'an object in the variables has 101 keys, but at most 100 are allowed',
    );
  }
});

test('a page has 50 items by default, and at most 1000', async () => {
  await addFiles(
    app.ctx,
    Array.from({ length: 1001 }, (_, n) => ({ path: `/page/${n}` })),
  );
  interface Answer {
    tapeFiles: { totalCount: number; edges: unknown[]; pageInfo: { hasNextPage: boolean } };
  }
  const read = async (args: string) => {
    const query = `{ tapeFiles(match: "/page/"${args}) { totalCount edges { cursor } pageInfo { hasNextPage } } }`;
    const { totalCount, edges, pageInfo } = (await askData<Answer>(app, query)).tapeFiles;
    return { totalCount, edges: edges.length, hasNextPage: pageInfo.hasNextPage };
  };
  expect(await read('')).toEqual({ totalCount: 1001, edges: 50, hasNextPage: true });
  expect(await read(', first: 5000')).toEqual({ totalCount: 1001, edges: 1000, hasNextPage: true });
  expect(await read(', first: 0')).toEqual({ totalCount: 1001, edges: 0, hasNextPage: true });
});
