/**
 * Related lists, filters and orders of GraphQL, objects by global id, and the progress of several requests. One file,
 * because all tests check the same thing, that a caller sees only what the path rules and quotas allow, on one archive.
 */
import { afterEach, describe, expect, test } from 'vitest';
import { setQuotaMember } from '../../src/domain/access/members.js';
import { addPathRule, removePathRule } from '../../src/domain/access/path-rules.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { setDisk } from '../../src/domain/disks/disks.js';
import { suspend } from '../../src/domain/health/suspensions.js';
import { addLibrary } from '../../src/domain/libraries/changes.js';
import { createWebhook, testWebhook } from '../../src/domain/notifications/webhooks/webhooks.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { cancelRequest } from '../../src/domain/requests/ends.js';
import { updateRequest } from '../../src/domain/requests/update.js';
import { addFiles, addPaths, addQuota } from '../support/factories.js';
import { ask, askData, type Connection, type Edges, PAGE_INFO } from '../support/graphql.js';
import { cancel } from '../support/mutations.js';
import { postOperation, type Stream, take, waitForReaders } from '../support/streams.js';
import { useApp } from '../support/use-app.js';

const tokens: Record<string, string> = {};
const app = useApp({ config: { access: { auth: new Set(['token']) } } }, async () => {
  for (const user of ['alice', 'bob']) {
    await addQuota(app.ctx, user, 10n ** 9n);
    tokens[user] = (await createToken(app.ctx, { name: user, role: 'USER' })).secret;
  }
  tokens.viewer = (await createToken(app.ctx, { name: 'viewer', role: 'VIEWER' })).secret;
  tokens.operator = app.token;
});

const gatewayOf = (caller: string) => ({ url: app.url, token: tokens[caller] });

async function sql<Row>(text: string, values: unknown[] = []): Promise<Row[]> {
  return (await app.ctx.db.pool.query(text, values)).rows as Row[];
}

const idOf = async (table: string, column: string, value: string) =>
  Number((await sql<{ id: bigint }>(`SELECT id FROM ${table} WHERE ${column} = $1`, [value]))[0]?.id);

const globalId = (type: string, id: unknown) => Buffer.from(`${type}:${id}`).toString('base64');
const invalid = (field: string, message: unknown) => [{ message, extensions: { code: 'INVALID_INPUT', field } }];

type Page = { rows: string[]; total: number } & Connection<unknown>['pageInfo'];

/** Reads a page of a query with one list. `%` in the query stands for the arguments, `#` for the selection. */
async function readPage(caller: string, query: string, row: string, args: string): Promise<Page> {
  const selection = `totalCount edges { cursor node { row: ${row} } } ${PAGE_INFO}`;
  const text = query.replace('%', args).replace('#', selection);
  let data: unknown = await askData(gatewayOf(caller), text);
  while (!(data as object as { edges?: unknown }).edges) [data] = Object.values(data as object);
  const { edges, pageInfo, totalCount = -1 } = data as Connection<{ row: unknown }>;
  return { rows: edges.map(({ node }) => String(node.row)), total: totalCount, ...pageInfo };
}

/** Expects that the pages of a list contain these rows, in both directions, with the total count. */
async function expectPages(caller: string, query: string, row: string, rows: readonly string[]): Promise<void> {
  const read = (args: string) => readPage(caller, query, row, args);
  expect(await read('first: 1000')).toMatchObject({ rows, total: rows.length, hasNextPage: false });
  expect(await read('last: 1000')).toMatchObject({ rows, total: rows.length, hasPreviousPage: false });
  expect(await read('first: 0')).toMatchObject({ rows: [], total: rows.length });
  for (const size of [1, 2, 4]) {
    const [forward, backward]: [string[], string[]] = [[], []];
    for (let after = ''; ; ) {
      const page = await read(`first: ${size}${after}`);
      expect(page.total).toBe(rows.length);
      forward.push(...page.rows);
      if (!page.hasNextPage) break;
      after = `, after: "${page.endCursor}"`;
    }
    for (let before = ''; ; ) {
      const page = await read(`last: ${size}${before}`);
      expect(page.total).toBe(rows.length);
      backward.unshift(...page.rows);
      if (!page.hasPreviousPage) break;
      before = `, before: "${page.startCursor}"`;
    }
    expect([size, forward, backward]).toEqual([size, rows, rows]);
  }
}

/** Expects that each page of one row contains a row, and that only the last row has no next page. */
async function expectFullPages(caller: string, query: string, row: string, rows: readonly string[]): Promise<void> {
  let after = '';
  for (const [index, each] of rows.entries()) {
    const page = await readPage(caller, query, row, `first: 1${after}`);
    expect(page).toMatchObject({ rows: [each], hasNextPage: index < rows.length - 1 });
    after = `, after: "${page.endCursor}"`;
  }
}

describe('related lists', () => {
  const names = ['1', '2', '3', '4', '5'];
  const paths = names.map((name) => `/related/${name}`);
  let library = 0;

  test('the fixtures are there', async () => {
    await addFiles(
      app.ctx,
      paths.map((path) => ({ path, volume: 'RELATED' })),
    );
    await addFiles(app.ctx, [{ path: '/elsewhere/1', volume: 'OTHER' }]);
    const disk = await setDisk(app.ctx, { mountpoint: '/mnt/related', size: 10n ** 9n });
    await sql(
      `UPDATE tape_file SET stage = 'RESTORED', disk_id = $1 WHERE path LIKE '/related/%' OR path = '/elsewhere/1'`,
      [disk.id],
    );
    // copies that an engine removes soon, and withdrawn files, are in no list
    await addFiles(app.ctx, [
      { path: '/going/1', volume: 'RELATED' },
      { path: '/going/2', volume: 'RELATED' },
    ]);
    await sql(`UPDATE tape_file SET disk_id = $1 WHERE path LIKE '/going/%'`, [disk.id]);
    await sql(`UPDATE tape_file SET withdrawn_at = now() WHERE path LIKE '/going/%'`);
    await addLibrary(app.ctx, { name: 'east', kind: 'directory', settings: { directory: '/tapes' } });
    library = await idOf('library', 'name', 'east');
    await sql(
      `INSERT INTO volume (name, library_id, retired_at)
         SELECT 'E' || n, $1, CASE WHEN n = 3 THEN now() END FROM generate_series(1, 6) n`,
      [library],
    );
    await sql(`INSERT INTO drive (name, library_id) SELECT 'east-' || n, $1 FROM generate_series(3, 5) n`, [library]);
    for (const path of paths.slice(0, 2)) {
      for (let n = 0; n < 3; n++) await createRequest(app.ctx, { quota: 'alice', files: [path] });
    }
    await createRequest(app.ctx, { quota: 'bob', files: [paths[0] ?? ''] });
  });

  const ofNode = (type: string, id: number, field: string) =>
    `{ node(id: "${globalId(type, id)}") { ... on ${type} { ${field}(%) { # } } } }`;

  test('the files on a volume', async () => {
    const query = ofNode('Volume', await idOf('volume', 'name', 'RELATED'), 'files');
    for (const caller of ['operator', 'alice']) await expectPages(caller, query, 'path', paths);
  });

  test('the files on a restore disk', async () => {
    const query = ofNode('RestoreDisk', await idOf('restore_disk', 'mountpoint', '/mnt/related'), 'files');
    for (const caller of ['operator', 'alice']) await expectPages(caller, query, 'path', [...paths, '/elsewhere/1']);
  });

  test('the volumes and drives of a library', async () => {
    const volumes = ['E1', 'E2', 'E4', 'E5', 'E6'];
    await expectPages('alice', ofNode('Library', library, 'volumes'), 'name', volumes);
    const drives = ['east-1', 'east-2', 'east-3', 'east-4', 'east-5'];
    await expectPages('alice', ofNode('Library', library, 'drives'), 'name', drives);
    type Count = { node: { volumeCount: number } };
    const query = `{ node(id: "${globalId('Library', library)}") { ... on Library { volumeCount } } }`;
    expect((await askData<Count>(app, query)).node.volumeCount).toBe(volumes.length);
  });

  test('the live requests with a file, newest first, that the caller may see', async () => {
    const [cancelled, ...live] = await sql<{ id: number; user: string }>(
      `SELECT r.id, q."user" FROM request r JOIN quota q ON q.id = r.quota_id
         WHERE EXISTS (SELECT FROM request_file h JOIN tape_file f ON f.id = h.file_id WHERE h.request_id = r.id AND f.path = $1)
         ORDER BY r.id DESC`,
      [paths[0]],
    );
    const query = `{ tapeFile(path: "${paths[0]}") { requests(%) { # } } }`;
    const rows = (user?: string) =>
      [cancelled, ...live].flatMap((each) => (each && (!user || each.user === user) ? String(each.id) : []));
    expect(rows()).toHaveLength(4);
    for (const [caller, user] of [
      ['operator', undefined],
      ['viewer', undefined],
      ['alice', 'alice'],
      ['bob', 'bob'],
    ] as const)
      await expectPages(caller, query, 'requestId', rows(user));
    for (const user of ['alice', 'bob']) await expectFullPages(user, query, 'requestId', rows(user));
    await cancel(app, cancelled?.id ?? 0);
    await expectPages('operator', query, 'requestId', rows().slice(1));
    const none = { rows: [], total: 0, startCursor: null, endCursor: null, hasNextPage: false };
    expect(await readPage('bob', query, 'requestId', 'first: 10')).toMatchObject(none);
  });

  test('the quotas of the caller', async () => {
    for (const group of ['lab-1', 'lab-2', 'lab-3', 'lab-4']) {
      await addQuota(app.ctx, group, 1n);
      if (group !== 'lab-3')
        await setQuotaMember(app.ctx, { quota: group, kind: 'USER', name: 'erin', isManager: false });
    }
    await addQuota(app.ctx, 'erin', 1n);
    tokens.erin = (await createToken(app.ctx, { name: 'erin', role: 'USER' })).secret;
    tokens.pipeline = (
      await createToken(app.ctx, { name: 'pipeline', role: 'SERVICE', quotas: ['lab-2', 'lab-3'] })
    ).secret;
    const query = '{ caller { quotas(%) { # } } }';
    await expectPages('erin', query, 'user', ['erin', 'lab-1', 'lab-2', 'lab-4']);
    await expectPages('pipeline', query, 'user', ['lab-2', 'lab-3']);
    const all = ['alice', 'bob', 'erin', 'lab-1', 'lab-2', 'lab-3', 'lab-4'];
    for (const caller of ['operator', 'viewer']) await expectPages(caller, query, 'user', all);
  });

  test('path rules hide files in each list, and from its count', async () => {
    const rule = { prefix: '/related/2', action: 'LIST', kind: 'USER', name: 'bob' } as const;
    const fetchRule = { ...rule, prefix: '/related/4', action: 'FETCH' } as const;
    const onVolume = ofNode('Volume', await idOf('volume', 'name', 'RELATED'), 'files');
    const onDisk = ofNode('RestoreDisk', await idOf('restore_disk', 'mountpoint', '/mnt/related'), 'files');
    await addPathRule(app.ctx, rule);
    await addPathRule(app.ctx, fetchRule);
    const all = [...paths, '/elsewhere/1'];
    const without = (hidden: string[]) => all.filter((path) => !hidden.includes(path));
    for (const caller of ['bob', 'viewer']) {
      await expectPages(caller, onVolume, 'path', paths);
      await expectPages(caller, onDisk, 'path', all);
    }
    for (const [query, rows] of [
      [onVolume, without(['/related/2', '/elsewhere/1'])],
      [onDisk, without(['/related/2', '/related/4'])],
    ] as const) {
      await expectPages('alice', query, 'path', rows);
      // hidden files neither shorten a page nor change its cursors
      await expectFullPages('alice', query, 'path', rows);
    }
    const filtered = '{ tapeFiles(directory: "/related", volume: "RELATED", minSize: 0, %) { # } }';
    await expectPages('alice', filtered, 'path', without(['/related/2', '/elsewhere/1']));
    const directory = '{ directory(path: "/related") { entries { edges { node { path } } } } }';
    type Entries = { directory: { entries: Edges<{ path: string }> } };
    const { entries } = (await askData<Entries>(gatewayOf('alice'), directory)).directory;
    expect(entries.edges.map(({ node }) => node.path)).toEqual(without(['/related/2', '/elsewhere/1']));
    for (const each of [rule, fetchRule]) await removePathRule(app.ctx, each);
  });

  test('a file with an id beyond 32 bits has a cursor like any other', async () => {
    await addPaths(app.ctx, '/beyond/1', '/beyond/2', '/beyond/3');
    await sql(`INSERT INTO volume (name) VALUES ('BEYOND')`);
    await sql(
      `UPDATE tape_file SET id = id + 5000000000, volume_id = (SELECT id FROM volume WHERE name = 'BEYOND')
         WHERE path LIKE '/beyond/%'`,
    );
    const query = ofNode('Volume', await idOf('volume', 'name', 'BEYOND'), 'files');
    await expectPages('operator', query, 'path', ['/beyond/1', '/beyond/2', '/beyond/3']);
  });
});

describe('objects by global id', () => {
  const ids: Record<string, string> = {};
  const NODE = 'query ($id: ID!) { node(id: $id) { __typename id } }';
  const NODES = 'query ($ids: [ID!]!) { nodes(ids: $ids) { __typename id } }';

  test('lists and fields return the ids', async () => {
    await addPaths(app.ctx, '/node/1');
    const request = await createRequest(app.ctx, { quota: 'alice', files: ['/node/1'] });
    await setQuotaMember(app.ctx, { quota: 'alice', kind: 'GROUP', name: 'sea/ice: all', isManager: true });
    await addPathRule(app.ctx, { prefix: '/nowhere', action: 'LIST', kind: 'EVERYBODY' });
    await suspend(app.ctx, { kind: 'USER', name: 'alice', mode: 'DRAINING', reason: 'asked' });
    await suspend(app.ctx, { kind: 'DISK', name: '/mnt/related', mode: 'DRAINING', reason: '' });
    const { webhook } = await createWebhook(app.ctx, { quota: 'alice', url: 'https://example.org/' });
    await testWebhook(app.ctx, webhook.id);
    await sql(`INSERT INTO verification (file_id, attempts, error_class, error, at)
      SELECT id, 1, 'MEDIA', 'no bytes', '2026-01-01' FROM tape_file WHERE path = '/node/1'`);
    const query = `{
      request(requestId: ${request}) { id files { edges { node { id } } } }
      quota(user: "alice") { id members { edges { node { id } } } suspension { id } }
      restoreDisks { edges { node { suspension { id } } } }
      pathRules { edges { node { id } } }
      verificationFailures { edges { node { id } } }
      tokens(first: 1) { edges { node { id } } }
      webhooks { edges { node { id } } }
      webhookMessages(webhookId: ${webhook.id}) { edges { node { id } } }
      auditEntries(operation: "testWebhook") { edges { node { id } } } }`;
    const text = JSON.stringify(await askData(app, query));
    for (const [, id = ''] of text.matchAll(/"id":"([^"]+)"/g)) {
      const [type = '', local = ''] = Buffer.from(id, 'base64').toString().split(/:(.*)/s);
      ids[type === 'Suspension' ? `${type} ${local.split('/')[0]}` : type] = id;
    }
    expect(Object.keys(ids).sort()).toEqual([
      ...['AuditEntry', 'PathRule', 'Quota', 'QuotaMember', 'Request', 'RequestFile', 'Suspension DISK'],
      ...['Suspension USER', 'Token', 'VerificationFailure', 'Webhook', 'WebhookMessage'],
    ]);
  });

  const typeOf = (name: string) => name.split(' ')[0];

  test('an operator reads each object by its id, alone and with others', async () => {
    const expected = Object.entries(ids).map(([name, id]) => ({ __typename: typeOf(name), id }));
    for (const node of expected) expect(await askData(app, NODE, { id: node.id })).toEqual({ node });
    const missing = [
      globalId('Webhook', 37),
      globalId('RequestFile', '1/2147483647'),
      globalId('QuotaMember', '1/USER/x'),
    ];
    const asked = [...expected.map(({ id }) => id), ...missing, expected[0]?.id, expected[0]?.id];
    const nodes = [...expected, null, null, null, expected[0], expected[0]];
    expect(await askData(app, NODES, { ids: asked })).toEqual({ nodes });
    expect(await askData(app, NODES, { ids: asked.toReversed() })).toEqual({ nodes: nodes.toReversed() });
    expect(await askData(app, NODES, { ids: [] })).toEqual({ nodes: [] });
  });

  test('each object shows its fields', async () => {
    const query = `query ($ids: [ID!]!) { nodes(ids: $ids) {
      ... on RequestFile { fileState: state size file { path } } ... on Suspension { suspended: kind name reason }
      ... on Webhook { url user } ... on WebhookMessage { type messageState: state } ... on Token { role }
      ... on AuditEntry { operation caller objectKind } ... on PathRule { prefix action ruleKind: kind }
      ... on QuotaMember { member: name memberKind: kind isManager } ... on VerificationFailure { error errorClass file { path } } } }`;
    const given = ['RequestFile', 'Suspension USER', 'Suspension DISK', 'Webhook', 'WebhookMessage', 'Token'];
    const others = ['AuditEntry', 'PathRule', 'QuotaMember', 'VerificationFailure'];
    expect(await askData(app, query, { ids: [...given, ...others].map((name) => ids[name]) })).toEqual({
      nodes: [
        { fileState: 'WAITING', size: '1000', file: { path: '/node/1' } },
        { suspended: 'USER', name: 'alice', reason: 'asked' },
        { suspended: 'DISK', name: '/mnt/related', reason: null },
        { url: 'https://example.org/', user: 'alice' },
        { type: 'WEBHOOK_TEST', messageState: 'PENDING' },
        { role: 'OPERATOR' },
        { operation: 'testWebhook', caller: 'system', objectKind: 'WEBHOOK' },
        { prefix: '/nowhere', action: 'LIST', ruleKind: 'EVERYBODY' },
        { member: 'sea/ice: all', memberKind: 'GROUP', isManager: true },
        { error: 'no bytes', errorClass: 'MEDIA', file: { path: '/node/1' } },
      ],
    });
  });

  const OWN = ['Quota', 'QuotaMember', 'Request', 'RequestFile', 'Suspension USER', 'Webhook', 'WebhookMessage'];
  const LOOK = ['PathRule', 'VerificationFailure'];
  const OPERATE = ['AuditEntry', 'Token'];

  test.each([
    ['alice', [...OWN, 'Suspension DISK'], [...LOOK, ...OPERATE]],
    ['bob', ['Suspension DISK'], [...LOOK, ...OPERATE]],
    [
      'viewer',
      ['Quota', 'QuotaMember', 'Request', 'RequestFile', 'Suspension USER', 'Suspension DISK', ...LOOK],
      [...OPERATE, 'Webhook', 'WebhookMessage'],
    ],
  ])('%s reads only the objects that its lists contain', async (caller, seen, forbidden) => {
    for (const [name, id] of Object.entries(ids)) {
      const one = await ask(gatewayOf(caller), NODE, { id });
      const many = await ask(gatewayOf(caller), NODES, { ids: [id] });
      const code = (answer: typeof one) => answer.errors?.map(({ extensions }) => extensions?.code);
      if (forbidden.includes(name)) {
        expect([name, one.data, code(one)]).toEqual([name, { node: null }, ['FORBIDDEN']]);
        expect([name, many.data, code(many)]).toEqual([name, { nodes: null }, ['FORBIDDEN']]);
      } else {
        const node = seen.includes(name) ? { __typename: typeOf(name), id } : null;
        expect([name, one, many]).toEqual([name, { data: { node } }, { data: { nodes: [node] } }]);
      }
    }
  });

  test('path rules hide the objects of a file', async () => {
    const rule = { prefix: '/node', action: 'LIST', kind: 'USER', name: 'alice' } as const;
    await setQuotaMember(app.ctx, { quota: 'bob', kind: 'USER', name: 'alice', isManager: false });
    const request = await createRequest(app.ctx, { quota: 'bob', files: ['/node/1'] });
    const file = await idOf('tape_file', 'path', '/node/1');
    const asked = [globalId('TapeFile', file), globalId('RequestFile', `${request}/${file}`)];
    const nodes = asked.map((id, n) => ({ __typename: n === 0 ? 'TapeFile' : 'RequestFile', id }));
    expect(await askData(gatewayOf('bob'), NODES, { ids: asked })).toEqual({ nodes });
    await addPathRule(app.ctx, rule);
    const own = { __typename: 'Request', id: globalId('Request', request) };
    // a hidden object does not take the place of another
    expect(await askData(gatewayOf('bob'), NODES, { ids: [asked[0], own.id, asked[1], own.id] })).toEqual({
      nodes: [null, own, null, own],
    });
    expect(await askData(gatewayOf('bob'), NODES, { ids: asked })).toEqual({ nodes: [null, null] });
    expect(await askData(gatewayOf('viewer'), NODES, { ids: asked })).toEqual({ nodes });
    await removePathRule(app.ctx, rule);
  });

  test('an id that no object can have is unknown, and too many or invalid ids are refused', async () => {
    const odd: Record<string, unknown[]> = {
      RequestFile: ['1', '1/', '/1', '1/x', '1/1/1', '9999999999/1', '2147483648/1', '1/9223372036854775808', '0/0'],
      QuotaMember: ['1', '1/USER', '1/USER/', '1/ROOT/x', '2147483648/USER/x', '9999999999/USER/x', '1/USER/\0'],
      Suspension: ['VOLUME', 'PLANET/x', 'volume/x', 'VOLUME/\0', 'CLOCK/', `VOLUME/${'x'.repeat(5000)}`],
      Token: [0, -1, '1.5', 2_147_483_647, 2_147_483_648, 'x'],
      Webhook: [0, 2_147_483_648, 'x'],
      PathRule: [0, 2_147_483_648, 'x'],
      WebhookMessage: [0, 2n ** 63n - 1n, 2n ** 63n, 'x'],
      AuditEntry: [0, 2n ** 63n - 1n, 2n ** 63n, 'x'],
      VerificationFailure: [0, 2n ** 63n - 1n, 2n ** 63n, 'x'],
    };
    for (const [type, locals] of Object.entries(odd)) {
      for (const local of locals) {
        const id = globalId(type, local);
        expect([type, local, await ask(app, NODE, { id })]).toEqual([type, local, { data: { node: null } }]);
      }
      const all = locals.map((local) => globalId(type, local));
      expect([type, await ask(app, NODES, { ids: all })]).toEqual([type, { data: { nodes: locals.map(() => null) } }]);
    }
    const refused = async (given: string[]) => (await ask(app, NODES, { ids: given })).errors;
    expect(await refused([globalId('Webhook', 1), globalId('Nothing', 1)])).toMatchObject(
      invalid('ids', expect.stringMatching(/^ids must be the global id of a TapeFile, .*, not "Nothing:1"$/)),
    );
    const many = Array.from({ length: 1001 }, () => globalId('Webhook', 1));
    expect(await refused(many)).toMatchObject([{ message: expect.stringMatching(/1000|cost/) }]);
  });
});

describe('filters', () => {
  test('files are filtered by directory, volume and size', async () => {
    await addFiles(app.ctx, [
      { path: '/filter/a/1', size: 10n, volume: 'F1' },
      { path: '/filter/a/b/2', size: 20n, volume: 'F2' },
      { path: '/filter/a b/3', size: 30n, volume: 'F1' },
      { path: '/filter/a.txt', size: 40n, volume: 'F2' },
      { path: '/filter/a0', size: 9_007_199_254_740_993n, volume: 'F1' },
      { path: '/filter/none', size: 0n, volume: null, position: null },
    ]);
    await sql(
      `UPDATE tape_file SET copy_volume_id = (SELECT id FROM volume WHERE name = 'F1') WHERE path = '/filter/a.txt'`,
    );
    const cases: [args: string, names: string[]][] = [
      ['directory: "/filter"', ['a b/3', 'a.txt', 'a/1', 'a/b/2', 'a0', 'none']],
      ['directory: "/filter/a"', ['a/1', 'a/b/2']],
      ['directory: "/filter/a/"', ['a/1', 'a/b/2']],
      ['directory: "/filter/a/1"', []],
      ['directory: "/filter/none/such"', []],
      ['directory: "/", match: "/filter/a"', ['a b/3', 'a.txt', 'a/1', 'a/b/2', 'a0']],
      ['volume: "F1"', ['a b/3', 'a/1', 'a0']],
      ['volume: "F1", directory: "/filter/a"', ['a/1']],
      ['volume: "F9"', []],
      ['directory: "/filter", minSize: 20', ['a b/3', 'a.txt', 'a/b/2', 'a0']],
      ['directory: "/filter", maxSize: 20', ['a/1', 'a/b/2', 'none']],
      ['directory: "/filter", minSize: 20, maxSize: 30', ['a b/3', 'a/b/2']],
      ['directory: "/filter", minSize: "9007199254740993"', ['a0']],
      ['directory: "/filter", maxSize: 0', ['none']],
      ['directory: "/filter", minSize: 30, maxSize: 20', []],
      ['directory: "/filter", stages: [ONDISK]', []],
    ];
    for (const [args, names] of cases) {
      const rows = names.map((name) => `/filter/${name}`);
      const page = await readPage('operator', '{ tapeFiles(%) { # } }', 'path', `${args}, first: 1000`);
      expect([args, page.rows, page.total]).toEqual([args, rows, rows.length]);
    }
    await expectPages(
      'alice',
      '{ tapeFiles(%, directory: "/filter", minSize: 10) { # } }',
      'path',
      ['a b/3', 'a.txt', 'a/1', 'a/b/2', 'a0'].map((name) => `/filter/${name}`),
    );
    const refused = async (args: string) =>
      (await ask(app, `{ tapeFiles(${args}) { totalCount edges { cursor } } }`)).errors;
    for (const [args, field] of [
      ['directory: "filter"', 'directory'],
      ['directory: "/a/../b"', 'directory'],
      ['directory: "/a//b"', 'directory'],
      ['directory: "/\\u0000"', 'directory'],
      ['volume: "\\u0000"', 'volume'],
      ['minSize: "9223372036854775808"', 'minSize'],
      ['maxSize: -1', 'maxSize'],
    ] as const)
      expect([args, (await refused(args))?.[0]?.extensions]).toEqual([args, { code: 'INVALID_INPUT', field }]);
  });

  test('requests are found by their label, their pattern and their files', async () => {
    await addPaths(app.ctx, '/needle/1', '/hay/1');
    await addQuota(app.ctx, 'finn', 10n ** 9n);
    const add = (input: object) => createRequest(app.ctx, { quota: 'finn', ...input } as never);
    const byFile = await add({ files: ['/needle/1', '/hay/1'], label: 'one' });
    const byPattern = await add({ pattern: '/needle/none', label: 'two' });
    const byLabel = await add({ files: ['/hay/1'], label: 'the needle' });
    const other = await add({ files: ['/hay/1'], label: '50% of hay_' });
    const read = async (args: string, caller = 'operator') => {
      const page = await readPage(caller, '{ requests(%) { # } }', 'requestId', `quota: "finn", first: 10, ${args}`);
      expect(page.total).toBe(page.rows.length);
      return page.rows.map(Number).reverse(); // oldest first
    };
    expect(await read('match: "needle"')).toEqual([byFile, byPattern, byLabel]);
    expect(await read('match: "/needle"')).toEqual([byFile, byPattern]);
    expect(await read('match: "the needle"')).toEqual([byLabel]);
    expect(await read('match: "Needle"')).toEqual([]);
    expect(await read('match: "%"')).toEqual([other]);
    expect(await read('match: "y_"')).toEqual([other]);
    expect(await read('match: ""')).toEqual([byFile, byPattern, byLabel, other]);
    await sql(`UPDATE request SET state = 'RESTORING' WHERE id = $1`, [byFile]);
    expect(await read('match: "needle", states: [RESTORING]')).toEqual([byFile]);
    expect(await read('match: "needle", states: [CANCELLED]')).toEqual([]);
    expect(await read('match: "needle"', 'bob')).toEqual([]);
    const times = ['2026-01-01T00:00:00', '2026-01-02T00:00:00', '2026-01-02T00:00:00.000001', '2026-01-03T00:00:00'];
    for (const [n, id] of [byFile, byPattern, byLabel, other].entries())
      await sql('UPDATE request SET request_date = $2 WHERE id = $1', [id, times[n]]);
    expect(await read('since: "2026-01-02"')).toEqual([byPattern, byLabel, other]);
    expect(await read('until: "2026-01-02"')).toEqual([byFile]);
    expect(await read('since: "2026-01-02", until: "2026-01-03"')).toEqual([byPattern, byLabel]);
    expect(await read('since: "2026-01-02T00:00:00.000001Z"')).toEqual([byLabel, other]);
    expect(await read('since: "2026-01-02T01:00:00+01:00", match: "needle"')).toEqual([byPattern, byLabel]);
    expect(await read('since: "2026-01-03", until: "2026-01-02"')).toEqual([]);
    const { errors } = await ask(app, '{ requests(match: "\\u0000") { totalCount } }');
    expect(errors).toMatchObject(invalid('match', expect.stringContaining('NUL')));
  });

  test('the files of a request are filtered by path', async () => {
    const files = ['/match/a/1', '/match/b/2', '/match/a/3', '/match/a/4', '/match/b/5%'];
    await addFiles(
      app.ctx,
      files.map((path, n) => ({ path, stage: n === 2 ? 'ONDISK' : 'ONTAPE' })),
    );
    const id = await createRequest(app.ctx, { quota: 'alice', files });
    const list = (filter: string) => `{ request(requestId: ${id}) { files(%${filter}) { # } } }`;
    const expectFiles = (filter: string, rows: string[]) => expectPages('alice', list(filter), 'lastError', rows);
    // the error of each file shows its path
    await sql(
      'UPDATE request_file h SET error = f.path FROM tape_file f WHERE f.id = h.file_id AND h.request_id = $1',
      [id],
    );
    await expectFiles(', match: "/a/"', ['/match/a/1', '/match/a/3', '/match/a/4']);
    await expectFiles(', match: "/a/", states: [WAITING]', ['/match/a/1', '/match/a/4']);
    await expectFiles(', match: "%"', ['/match/b/5%']);
    await expectFiles(', match: "A"', []);
    await expectFiles(', match: ""', files);
    await expectFiles('', files);
    const two = `{ request(requestId: ${id}) { a: files(match: "/a/") { totalCount } b: files(match: "/b/") { totalCount }
      c: files { totalCount } } }`;
    expect(await askData(app, two)).toEqual({
      request: { a: { totalCount: 3 }, b: { totalCount: 2 }, c: { totalCount: 5 } },
    });
    for (const match of ['\0', '\ud800', 'x'.repeat(3000)]) {
      const query = `query ($match: String!) { request(requestId: ${id}) { files(match: $match) { edges { cursor } } } }`;
      expect((await ask(app, query, { match })).errors?.map(({ extensions }) => extensions)).toEqual([
        { code: 'INVALID_INPUT', field: 'match' },
      ]);
    }
  });
});

describe('orders of requests', () => {
  const states = ['QUEUED', 'RESTORING', 'COMPLETED', 'PARTIAL'];
  const labels = ['b', 'a', 'b', 'ä', 'Z', 'a:1', ''];
  interface Row {
    id: number;
    requestDate: string;
    retention: string;
    state: string;
    label: string;
    bytes: string;
    files: number;
  }
  const rows: Row[] = [];

  test('the fixtures are there', async () => {
    await addQuota(app.ctx, 'olga', 10n ** 9n);
    await addPaths(app.ctx, '/order/1');
    for (const [n, label] of labels.entries()) {
      const id = await createRequest(app.ctx, { quota: 'olga', files: ['/order/1'], label: label || 'x' });
      const row = {
        ...{ id, label, state: states[(n * 3) % 4] ?? '' },
        requestDate: `2026-01-0${1 + ((n * 4) % 3)}T00:00:00${n % 2 ? '.000001' : ''}`,
        retention: `2099-0${1 + ((n * 2) % 5)}-01T00:00:00`,
        ...{ bytes: String(10n ** BigInt((n * 5) % 4) * 2n ** 52n), files: (n * 3) % 5 },
      };
      await sql(
        `UPDATE request SET label = $2, state = $3::"RequestState", request_date = $4, retention = $5, bytes_total = $6, files_total = $7 WHERE id = $1`,
        [...[id, row.label, row.state, row.requestDate, row.retention, row.bytes, row.files]],
      );
      rows.push(row);
    }
  });

  const keys = {
    CREATED_AT: ({ requestDate }: Row) => requestDate,
    RETENTION: ({ retention }: Row) => retention,
    STATE: ({ state }: Row) => states.indexOf(state),
    LABEL: ({ label }: Row) => Buffer.from(label).toString('hex'),
    BYTES: ({ bytes }: Row) => bytes.padStart(20, '0'),
    FILES: ({ files }: Row) => files,
  };
  const orders = (Object.keys(keys) as (keyof typeof keys)[]).flatMap((field) =>
    (['ASC', 'DESC'] as const).map((direction) => [field, direction] as const),
  );
  const sorted = (field: keyof typeof keys, direction: 'ASC' | 'DESC') => {
    const compare = <T extends string | number>(a: T, b: T) => (a < b ? -1 : a > b ? 1 : 0);
    const key: (row: Row) => string | number = keys[field];
    const up = rows.toSorted((a, b) => compare(key(a), key(b)) || a.id - b.id).map(({ id }) => String(id));
    return direction === 'ASC' ? up : up.reverse();
  };
  const listOf = (field: string, direction: string) =>
    `{ requests(%, quota: "olga", orderBy: { field: ${field}, direction: ${direction} }) { # } }`;

  test.each(orders)('%s %s: pages in both directions contain each request once', async (field, direction) => {
    await expectPages('operator', listOf(field, direction), 'requestId', sorted(field, direction));
  });

  test('a cursor is valid only in the order that returned it', async () => {
    const all: readonly (readonly [field: string, direction: string])[] = [['', ''], ...orders];
    const query = (field: string, direction: string) =>
      field === '' ? '{ requests(%, quota: "olga") { # } }' : listOf(field, direction);
    const cursors: string[] = [];
    for (const order of all) {
      const { endCursor } = await readPage('operator', query(...order), 'requestId', 'first: 2');
      cursors.push(endCursor ?? '');
    }
    for (const [n, order] of all.entries()) {
      for (const [m, cursor] of cursors.entries()) {
        for (const [size, side] of [
          ['first', 'after'],
          ['last', 'before'],
        ] as const) {
          const text = query(...order)
            .replace('%', `${size}: 2, ${side}: "${cursor}"`)
            .replace('#', 'edges { cursor }');
          const { errors } = await ask(app, text);
          const message = expect.stringMatching(new RegExp(`^${side} must be a cursor of this list, not `));
          if (n === m) expect(errors).toBeUndefined();
          else expect(errors).toMatchObject(invalid(side, message));
        }
      }
    }
  });

  test('a cursor with a value that the order cannot have is refused', async () => {
    const odd: [field: string, key: string][] = [
      ['requestDate', '1:yesterday'],
      ['requestDate', '1:'],
      ['requestDate', '1:2026-02-30T00:00:00'],
      ['retention', 'x:2026-01-01T00:00:00'],
      ['state', '1:BROKEN'],
      ['state', '1:__proto__'],
      ['state', '99999999999:QUEUED'],
      ['state', '9999999999:QUEUED'],
      ['label', ':a'],
      ['label', '1:a\0'],
      ['bytesTotal', '1:-1'],
      ['bytesTotal', `1:${'9'.repeat(19)}`],
      ['filesTotal', '1:1e3'],
      ['filesTotal', '1:2147483648'],
    ];
    const names = {
      ...{ requestDate: 'CREATED_AT', retention: 'RETENTION', state: 'STATE', label: 'LABEL' },
      ...{ bytesTotal: 'BYTES', filesTotal: 'FILES' },
    };
    for (const [field, key] of odd) {
      const cursor = Buffer.from(`request-${field}-ASC:${key}`).toString('base64');
      const query = listOf(names[field as keyof typeof names], 'ASC')
        .replace('%', `first: 2, after: "${cursor}"`)
        .replace('#', 'edges { cursor }');
      const { errors } = await ask(app, query);
      const message = `after must be a cursor of this list, not "${cursor}"`;
      expect([field, key, errors]).toMatchObject([field, key, invalid('after', message)]);
    }
  });

  test('a page of an order continues correctly after the request of its cursor has changed', async () => {
    const ids = sorted('LABEL', 'ASC');
    const { endCursor } = await readPage('operator', listOf('LABEL', 'ASC'), 'requestId', 'first: 3');
    await updateRequest(app.ctx, { id: Number(ids[2]), label: 'zz' });
    const rest = await readPage('operator', listOf('LABEL', 'ASC'), 'requestId', `first: 10, after: "${endCursor}"`);
    // the changed request is now after the cursor
    expect(rest.rows.filter((id) => id !== ids[2])).toEqual(ids.slice(3));
    expect(rest.rows).toContain(ids[2]);
    expect(rest.total).toBe(ids.length);
  });
});

interface ListProgress {
  requestsProgress: {
    requestId: number;
    state: string;
    filesFailed: number;
    request: { label: string; quota: { user: string } } | null;
    lastFailures: { id: string; error: string | null; file: { path: string } }[] | null;
  };
}

describe('the progress of several requests', () => {
  const streams: Stream<ListProgress>[] = [];
  const watch = (caller: string, args = '') => {
    const query = `subscription { requestsProgress${args} { requestId state filesFailed request { label quota { user } }
      lastFailures { id error file { path } } } }`;
    const stream = postOperation<ListProgress>(gatewayOf(caller), { query });
    streams.push(stream);
    return stream;
  };
  afterEach(async () => {
    for (const stream of streams.splice(0)) stream.close();
    await waitForReaders(app, 0);
  });
  const next = async (stream: Stream<ListProgress>) => {
    const [data] = await take(stream, 1);
    return data?.requestsProgress as ListProgress['requestsProgress'];
  };
  const add = async (user: string, label: string) => {
    await addQuota(app.ctx, user, 10n ** 9n);
    await addPaths(app.ctx, '/progress/1');
    return await createRequest(app.ctx, { quota: user, files: ['/progress/1'], label });
  };

  test('begins with the live requests, and reports requests that are created later', async () => {
    tokens.petra = (await createToken(app.ctx, { name: 'petra', role: 'USER' })).secret;
    const [one, two, ended] = [await add('petra', 'one'), await add('petra', 'two'), await add('petra', 'ended')];
    await cancelRequest(app.ctx, ended);
    const stream = watch('petra');
    const first = [await next(stream), await next(stream)];
    expect(first.map(({ requestId }) => requestId).sort((a, b) => a - b)).toEqual([one, two]);
    expect(first.find(({ requestId }) => requestId === one)).toMatchObject({
      ...{ state: 'QUEUED', filesFailed: 0, lastFailures: [] },
      request: { label: 'one', quota: { user: 'petra' } },
    });
    await waitForReaders(app, 1);
    const foreign = await add('quentin', 'foreign');
    const later = await add('petra', 'later');
    expect(await next(stream)).toMatchObject({ requestId: later, state: 'QUEUED', request: { label: 'later' } });
    await cancelRequest(app.ctx, foreign);
    await cancelRequest(app.ctx, later);
    expect(await next(stream)).toMatchObject({ requestId: later, state: 'CANCELLED' });
    await cancelRequest(app.ctx, one);
    expect(await next(stream)).toMatchObject({ requestId: one, state: 'CANCELLED' });
  });

  test('without requestIds, older requests that are not in the list are not reported', async () => {
    const [old, listed] = [await add('rita', 'old'), await add('rita', 'listed')];
    const stream = watch('operator', '(quota: "rita", first: 1)');
    expect(await next(stream)).toMatchObject({ requestId: listed });
    await waitForReaders(app, 1);
    await cancelRequest(app.ctx, old);
    const later = await add('rita', 'later');
    expect(await next(stream)).toMatchObject({ requestId: later, state: 'QUEUED' });
  });

  test('a quota limits the list for an operator', async () => {
    const id = await add('sara', 'mine');
    const first = next(watch('operator', '(quota: "sara", first: 0)'));
    await waitForReaders(app, 1);
    await add('tom', 'other');
    const later = await add('sara', 'later');
    expect(await first).toMatchObject({ requestId: later, request: { quota: { user: 'sara' } } });
    expect(id).toBeLessThan(later);
  });

  test('requestIds name the requests to watch, and others are not reported', async () => {
    const [one, two, three] = [await add('ute', '1'), await add('ute', '2'), await add('ute', '3')];
    await cancelRequest(app.ctx, two);
    const stream = watch('operator', `(requestIds: [${two}, ${one}, ${two}])`);
    const first = [await next(stream), await next(stream)];
    expect(first.map(({ requestId, state }) => [requestId, state])).toEqual([
      [two, 'CANCELLED'],
      [one, 'QUEUED'],
    ]);
    await waitForReaders(app, 1);
    await cancelRequest(app.ctx, three);
    await add('ute', '4');
    await cancelRequest(app.ctx, one);
    expect(await next(stream)).toMatchObject({ requestId: one, state: 'CANCELLED' });
    // a watched request that ended is watched further
    await updateRequest(app.ctx, { id: one, retention: '2099-01-01' });
    expect(await next(stream)).toMatchObject({ requestId: one, state: 'QUEUED' });
  });

  test('requests that the caller may not see, and too many requests, are refused', async () => {
    const id = await add('vito', 'hidden');
    const outcome = async (caller: string, args: string) => {
      const stream = watch(caller, args);
      const { value } = await stream.next();
      stream.close();
      return value?.errors;
    };
    const message = `there is no request ${id}, or you are not allowed to see it`;
    expect(await outcome('bob', `(requestIds: [${id}])`)).toMatchObject([
      { message, extensions: { code: 'NOT_FOUND' } },
    ]);
    expect(await outcome('bob', '(requestIds: [2147483647])')).toMatchObject([{ extensions: { code: 'NOT_FOUND' } }]);
    const many = Array.from({ length: 101 }, (_, n) => n + 1).join(', ');
    expect(await outcome('bob', `(requestIds: [${many}])`)).toMatchObject(
      invalid('requestIds', 'requestIds must contain at most 100, not 101'),
    );
    for (const first of [-1, 101]) {
      expect(await outcome('bob', `(first: ${first})`)).toMatchObject(
        invalid('first', `first must be from 0 to 100, not ${first}`),
      );
    }
    expect(await outcome('bob', '(quota: "\\u0000")')).toMatchObject(invalid('quota', expect.stringContaining('NUL')));
  });

  test('the last failures are the last failed files in the order of the request', async () => {
    const files = [1, 2, 3, 4, 5, 6].map((n) => `/failures/${n}`);
    await addPaths(app.ctx, ...files);
    await addQuota(app.ctx, 'wanda', 10n ** 9n);
    const id = await createRequest(app.ctx, { quota: 'wanda', files });
    await sql(
      `UPDATE request_file h SET state = 'FAILED', error = 'bad ' || f.path, error_class = 'MEDIA' FROM tape_file f
         WHERE f.id = h.file_id AND h.request_id = $1 AND f.path <> '/failures/5'`,
      [id],
    );
    await sql('UPDATE request SET files_failed = 5 WHERE id = $1', [id]);
    const stream = watch('operator', `(requestIds: [${id}])`);
    const { lastFailures, ...rest } = await next(stream);
    expect(rest).toMatchObject({ requestId: id, filesFailed: 5 });
    expect(lastFailures?.map(({ file, error }) => [file.path, error])).toEqual(
      ['/failures/3', '/failures/4', '/failures/6'].map((path) => [path, `bad ${path}`]),
    );
  });
});
