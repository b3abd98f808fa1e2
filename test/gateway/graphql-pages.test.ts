/** GraphQL lists: filters, and pages of a list from which rows disappear meanwhile. */
import { describe, expect, test, vi } from 'vitest';
import { setDisk } from '../../src/domain/disks/disks.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { addFiles, addQuota } from '../support/factories.js';
import { ask, askData, type Connection, PAGE_INFO } from '../support/graphql.js';
import { cancel } from '../support/mutations.js';
import { recordStatements } from '../support/statements.js';
import { useApp } from '../support/use-app.js';

const app = useApp();

const sql = (text: string, values: unknown[] = []) => app.ctx.db.pool.query(text, values);
const numbers = [1, 2, 3, 4, 5, 6];
/** Prefix of names that sort before the names of other tests. */
const FIRST = '000';

async function addEach(add: (n: number) => Promise<unknown>): Promise<void> {
  for (const n of numbers) await add(n);
}

interface List {
  /** The query, in which `%` is replaced with the arguments of the connection. */
  query: (id: number) => string;
  /** A field that differs from row to row. */
  node: string;
  /** Adds at least six rows. @returns the id for the query, if the query needs one */
  fill: (name: string) => Promise<unknown>;
  /** Removes a row from the list. */
  remove: (row: string) => Promise<unknown>;
}

const addRequest = async (user: string, input: object) => {
  await addQuota(app.ctx, user, 1_000_000n);
  return await createRequest(app.ctx, { quota: user, ...input } as Parameters<typeof createRequest>[1]);
};

const addSix = (name: string, volume = (n: number) => `${name}-${n}`) =>
  addFiles(
    app.ctx,
    numbers.map((n) => ({ path: `/${name}/${n}`, volume: volume(n) })),
  );

const removeRecalls = (volume: string) =>
  sql('DELETE FROM recall WHERE volume_id = (SELECT id FROM volume WHERE name = $1)', [volume]);

const lists: Record<string, List> = {
  tapeFiles: {
    query: () => '{ tapeFiles(match: "/tapeFiles/", stages: [ONTAPE], %',
    node: 'path',
    fill: (name) => addSix(name),
    remove: (path) => sql(`UPDATE tape_file SET stage = 'ONDISK' WHERE path = $1`, [path]),
  },
  requests: {
    query: () => '{ requests(quota: "requests", states: [QUEUED], %',
    node: 'requestId',
    fill: async (name) => {
      await addFiles(app.ctx, [{ path: `/${name}/1` }]);
      await addEach(() => addRequest(name, { files: [`/${name}/1`] }));
    },
    remove: (id) => cancel(app, Number(id)),
  },
  verifications: {
    query: () => '{ verificationFailures(match: "/verifications/", %',
    node: 'error',
    fill: async (name) => {
      await addSix(name);
      await sql(`INSERT INTO verification (file_id, attempts, error_class, error, at)
        SELECT id, 1, 'MEDIA', path, '2026-01-01' FROM tape_file WHERE path LIKE '/verifications/%'`);
    },
    remove: (error) => sql('DELETE FROM verification WHERE error = $1', [error]),
  },
  volumes: {
    query: () => '{ volumes(%',
    node: 'name',
    fill: () => addEach((n) => sql('INSERT INTO volume (name) VALUES ($1)', [`${FIRST}-${n}`])),
    remove: (name) => sql('DELETE FROM volume WHERE name = $1', [name]),
  },
  quotas: {
    query: () => '{ quotas(%',
    node: 'user',
    fill: () => addEach((n) => addQuota(app.ctx, `${FIRST}-${n}`, 1n)),
    remove: (user) => sql('UPDATE quota SET removed_at = now() WHERE "user" = $1', [user]),
  },
  drives: {
    query: () => '{ drives(%',
    node: 'name',
    fill: () => addEach((n) => sql('INSERT INTO drive (name) VALUES ($1)', [`drive-${n}`])),
    remove: (name) => sql('DELETE FROM drive WHERE name = $1', [name]),
  },
  restoreDisks: {
    query: () => '{ restoreDisks(%',
    node: 'mountpoint',
    fill: () => addEach((n) => setDisk(app.ctx, { mountpoint: `/mnt/${n}`, size: 1n })),
    remove: (mountpoint) => sql('DELETE FROM restore_disk WHERE mountpoint = $1', [mountpoint]),
  },
  suspensions: {
    query: () => '{ suspensions(%',
    node: 'name',
    fill: () =>
      sql(`INSERT INTO suspension (kind, name, mode, reason, since)
        SELECT 'VOLUME', 'volume-' || n, 'IMMEDIATE', '', now() FROM generate_series(1, 6) n`),
    remove: (name) => sql('DELETE FROM suspension WHERE name = $1', [name]),
  },
  webhooks: {
    query: () => '{ webhooks(%',
    node: 'webhookId',
    fill: () =>
      sql(`INSERT INTO webhook (url, events, note, secret, made_at, made_by, owner, next_try_at)
        SELECT 'https://example.org/' || n, '{}', '', '', now(), '', '', now() FROM generate_series(1, 6) n`),
    remove: (id) => sql('DELETE FROM webhook WHERE id = $1', [id]),
  },
  legacyUses: {
    query: () => '{ legacyUses(%',
    node: 'user',
    fill: () =>
      sql(`INSERT INTO legacy_use (day, endpoint, address, "user", uses, last_at)
        SELECT now(), 'GET /files', '', 'user-' || n, 1, now() FROM generate_series(1, 6) n`),
    remove: (user) => sql('DELETE FROM legacy_use WHERE "user" = $1', [user]),
  },
  files: {
    query: (id) => `{ request(requestId: ${id}) { files(states: [WAITING], %`,
    node: 'lastError',
    fill: async (name) => {
      await addSix(name);
      const id = await addRequest(name, { pattern: `/${name}/` });
      await sql(
        `UPDATE request_file h SET error = f.path FROM tape_file f WHERE f.id = h.file_id AND request_id = $1`,
        [id],
      );
      return id;
    },
    remove: (path) => sql(`UPDATE request_file SET state = 'FAILED' WHERE error = $1`, [path]),
  },
  failedFiles: {
    query: () => '{ failedFiles(%',
    node: 'error',
    fill: async (name) => {
      await addSix(name);
      const id = await addRequest(name, { pattern: `/${name}/` });
      await sql(
        `UPDATE request_file h SET state = 'FAILED', error = f.path FROM tape_file f WHERE f.id = h.file_id AND request_id = $1`,
        [id],
      );
    },
    remove: (path) => sql(`UPDATE request_file SET state = 'RELEASED', is_ended = true WHERE error = $1`, [path]),
  },
  unresolved: {
    query: (id) => `{ request(requestId: ${id}) { unresolved(%`,
    node: 'path',
    fill: (name) => addRequest(name, { files: numbers.map((n) => `/${name}/${n}`) }),
    remove: (path) => sql('DELETE FROM unresolved_path WHERE path = $1', [path]),
  },
  'requests of a quota': {
    query: () => '{ quota(user: "of-quota") { requests(%',
    node: 'requestId',
    fill: () => addEach((n) => addRequest('of-quota', { files: [`/of-quota/${n}`] })),
    remove: async (id) => {
      for (const table of ['unresolved_path', 'event']) await sql(`DELETE FROM ${table} WHERE request_id = $1`, [id]);
      await sql('DELETE FROM request WHERE id = $1', [id]);
    },
  },
  'the queue of the plan': {
    query: () => '{ plan { queue(%',
    node: 'volumeName',
    fill: async () => {
      await sql('DELETE FROM recall');
      await addSix('queue', (n) => `q${n}`);
      return await addRequest('queue', { pattern: '/queue/' });
    },
    remove: removeRecalls,
  },
  'where a request waits': {
    query: (id) => `{ request(requestId: ${id}) { waiting { parts(%`,
    node: 'volumeName',
    fill: async () => {
      await addSix('parts', (n) => `p${n}`);
      return await addRequest('parts', { pattern: '/parts/' });
    },
    remove: removeRecalls,
  },
};

describe.each(Object.entries(lists))('%s', (name, { query, node, fill, remove }) => {
  let id = 0;
  const write = (args: string) => {
    const selected = `edges { cursor node { row: ${node} } } ${PAGE_INFO} }`;
    const before = query(id).replace('%', `${args}) { `);
    return `${before}${selected}${'}'.repeat(before.split('{').length - before.split('}').length - 1)}`;
  };
  const read = async (args: string) => {
    let data: unknown = await askData(app, write(args));
    while (!(data as object as { edges?: unknown }).edges) [data] = Object.values(data as object);
    const { edges, pageInfo } = data as Connection<{ row: unknown }>;
    expect(pageInfo.endCursor).toBe(edges.at(-1)?.cursor ?? pageInfo.endCursor);
    return { rows: edges.map((edge) => String(edge.node.row)), ...pageInfo };
  };

  test('pages follow their cursors in both directions, also if the row of a cursor has left the list', async () => {
    id = Number(await fill(name));
    const { rows: all } = await read('first: 6');
    expect(all).toHaveLength(6);
    const first = await read('first: 2');
    expect(first).toMatchObject({ rows: all.slice(0, 2), hasNextPage: true, hasPreviousPage: false });
    await remove(String(all[1]));
    const next = await read(`first: 2, after: "${first.endCursor}"`);
    expect(next).toMatchObject({ rows: all.slice(2, 4), hasNextPage: true, hasPreviousPage: true });
    await remove(String(all[2]));
    expect((await read(`last: 1, before: "${next.endCursor}"`)).rows).toEqual([all[0]]);
    expect((await read(`last: 2, before: "${next.startCursor}"`)).rows).toEqual([all[0]]);

    const none = await read(`last: 1, before: "${first.startCursor}"`);
    expect(none).toMatchObject({ rows: [], startCursor: first.startCursor, endCursor: first.startCursor });
    expect((await read(`last: 1, before: "${none.startCursor}"`)).rows).toEqual([]);
    expect((await read(`first: 1, after: "${none.endCursor}"`)).rows).toEqual([all[3]]);
    expect(await read('first: 0')).toMatchObject({ rows: [], startCursor: null, endCursor: null });
  });

  test('first with last is refused', async () => {
    const message = 'first and last cannot be combined: give only one';
    const { errors } = await ask(app, write('first: 1, last: 1'));
    expect(errors).toMatchObject([{ message, extensions: { code: 'INVALID_INPUT', field: 'first' } }]);
  });
});

test('a row that is removed while its page is read leaves the other rows in place', async () => {
  await addSix('going');
  await sql(`INSERT INTO verification (file_id, attempts, error_class, error, at)
    SELECT id, 1, 'MEDIA', path, '2026-01-01' FROM tape_file WHERE path LIKE '/going/%'`);
  const { prisma } = app.ctx.db;
  const original = prisma.verification.findMany.bind(prisma.verification);
  const reading = vi
    .spyOn(prisma.verification, 'findMany')
    .mockImplementationOnce(((args: never) =>
      sql(`DELETE FROM verification WHERE error = '/going/2'`).then(() => original(args))) as never);
  const query =
    '{ verificationFailures(match: "/going/", first: 2) { edges { node { error } } pageInfo { hasNextPage } } }';
  expect(await askData(app, query)).toEqual({
    verificationFailures: {
      edges: [{ node: { error: '/going/1' } }, { node: { error: '/going/3' } }],
      pageInfo: { hasNextPage: true },
    },
  });
  expect(reading).toHaveBeenCalledTimes(2);
});

const ofKey = (text: string) => Buffer.from(`GPC:${text}`).toString('base64');
const invalid = (field: string, problem: string) => [
  expect.objectContaining({ message: `${field} ${problem}`, extensions: { code: 'INVALID_INPUT', field } }),
];
const NO_CURSOR = 'must be a cursor of this list, not';
const NOT_BOTH = 'cannot be combined: pass first and after, or last and before';

test.each([
  ...['tapeFiles', 'requests', 'restoreDisks', 'volumes', 'auditEntries'].flatMap((list) =>
    (['after', 'before'] as const).map(
      (side) => [list, `${side}: "no cursor"`, side, `${NO_CURSOR} "no cursor"`] as const,
    ),
  ),
  ['requests', `before: "${ofKey('N:99999999999')}"`, 'before', `${NO_CURSOR} "99999999999"`],
  ['requests', `after: "${ofKey('T:["I:1"]')}"`, 'after', `${NO_CURSOR} "[1]"`],
  ['restoreDisks', `after: "${ofKey('N:1.5')}"`, 'after', `${NO_CURSOR} "1.5"`],
  ['restoreDisks', `before: "${ofKey('I:x')}"`, 'before', `${NO_CURSOR} "${ofKey('I:x')}"`],
  ['restoreDisks', `after: "${ofKey('N:1')}", before: "${ofKey('N:9')}"`, 'before', `and after ${NOT_BOTH}`],
  ['restoreDisks', `first: 1, before: "${ofKey('N:9')}"`, 'before', `and first ${NOT_BOTH}`],
  ['restoreDisks', `last: 1, after: "${ofKey('N:1')}"`, 'after', `and last ${NOT_BOTH}`],
  ['tapeFiles', 'after: "no cursor", before: "no cursor"', 'before', `${NO_CURSOR} "no cursor"`],
  ['volumes', 'first: -1', 'first', 'must be 0 or more, not -1'],
] as const)('%s(%s) is invalid input', async (list, args, field, problem) => {
  const { errors } = await ask(app, `{ ${list}(${args}) { edges { cursor } } }`);
  expect(errors).toEqual(invalid(field, problem));
});

const ofList = (text: string) => Buffer.from(text).toString('base64');

test.each([
  ['tokens(%', ['other:1', 'Token:x', 'Token:2147483648']],
  ['webhooks(%', ['Token:1', 'Webhook:']],
  ['webhookMessages(webhookId: 1, %', ['WebhookMessage:-1', 'WebhookMessage:1000000000000000000']],
  ['waitingMail(%', ['use:1']],
  ['legacyUses(%', ['use:1.5']],
  ['suspensions(%', ['suspension:PLANET:x', 'suspension:VOLUME:\0']],
  ['doctorFindings(%', ['finding:orphan', 'finding:orphan:-2']],
  ['plan { queue(%', ['row:[]', 'row:[1,2]', 'row:{', 'row:null']],
  ['request(requestId: 1) { files(%', ['key:19999999999999']],
] as const)('%s takes no cursor of another list, and none without a key', async (list, texts) => {
  for (const cursor of texts.map(ofList)) {
    const query = `{ ${list.replace('%', `after: "${cursor}"`)}) { edges { cursor } } ${list.includes('{') ? '}' : ''} }`;
    expect((await ask(app, query)).errors).toEqual(invalid('after', `must be a cursor of this list, not "${cursor}"`));
  }
});

test('without stages, files at any stage are listed, and at none of none', async () => {
  await addFiles(app.ctx, [{ path: '/s/u', stage: 'UNVERIFIED' }, { path: '/s/d', stage: 'ONDISK' }, { path: '/s/t' }]);
  const query =
    'query ($stages: [Stage!]) { tapeFiles(match: "/s/", stages: $stages) { totalCount edges { cursor } } }';
  for (const [stages, count] of [
    [null, 3],
    [['ONTAPE', 'UNVERIFIED'], 2],
    [[], 0],
  ] as const) {
    const { tapeFiles } = await askData<{ tapeFiles: Connection<object> }>(app, query, { stages });
    expect([stages, tapeFiles.totalCount, tapeFiles.edges.length]).toEqual([stages, count, count]);
  }
});

test('requests are filtered by user and by state, newest first', async () => {
  await addQuota(app.ctx, 'quinn', 1_000_000n);
  await addFiles(app.ctx, [{ path: '/r/1' }, { path: '/r/disk', stage: 'ONDISK' }]);
  const queued = [await addRequest('pat', { pattern: '/r/1' }), await addRequest('pat', { pattern: '/r/' })];
  const done = await addRequest('pat', { files: ['/r/disk'] });
  await addRequest('quinn', { pattern: '/r/' });
  const read = async (args: string) => {
    const query = `{ requests(${args}) { totalCount edges { cursor node { requestId } } } }`;
    const { requests } = await askData<{ requests: Connection<{ requestId: number }> }>(app, query);
    return [requests.totalCount, ...requests.edges.map(({ node }) => node.requestId)];
  };
  expect(await read('quota: "pat", states: [QUEUED]')).toEqual([2, ...queued.toReversed()]);
  expect(await read('quota: "pat", states: [QUEUED], last: 1')).toEqual([2, queued[0]]);
  expect(await read('quota: "pat", states: [COMPLETED]')).toEqual([1, done]);
  expect(await read('quota: "pat"')).toEqual([3, done, ...queued.toReversed()]);
  expect(await read('quota: "nobody"')).toEqual([0]);
});

interface Held {
  request: { files: Connection<{ file: { path: string } }>; unresolved: Connection<{ path: string; reason: string }> };
}

test('the files of a request keep the order of its list, and a page reads no more rows than it shows', async () => {
  const listed = Array.from({ length: 300 }, (_, n) => `/list/${(n * 7) % 300}`);
  await addFiles(
    app.ctx,
    listed.map((path) => ({ path })),
  );
  const id = await addRequest('rosa', { files: [...listed, '/none/3', '/none/1', '/none/2'] });
  const read = async (args: string) => {
    const query = `{ request(requestId: ${id}) { files(${args}) { edges { cursor node { file { path } } } ${PAGE_INFO} } } }`;
    const { edges, pageInfo } = (await askData<Held>(app, query)).request.files;
    return { paths: edges.map(({ node }) => node.file.path), ...pageInfo };
  };
  const first = await read('first: 180');
  const second = await read(`first: 180, after: "${first.endCursor}"`);
  expect([...first.paths, ...second.paths]).toEqual(listed);
  expect([first.hasNextPage, second.hasNextPage]).toEqual([true, false]);
  const last = await read('last: 2');
  expect(last.paths).toEqual(listed.slice(-2));
  expect((await read(`last: 3, before: "${last.startCursor}"`)).paths).toEqual(listed.slice(-5, -2));
  const query = `{ request(requestId: ${id}) { unresolved(first: 2) { edges { node { path reason } } } } }`;
  expect((await askData<Held>(app, query)).request.unresolved.edges.map(({ node }) => node)).toEqual([
    { path: '/none/3', reason: 'UNKNOWN' },
    { path: '/none/1', reason: 'UNKNOWN' },
  ]);
  const statements = await recordStatements(() => read(`first: 2, after: "${first.endCursor}"`));
  expect(Math.max(...statements.map(({ rows }) => rows))).toBe(3); // one row more than the page, for hasNextPage
});

test('the files of a request are filtered by state', async () => {
  await addFiles(app.ctx, [
    { path: '/h/1' },
    { path: '/h/2', stage: 'ONDISK' },
    { path: '/h/3' },
    { path: '/h/4', stage: 'UNVERIFIED' },
  ]);
  const id = await addRequest('sven', { pattern: '/h/' });
  const query = `query ($id: Int!, $states: [RequestFileState!]) { request(requestId: $id) {
    files(states: $states) { edges { node { file { path } size state error errorClass } } } } }`;
  const read = async (states: string[] | null) =>
    (await askData<Held>(app, query, { id, states })).request.files.edges.map(({ node }) => node);
  const [one, two, three, four] = ['WAITING', 'ON_DISK', 'WAITING', 'ON_DISK'].map((state, n) => ({
    ...{ file: { path: `/h/${n + 1}` }, size: '1000', state, error: null, errorClass: null },
  }));
  expect(await read(['WAITING'])).toEqual([one, three]);
  expect(await read(['ON_DISK', 'FAILED'])).toEqual([two, four]);
  expect(await read(null)).toEqual([one, two, three, four]);
});

test('a quota lists its requests newest first, ended ones too', async () => {
  await addFiles(app.ctx, [{ path: '/t/1' }]);
  const ids: number[] = [];
  for (let n = 0; n < 3; n++) ids.unshift(await addRequest('tove', { pattern: '/t/' }));
  await cancel(app, ids[1] as number);
  const query = '{ quota(user: "tove") { requests { totalCount edges { node { requestId } } } } }';
  const edges = ids.map((requestId) => ({ node: { requestId } }));
  expect(await askData(app, query)).toEqual({ quota: { requests: { totalCount: 3, edges } } });
});
