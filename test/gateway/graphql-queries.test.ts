import { expect, test } from 'vitest';
import { addPathRule } from '../../src/domain/access/path-rules.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { setMedium } from '../../src/domain/catalogue/volumes.js';
import { setDisk } from '../../src/domain/disks/disks.js';
import { setQuota } from '../../src/domain/quotas/quotas.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { addFiles, addPaths, addQuota } from '../support/factories.js';
import { ask, askData, type Connection, type Edges, PAGE_INFO } from '../support/graphql.js';
import { mutate } from '../support/payloads.js';
import { useApp } from '../support/use-app.js';

const BIG = 9_007_199_254_740_993n; // 2^53 + 1, which no double represents
const MAX = 2n ** 63n - 1n;

const app = useApp({ now: () => '2026-03-04T05:06:07.000089' });

const NODE_TYPES =
  'TapeFile, Volume, Drive, Library, RestoreDisk, Request, RequestFile, Quota, QuotaMember, PathRule, Suspension, Recall, VerificationFailure, Token, Webhook, WebhookMessage or AuditEntry';

const relayId = (type: string, id: unknown) => Buffer.from(`${type}:${id}`).toString('base64');

test('a tape file shows all its fields, to the byte and to the microsecond', async () => {
  await addFiles(app.ctx, [
    {
      path: '/file/one',
      size: BIG,
      stage: 'ONDISK',
      verified: '2026-01-02T03:04:05.000006',
      spotName: 'spot-7',
      volume: 'V00042',
      position: MAX,
      checksum: 'adler32:0a1b2c3d',
    },
    { path: '/file/bare', verified: null, spotName: null, volume: null, position: null, checksum: null, size: 0n },
    { path: '/file/even', verified: '2026-01-02T03:04:05' },
  ]);
  const fields =
    'path size stage verifiedAt checksum adler32 spotName volume { name drive { name } } position disk { mountpoint } restoredPath';
  const query = `{ one: tapeFile(path: "/file/one") { ${fields} } bare: tapeFile(path: "/file/bare") { ${fields} }
    even: tapeFile(path: "/file/even") { verifiedAt } none: tapeFile(path: "/file/none") { path }
    list: tapeFiles(match: "/file/one") { edges { node { path ...F } } } } fragment F on TapeFile { sum: checksum }`;
  expect(await ask(app, query)).toEqual({
    data: {
      one: {
        ...{ path: '/file/one', size: String(BIG), stage: 'ONDISK', verifiedAt: '2026-01-02T03:04:05.000006Z' },
        ...{
          checksum: 'adler32:0a1b2c3d',
          adler32: '0a1b2c3d',
          spotName: 'spot-7',
          volume: { name: 'V00042', drive: null },
        },
        ...{ position: String(MAX), disk: null, restoredPath: null },
      },
      bare: {
        ...{
          path: '/file/bare',
          size: '0',
          stage: 'ONTAPE',
          verifiedAt: null,
          checksum: null,
          adler32: null,
          spotName: null,
        },
        ...{ volume: null, position: null, disk: null, restoredPath: null },
      },
      even: { verifiedAt: '2026-01-02T03:04:05Z' },
      none: null,
      list: { edges: [{ node: { path: '/file/one', sum: 'adler32:0a1b2c3d' } }] },
    },
  });
});

test('a restored file shows where to read it', async () => {
  await addFiles(app.ctx, [{ path: '/restored/one' }]);
  const disk = await setDisk(app.ctx, { mountpoint: '/mnt/restore-1', size: 10n });
  const put = `UPDATE tape_file SET stage = $2, disk_id = $1 WHERE path = '/restored/one'`;
  const read = () =>
    askData(app, '{ tapeFile(path: "/restored/one") { restoredPath downloadPath disk { mountpoint } } }');
  await app.ctx.db.pool.query(put, [disk.id, 'RESTORED']);
  expect(await read()).toEqual({
    tapeFile: {
      restoredPath: '/mnt/restore-1/restored/one',
      downloadPath: '/webdav/restored/one',
      disk: { mountpoint: '/mnt/restore-1' },
    },
  });
  // the copy is about to be removed
  await app.ctx.db.pool.query(put, [disk.id, 'ONTAPE']);
  expect(await read()).toMatchObject({ tapeFile: { restoredPath: null, downloadPath: null } });
});

test('a request shows its quota, its counts, its files, and its unresolved paths', async () => {
  await addQuota(app.ctx, 'una', 3n * BIG);
  await addFiles(app.ctx, [
    { path: '/q/tape', size: BIG, checksum: 'adler32:0a1b2c3d' },
    { path: '/q/disk', size: BIG, stage: 'ONDISK' },
  ]);
  const id = await createRequest(app.ctx, {
    quota: 'una',
    files: ['/q/tape', '/q/later', '/q/disk', '/q/never'],
    retention: '2999-12-31T23:59:59.999999',
    label: 'a label',
    notifyOnFirstFile: '',
    notifyOnLastFile: 'last@example.org',
  });
  await addFiles(app.ctx, [{ path: '/q/later', size: 2n * BIG }]); // this file does not fit into the quota
  const query = `{ request(requestId: ${id}) {
    id requestId pattern label state createdAt retention notifyOnFirstFile notifyOnLastFile
    recallsStartedAt recallsEndedAt firstFileOnDiskAt finishedAt
    filesTotal filesOnDisk filesFailed filesUnknown filesRefused summary bytesTotal bytesOnDisk
    quota { user size used email requests { edges { node { requestId } } } }
    files { edges { node { size state file { path } } } }
    unresolved { edges { node { path reason } } }
  } }`;
  const requestFile = (path: string, state: string) => ({ node: { size: String(BIG), state, file: { path } } });
  expect(await ask(app, query)).toEqual({
    data: {
      request: {
        ...{ id: relayId('Request', id), requestId: id, pattern: null, label: 'a label', state: 'QUEUED' },
        ...{ createdAt: '2026-03-04T05:06:07.000089Z', retention: '2999-12-31T23:59:59.999999Z' },
        ...{ notifyOnFirstFile: 'una@example.org', notifyOnLastFile: 'last@example.org' },
        ...{ recallsStartedAt: null, recallsEndedAt: null },
        ...{ firstFileOnDiskAt: '2026-03-04T05:06:07.000089Z', finishedAt: null },
        ...{ filesTotal: 2, filesOnDisk: 1, filesFailed: 0, filesUnknown: 1, filesRefused: 1 },
        summary: '1 of 4 files; 1 unresolved path, 1 file over the quota',
        ...{ bytesTotal: String(2n * BIG), bytesOnDisk: String(BIG) },
        quota: {
          ...{ user: 'una', size: String(3n * BIG), used: String(2n * BIG), email: 'una@example.org' },
          requests: { edges: [{ node: { requestId: id } }] },
        },
        files: { edges: [requestFile('/q/tape', 'WAITING'), requestFile('/q/disk', 'ON_DISK')] },
        unresolved: {
          edges: [
            { node: { path: '/q/later', reason: 'QUOTA_FULL' } },
            { node: { path: '/q/never', reason: 'UNKNOWN' } },
          ],
        },
      },
    },
  });
  expect(await askData(app, '{ request(requestId: 2147483647) { id } }')).toEqual({ request: null });
  const files = (fields: string) => `on Request { files(first: 1) { edges { node { file { ${fields} } } } } }`;
  const shared = `{ a: request(requestId: ${id}) { ...F } b: request(requestId: ${id}) { ...F ...G } }
    fragment F ${files('path')} fragment G ${files('checksum')}`;
  const b = { files: { edges: [{ node: { file: { path: '/q/tape', checksum: 'adler32:0a1b2c3d' } } }] } };
  expect(await askData(app, shared)).toMatchObject({ b });
});

test('a quota is exact, and does not count expired requests', async () => {
  await setQuota(app.ctx, { user: 'vera', size: MAX, email: 'vera@example.org', notes: 'project ü' });
  await addFiles(app.ctx, [{ path: '/v/1', size: BIG }]);
  await createRequest(app.ctx, { quota: 'vera', pattern: '/v/1' });
  const over = await createRequest(app.ctx, { quota: 'vera', pattern: '/v/1' });
  const read = () =>
    askData(app, '{ quota(user: "vera") { user size used email notes } none: quota(user: "x") { id } }');
  const quota = { user: 'vera', size: String(MAX), email: 'vera@example.org', notes: 'project ü' };
  expect(await read()).toEqual({ quota: { ...quota, used: String(2n * BIG) }, none: null });
  await app.ctx.db.pool.query(`UPDATE request SET retention = '2026-03-04T05:06:07.000089' WHERE id = $1`, [over]);
  expect(await read()).toEqual({ quota: { ...quota, used: String(BIG) }, none: null });
});

test('node returns each type of node by its id, and null for an unknown id', async () => {
  await addQuota(app.ctx, 'walt', 1_000_000n);
  await addFiles(app.ctx, [{ path: '/node/1', volume: 'NODE01' }]);
  await createRequest(app.ctx, { quota: 'walt', pattern: '/node/' });
  await app.ctx.db.pool.query(
    `INSERT INTO drive (name, volume_id) SELECT 'drive-1', id FROM volume WHERE name = 'NODE01'`,
  );
  await setDisk(app.ctx, { mountpoint: '/mnt/node', size: BIG });
  const ids = await askData<Record<string, { id: string }>>(
    app,
    '{ file: tapeFile(path: "/node/1") { id } quota(user: "walt") { id } }',
  );
  type Lists = Record<string, Edges<{ id: string; name: string }>>;
  const lists = await askData<Lists>(
    app,
    `{ requests(quota: "walt") { edges { node { id name: label } } } volumes { edges { node { id name } } }
       drives { edges { node { id name } } } restoreDisks { edges { node { id name: mountpoint } } } }`,
  );
  const find = (list: string, name: string) => lists[list]?.edges.find(({ node }) => node.name === name)?.node.id;
  const query = `query ($id: ID!) { node(id: $id) { __typename id
    ... on TapeFile { path volume { name } } ... on Quota { user } ... on Request { label quota { user } }
    ... on Volume { name drive { name } filesWaiting } ... on Drive { name volume { name } isClaimed filesRunning }
    ... on RestoreDisk { mountpoint diskSize: size used reserved } } }`;
  const cases: [string | undefined, object][] = [
    [ids.file?.id, { __typename: 'TapeFile', path: '/node/1', volume: { name: 'NODE01' } }],
    [ids.quota?.id, { __typename: 'Quota', user: 'walt' }],
    [find('requests', '/node/'), { __typename: 'Request', label: '/node/', quota: { user: 'walt' } }],
    [find('volumes', 'NODE01'), { __typename: 'Volume', name: 'NODE01', drive: { name: 'drive-1' }, filesWaiting: 1 }],
    [
      find('drives', 'drive-1'),
      { __typename: 'Drive', name: 'drive-1', volume: { name: 'NODE01' }, isClaimed: false, filesRunning: 0 },
    ],
    [
      find('restoreDisks', '/mnt/node'),
      { __typename: 'RestoreDisk', mountpoint: '/mnt/node', diskSize: String(BIG), used: '0', reserved: '0' },
    ],
  ];
  for (const [id, node] of cases) expect(await askData(app, query, { id })).toEqual({ node: { id, ...node } });
  const unknown = {
    Request: [2_147_483_647, 99_999_999_999, '1.5', 'one'],
    TapeFile: [MAX, MAX + 1n, -1],
    Quota: ["1' OR true"],
  };
  for (const [type, ids] of Object.entries(unknown)) {
    for (const id of ids) expect(await ask(app, query, { id: relayId(type, id) })).toEqual({ data: { node: null } });
  }
});

test.each([
  ...['__proto__:1', 'constructor:1', 'toString:1', 'hasOwnProperty:x', 'X:1', 'String:1', 'TapeFile', ':1', ''],
  ...['Audit:1', 'ApiToken:1', 'Estimate:1', 'RequestChange:1'],
])('node of the id "%s" is invalid input', async (text) => {
  const id = Buffer.from(text).toString('base64');
  const shown = /^\w+:/.test(text) ? text : id;
  const { data, errors } = await ask(app, 'query ($id: ID!) { node(id: $id) { id } }', { id });
  expect([data, errors]).toEqual([
    { node: null },
    [
      expect.objectContaining({
        message: `id must be the global id of a ${NODE_TYPES}, not "${shown}"`,
        extensions: { code: 'INVALID_INPUT', field: 'id' },
      }),
    ],
  ]);
});

test('a drive is claimed while its engine is alive, in each list', async () => {
  await app.ctx.db.pool.query(
    `INSERT INTO drive (name, engine_id, lease_until) SELECT 'drive-' || name, gen_random_uuid(), timezone('utc', now()) + lease::interval
     FROM (VALUES ('lives', '10 minutes'), ('gone', '-1 hour')) AS d (name, lease)`,
  );
  const query = '{ plan { drives { name isClaimed } } drives { edges { node { name isClaimed } } } }';
  type Lists = { plan: { drives: object[] }; drives: Edges<object> };
  const { plan, drives } = await askData<Lists>(app, query);
  expect(plan.drives).toEqual(drives.edges.map(({ node }) => node));
  expect(plan.drives).toMatchObject([
    { name: 'drive-1', isClaimed: false },
    { name: 'drive-lives', isClaimed: true },
    { name: 'drive-gone', isClaimed: false },
  ]);
});

test('volumes show their medium, and quotas are listed by user', async () => {
  await addFiles(app.ctx, [{ path: '/medium/1', volume: 'MEDIUM' }]);
  await setMedium(app.ctx, { medium: 'lto-9', names: ['MEDIUM'] });
  await addQuota(app.ctx, 'aaa', 7n);
  type Lists = {
    volumes: Edges<{ name: string; medium: string }>;
    quotas: Edges<{ user: string; size: string; used: string }> & { totalCount: number };
  };
  const query = `{ volumes { edges { node { name medium } } } quotas { totalCount edges { node { user size used } } } }`;
  const { volumes, quotas } = await askData<Lists>(app, query);
  const media = Object.fromEntries(volumes.edges.map(({ node }) => [node.name, node.medium]));
  expect([media.MEDIUM, media.NODE01]).toEqual(['LTO_9', 'LINEAR']);
  expect(quotas.edges[0]?.node).toEqual({ user: 'aaa', size: '7', used: '0' });
  const users = quotas.edges.map(({ node }) => node.user);
  expect(users).toEqual([...users].sort());
  expect(quotas.totalCount).toBe(users.length);
});

test('the user name of a new quota must be valid, and that of an existing one may be anything', async () => {
  const error = '... on InvalidInput { field message }';
  const set = (user: string, size: string | null, notes = 'n') =>
    mutate(app, 'setQuota', { user, size, notes }, 'quota { user size notes }', error);
  for (const user of [
    ' vera',
    'vera ',
    've\u200bra',
    'vera\u00a0',
    'vera\ufe0f',
    've\u3164ra',
    'vera\u2800',
    'zoe\u0308',
    '',
  ]) {
    const message = expect.stringMatching(/must be normalized|must not be empty/);
    expect([user, await set(user, '5')]).toEqual([user, { field: 'user', message }]);
  }
  const refused = {
    field: 'user',
    message: 'user must not begin with service:, which is reserved for services: "service:mover"',
  };
  expect(await set('service:mover', '5')).toEqual(refused);
  for (const user of [' wim', 'service:wim']) {
    await app.ctx.db.pool.query('INSERT INTO quota ("user", size) VALUES ($1, 5)', [user]); // like an adopted quota
    expect(await set(user, null, 'more')).toEqual({ user, size: '5', notes: 'more' });
    expect(await set(user, '6')).toEqual({ user, size: '6', notes: 'n' });
  }
  expect(await set('ada@sso.example.org:8443/realms', '5')).toMatchObject({ size: '5' });
});

test('a directory lists the files and directories that the caller may list, at most 1000 in a page', async () => {
  const ocean = ['2023/a.nc', '2024/a.nc', '2024/b/c.nc', '2024.txt'].map((name) => `/ocean/${name}`);
  const many = Array.from({ length: 1001 }, (_, n) => `/many/${n}/file`);
  await addFiles(
    app.ctx,
    [...ocean, '/ocean 2/x', '/secret/y', ...many].map((path) => ({ path: `/directories${path}` })),
  );
  await addPathRule(app.ctx, { prefix: '/directories/secret/', action: 'LIST', kind: 'USER', name: 'bob' });
  const { secret: token } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
  type Entries = Connection<{ path: string; isDirectory: boolean; size: string | null; file: object | null }>;
  const read = async (path: string, args = '') => {
    const query = `query ($path: String!) { directory(path: $path) { path entries${args} {
      edges { cursor node { path isDirectory size file { path } } } ${PAGE_INFO} } } }`;
    type Directory = { directory: { path: string; entries: Entries } };
    return (await askData<Directory>({ url: app.url, token }, query, { path: `/directories${path}` })).directory;
  };
  const nodesIn = async (path: string) => (await read(path)).entries.edges.map(({ node }) => node);
  const shorten = (entry: { path: string; isDirectory: boolean }) =>
    `${entry.path}${entry.isDirectory ? '/' : ''}`.replace('/directories', '');
  const namesIn = async (path: string) => (await nodesIn(path)).map(shorten);
  expect(await namesIn('')).toEqual(['/many/', '/ocean/', '/ocean 2/']);
  expect(await namesIn('/ocean')).toEqual(['/ocean/2023/', '/ocean/2024/', '/ocean/2024.txt']);
  expect(await nodesIn('/ocean/2024/')).toEqual([
    {
      path: '/directories/ocean/2024/a.nc',
      ...{ isDirectory: false, size: '1000', file: { path: '/directories/ocean/2024/a.nc' } },
    },
    { path: '/directories/ocean/2024/b', isDirectory: true, size: null, file: null },
  ]);
  expect((await read('/ocean/2024/')).path).toBe('/directories/ocean/2024');
  const none = { hasNextPage: false, hasPreviousPage: false, startCursor: null, endCursor: null };
  for (const path of ['/nothing', '/secret'])
    expect(await read(path)).toEqual({ path: `/directories${path}`, entries: { edges: [], pageInfo: none } });
  for (const [args, count] of [
    ['', 50],
    ['(first: 5000)', 1000],
  ] as const) {
    const { edges, pageInfo } = (await read('/many', args)).entries;
    expect([args, edges.length, pageInfo.hasNextPage]).toEqual([args, count, true]);
  }
});

test('pages of a directory follow their cursors, also after an entry has disappeared', async () => {
  const paths = ['a', 'a.txt', 'b/1', 'b/2', 'c', 'd/1', 'e'].map((name) => `/paged/${name}`);
  await addPaths(app.ctx, ...paths);
  const read = async (args: string) => {
    const query = `{ directory(path: "/paged") { entries(${args}) { edges { cursor node { path } } ${PAGE_INFO} } } }`;
    type Paged = { directory: { entries: Connection<{ path: string }> } };
    const { edges, pageInfo } = (await askData<Paged>(app, query)).directory.entries;
    return { names: edges.map(({ node }) => node.path.slice('/paged/'.length)), ...pageInfo };
  };
  const all = ['a', 'a.txt', 'b', 'c', 'd', 'e'];
  expect(await read('first: 1000')).toMatchObject({ names: all, hasNextPage: false });
  for (const size of [1, 2, 3, 5]) {
    const found: string[] = [];
    for (let after = ''; ; ) {
      const { names, hasNextPage, endCursor } = await read(`first: ${size}${after}`);
      found.push(...names);
      if (!hasNextPage) break;
      after = `, after: "${endCursor}"`;
    }
    expect([size, found]).toEqual([size, all]);
  }
  const first = await read('first: 3');
  expect(first).toMatchObject({ names: ['a', 'a.txt', 'b'], hasPreviousPage: false });
  await app.ctx.db.pool.query(`DELETE FROM tape_file WHERE path LIKE '/paged/b/%'`);
  expect(await read(`first: 3, after: "${first.endCursor}"`)).toMatchObject({
    ...{ names: ['c', 'd', 'e'], hasNextPage: false, hasPreviousPage: true },
  });
  const last = await read('first: 1000');
  expect(await read(`first: 2, after: "${last.endCursor}"`)).toEqual({
    ...{ names: [], hasNextPage: false, hasPreviousPage: true },
    ...{ startCursor: last.endCursor, endCursor: last.endCursor },
  });
  expect(await read('first: 0')).toMatchObject({ names: [], endCursor: null });
  const refused = async (args: string) =>
    (await ask(app, `{ directory(path: "/paged") { entries(${args}) { edges { cursor } } } }`)).errors;
  const invalid = (message: string, field: string) => [{ message, extensions: { code: 'INVALID_INPUT', field } }];
  expect(await refused('first: -1')).toMatchObject(invalid('first must be 0 or more, not -1', 'first'));
  for (const text of ['entry:', 'entry:d', 'entry:x/a', 'entry:f/\0', 'other:f/a', '']) {
    const cursor = Buffer.from(text).toString('base64');
    const message = `after must be a cursor of this list, not "${cursor}"`;
    expect([text, await refused(`after: "${cursor}"`)]).toMatchObject([text, invalid(message, 'after')]);
  }
});
