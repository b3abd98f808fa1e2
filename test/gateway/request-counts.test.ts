/** Figures about requests: their number in each state, the callers that use a quota, and whether email is sent. */
import { expect, test } from 'vitest';
import { setQuotaMember } from '../../src/domain/access/members.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { cancelRequest } from '../../src/domain/requests/ends.js';
import { addPaths, addQuota } from '../support/factories.js';
import { askData, askErrors } from '../support/graphql.js';
import { sendDue } from '../support/outbox.js';
import { useApp } from '../support/use-app.js';

const tokens: Record<string, string> = {};
const app = useApp({ config: { access: { auth: new Set(['token']) } } }, async () => {
  for (const user of ['alice', 'bob', 'group']) {
    await addQuota(app.ctx, user, 10n ** 9n);
    tokens[user] = (await createToken(app.ctx, { name: user, role: 'USER' })).secret;
  }
  for (const name of ['alice', 'bob'])
    await setQuotaMember(app.ctx, { quota: 'group', kind: 'USER', name, isManager: false });
  await addPaths(app.ctx, '/a/1', '/a/2', '/a/3');
});

const gatewayOf = (user: string) => ({ url: app.url, token: tokens[user] });
const make = async (user: string, quota: string, files: string[]) => {
  const query = `mutation ($input: CreateRequestInput!) { createRequest(input: $input) { request { requestId createdBy } } }`;
  type Made = { createRequest: { request: { requestId: number; createdBy: string | null } } };
  return (await askData<Made>(gatewayOf(user), query, { input: { quota, files } })).createRequest.request;
};

test('requests are counted by state, with filters, and only if the caller may see them', async () => {
  const { requestId } = await make('alice', 'alice', ['/a/1']);
  await make('alice', 'alice', ['/a/2']);
  await make('alice', 'group', ['/a/2', '/none']);
  await make('bob', 'bob', ['/a/2']);
  await cancelRequest(app.ctx, requestId);
  const read = async (user: string, args = '') => {
    type Counts = { requestCounts: { state: string; count: number }[] };
    const { requestCounts } = await askData<Counts>(gatewayOf(user), `{ requestCounts${args} { state count } }`);
    return requestCounts.map(({ state, count }) => `${state} ${count}`).join(', ');
  };
  const counts = (queued: number, cancelled: number) =>
    `QUEUED ${queued}, RESTORING 0, COMPLETED 0, PARTIAL 0, EXPIRED 0, CANCELLED ${cancelled}`;
  expect(await read('alice')).toBe(counts(2, 1));
  expect(await read('alice', '(quota: "group")')).toBe(counts(1, 0));
  expect(await read('alice', '(match: "/a/1")')).toBe(counts(0, 1));
  expect(await read('alice', '(quota: "bob")')).toBe(counts(0, 0));
  expect(await askErrors(gatewayOf('alice'), '{ requestCounts(match: "\\u0000") { state } }')).toEqual([
    expect.stringContaining('match must not contain the character NUL'),
  ]);
});

test('a quota lists the callers that use it, largest first, and requests name their creators', async () => {
  expect(await make('bob', 'group', ['/a/1', '/a/3'])).toMatchObject({ createdBy: 'bob' });
  const old = await make('bob', 'group', ['/a/1']);
  await cancelRequest(app.ctx, old.requestId);
  await createRequest(app.ctx, { quota: 'group', files: ['/a/3'] });
  const query = '{ quota(user: "group") { users { name requestCount fileCount bytes } } }';
  type Users = { quota: { users: { name: string | null; bytes: string }[] } };
  const { users } = (await askData<Users>(gatewayOf('alice'), query)).quota;
  expect(users.map(({ bytes: _, ...user }) => user)).toEqual([
    { name: 'bob', requestCount: 1, fileCount: 2 },
    { name: 'alice', requestCount: 1, fileCount: 1 },
    { name: null, requestCount: 1, fileCount: 1 },
  ]);
  const bytes = users.map((user) => BigInt(user.bytes));
  expect(bytes[0]).toBe(2n * (bytes[1] ?? 0n));
});

test('email is sent if an engine with a mail server has run in the last week', async () => {
  const read = () => askData(gatewayOf('alice'), '{ isEmailSent }');
  await sendDue(app, undefined);
  expect(await read()).toEqual({ isEmailSent: false });
  await sendDue(app, 'smtp://127.0.0.1:9');
  expect(await read()).toEqual({ isEmailSent: true });
  await app.ctx.db.pool.query(`UPDATE mail_sender SET seen_at = seen_at - interval '8 days'`);
  expect(await read()).toEqual({ isEmailSent: false });
});
