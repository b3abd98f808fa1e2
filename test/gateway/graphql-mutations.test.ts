import { expect, test, vi } from 'vitest';
import { addFiles, addQuota } from '../support/factories.js';
import { ask, askData, askErrors, sendGraphql } from '../support/graphql.js';
import { mutate } from '../support/payloads.js';
import { useApp } from '../support/use-app.js';

const BIG = 9_007_199_254_740_993n;

const app = useApp({}, async () => {
  await addFiles(app.ctx, [{ path: '/m/1' }, { path: '/m/2', stage: 'ONDISK' }, { path: '/huge/1', size: BIG }]);
});

const REQUEST = `request { __typename requestId label pattern state retention notifyOnFirstFile notifyOnLastFile
  filesTotal filesOnDisk filesUnknown bytesTotal quota { user used } }`;
const ERROR = `__typename message code ... on InvalidInput { field } ... on UnknownUser { user }
  ... on QuotaExceeded { user size used requested available }`;

type Result = Record<string, unknown>;

const change = (field: string, input: object) => mutate<Result>(app, field, input, REQUEST, ERROR);
const create = (input: object) => change('createRequest', input);
const update = (input: object) => change('updateRequest', input);
const cancel = (requestId: number) => change('cancelRequest', { requestId });

test('createRequest returns the request, and updateRequest changes only the given fields', async () => {
  await addQuota(app.ctx, 'ann', 10_000n);
  const retention = '2999-01-01T00:00:00.000001';
  const addresses = { notifyOnFirstFile: 'one@example.org', notifyOnLastFile: '' };
  const created = await create({ quota: 'ann', pattern: '/m/', label: 'before', retention, ...addresses });
  expect(created).toEqual({
    __typename: 'Request',
    requestId: expect.any(Number),
    label: 'before',
    pattern: '/m/',
    state: 'QUEUED',
    retention: `${retention}Z`,
    notifyOnFirstFile: 'one@example.org',
    notifyOnLastFile: 'ann@example.org',
    ...{ filesTotal: 2, filesOnDisk: 1, filesUnknown: 0, bytesTotal: '2000' },
    quota: { user: 'ann', used: '2000' },
  });
  const id = created.requestId;
  expect(await update({ requestId: id })).toEqual(created);
  expect(await update({ requestId: id, label: 'after', expectedQuota: 'ann' })).toEqual({ ...created, label: 'after' });
  expect(
    await update({ requestId: id, notifyOnFirstFile: null, notifyOnLastFile: 'x@y.org', retention: '2998-02-03' }),
  ).toEqual({
    ...created,
    label: 'after',
    ...{ notifyOnFirstFile: null, notifyOnLastFile: 'x@y.org', retention: '2998-02-03T00:00:00Z' },
  });
});

test('createRequest by files accepts unknown paths, and the first path is its label', async () => {
  await addQuota(app.ctx, 'ben', 10_000n);
  expect(await create({ quota: 'ben', files: ['/m/2', '/not/yet'] })).toMatchObject({
    ...{ label: '/m/2', pattern: null, state: 'COMPLETED', filesTotal: 1, filesOnDisk: 1, filesUnknown: 1 },
    notifyOnFirstFile: null,
    quota: { user: 'ben', used: '1000' },
  });
});

test('createRequest with an invalid field returns InvalidInput and stores nothing', async () => {
  await addQuota(app.ctx, 'cid', 10_000n);
  expect(await create({ quota: 'cid', pattern: '/m/', retention: '2020-01-01T00:00:00.5' })).toEqual({
    ...{ __typename: 'InvalidInput', code: 'INVALID_INPUT', field: 'retention' },
    message: expect.stringMatching(/^retention must be in the future: 2020-01-01T00:00:00.500000 is not after /),
  });
  expect(await askData(app, '{ requests(quota: "cid") { totalCount } }')).toEqual({ requests: { totalCount: 0 } });
});

test('createRequest over quota returns QuotaExceeded with exact figures and stores nothing', async () => {
  await addQuota(app.ctx, 'eve', BIG);
  await create({ quota: 'eve', files: ['/m/1'] });
  expect(await create({ quota: 'eve', pattern: '/huge/' })).toEqual({
    __typename: 'QuotaExceeded',
    code: 'QUOTA_EXCEEDED',
    message: `quota "eve" is full: ${BIG} bytes requested, ${BIG - 1000n} bytes of ${BIG} bytes free; release files or cancel requests that are no longer needed, or ask an operator for a larger quota`,
    ...{ user: 'eve', size: String(BIG), used: '1000', requested: String(BIG), available: String(BIG - 1000n) },
  });
  expect(await askData(app, '{ quota(user: "eve") { used requests { edges { node { label } } } } }')).toEqual({
    quota: { used: '1000', requests: { edges: [{ node: { label: '/m/1' } }] } },
  });
});

test('each failure has its type', async () => {
  await addQuota(app.ctx, 'gus', 2000n);
  await addQuota(app.ctx, 'hal', 2000n);
  const { requestId: id } = await create({ quota: 'gus', pattern: '/m/' });
  const message = 'there is no quota for user "nobody"';
  const unknownUser = { __typename: 'UnknownUser', code: 'UNKNOWN_USER', message, user: 'nobody' };
  expect(await create({ quota: 'nobody', pattern: '/m/' })).toEqual(unknownUser);
  expect(await update({ requestId: id, expectedQuota: 'nobody' })).toEqual(unknownUser);
  expect(await update({ requestId: id, notifyOnLastFile: 'me' })).toMatchObject({ field: 'notifyOnLastFile' });
  expect(await update({ requestId: id, expectedQuota: 'hal' })).toEqual({
    __typename: 'WrongQuota',
    code: 'WRONG_QUOTA',
    message: `request ${id} belongs to quota "gus", not to "hal"`,
  });
  const missing = 2_147_483_647;
  const notFound = {
    __typename: 'NotFound',
    code: 'NOT_FOUND',
    message: `there is no request ${missing}, or you are not allowed to see it`,
  };
  expect([await update({ requestId: missing, label: 'x' }), await cancel(missing)]).toEqual([notFound, notFound]);
  expect(await update({ requestId: id, retention: '2020-01-01' })).toMatchObject({
    state: 'EXPIRED',
    quota: { used: '0' },
  });
  await create({ quota: 'gus', files: ['/m/1'] });
  const figures = { user: 'gus', size: '2000', used: '1000', requested: '2000' };
  expect(await update({ requestId: id, retention: '2999-01-01' })).toMatchObject({
    __typename: 'QuotaExceeded',
    ...figures,
  });
});

test('cancelRequest ends the request and releases its charge, once', async () => {
  await addQuota(app.ctx, 'ida', 10_000n);
  const { requestId } = await create({ quota: 'ida', pattern: '/m/' });
  const cancelled = { __typename: 'Request', state: 'CANCELLED', quota: { used: '0' } };
  for (let n = 0; n < 2; n++) expect(await cancel(requestId as number)).toMatchObject(cancelled);
});

test.each([
  ['2999-01-01', '2999-01-01T00:00:00Z'],
  ['2999-01-01T12:30:00', '2999-01-01T12:30:00Z'],
  ['2999-01-01T12:30:00Z', '2999-01-01T12:30:00Z'],
  ['2999-01-01t12:30:00.5z', '2999-01-01T12:30:00.500000Z'],
  ['2999-01-01T00:15:00.000001+05:45', '2998-12-31T18:30:00.000001Z'],
  ['2998-12-31T23:59:59.999999-00:01', '2999-01-01T00:00:59.999999Z'],
])('a DateTime of %j is returned as %j, as a variable and as a literal', async (given, told) => {
  await addQuota(app.ctx, 'zed', 1_000_000n);
  const query = `mutation ($at: DateTime) {
    one: createRequest(input: { quota: "zed", pattern: "/m/", retention: $at }) { request { retention } }
    two: createRequest(input: { quota: "zed", pattern: "/m/", retention: "${given}" }) { request { retention } } }`;
  expect(await askData(app, query, { at: given })).toEqual({
    one: { request: { retention: told } },
    two: { request: { retention: told } },
  });
  expect(Number.isNaN(Date.parse(told))).toBe(false);
});

test('a BigInt is returned as text, and accepted as text and as a number up to 2^53', async () => {
  await addQuota(app.ctx, 'quo', BIG);
  const query = `mutation ($max: BigInt) {
    one: createRequest(input: { quota: "quo", files: ["/none"], maxBytes: $max }) { request { maxBytes } }
    two: createRequest(input: { quota: "quo", files: ["/none"], maxBytes: ${BIG} }) { request { maxBytes } } }`;
  const exact = { request: { maxBytes: String(BIG) } };
  expect(await askData(app, query, '{"max":9007199254740991}')).toEqual({
    one: { request: { maxBytes: '9007199254740991' } },
    two: exact,
  });
  const { errors } = await ask(app, query, `{"max":${BIG}}`);
  expect(errors?.[0]?.message).toContain('BigInt beyond 2^53 must be a string');
  expect(await askData(app, query, `{"max":"${BIG}"}`)).toEqual({ one: exact, two: exact });
  const { text } = await sendGraphql(app, { query: '{ quota(user: "quo") { size used } }' });
  expect(JSON.parse(text)).toEqual({ data: { quota: { size: String(BIG), used: '0' } } });
});

test.each(['tomorrow', '2999-02-30', '2999-01-01Z', '2999-01-01T00:00:00+24:00', '9999-12-31T23:59:59-00:01'])(
  'a DateTime of %j is refused',
  async (retention) => {
    await addQuota(app.ctx, 'jan', 10_000n);
    for (const [variables, at] of [
      ['($at: DateTime)', '$at'],
      ['', `"${retention}"`],
    ] as const) {
      const query = `mutation ${variables} { createRequest(input: { quota: "jan", pattern: "/m/", retention: ${at} }) { errors { message } } }`;
      expect(await askErrors(app, query, { at: retention })).toEqual([expect.stringContaining(`not "${retention}"`)]);
    }
    expect(await askData(app, '{ requests(quota: "jan") { totalCount } }')).toEqual({ requests: { totalCount: 0 } });
  },
);

// the last test, because it breaks the database
test('an internal error reveals nothing, and the log contains it in full', async () => {
  await addQuota(app.ctx, 'kim', 10_000n);
  await app.ctx.db.pool.query('ALTER TABLE recall RENAME TO recall_away');
  const error = vi.spyOn(app.ctx.log, 'error');
  const query =
    'mutation { createRequest(input: { quota: "kim", pattern: "/m/" }) { request { state } errors { message } } }';
  expect(await ask(app, query)).toEqual({
    data: { createRequest: null },
    errors: [
      {
        message: 'Internal error',
        path: ['createRequest'],
        locations: [{ line: 1, column: 12 }],
        extensions: { code: 'INTERNAL_SERVER_ERROR' },
      },
    ],
  });
  const logged = error.mock.calls.map(([entry]) => (entry as unknown as { err: Error }).err.message);
  expect(logged).toEqual([expect.stringContaining('relation "recall" does not exist')]);
});
