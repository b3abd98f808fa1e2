/** Revoked tokens, expired tokens and lost rights end streams and pending work. */
import { expect, test } from 'vitest';
import { addSeconds } from '../../src/core/time.js';
import { ADVISORY_SPACE, advisoryKeys } from '../../src/db/locks.js';
import { removeQuotaMember, setQuotaMember } from '../../src/domain/access/members.js';
import { addPathRule } from '../../src/domain/access/path-rules.js';
import { createToken, revokeToken } from '../../src/domain/access/tokens.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { createClock } from '../support/clock.js';
import { addFiles, addQuota } from '../support/factories.js';
import { request, send } from '../support/http.js';
import { whileLocked } from '../support/locks.js';
import { call } from '../support/rest.js';
import { recordStatements } from '../support/statements.js';
import {
  openStream,
  PROGRESS,
  postOperation,
  reserveStream,
  sendReserved,
  take,
  waitForReaders,
} from '../support/streams.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const clock = createClock();
let id: number;
const app = useApp({ now: clock.now, config: { access: { auth: new Set(['token']) } } }, async () => {
  await addQuota(app.ctx, 'alice', 1000n);
  await addQuota(app.ctx, 'carol', 1000n);
  id = await createRequest(app.ctx, { quota: 'alice', files: ['/not/yet'] });
});

const makeToken = (expiresAt?: string) => createToken(app.ctx, { name: 'alice', role: 'USER', expiresAt });
/** A subscription that gets no events. */
const STAGES = { query: 'subscription { stageChanges { path } }' };

async function endOf(stream: { next(): Promise<{ done?: boolean | undefined }> }): Promise<string> {
  try {
    const { done } = await stream.next();
    return done ? 'complete' : 'more';
  } catch {
    return 'broken off';
  }
}

const endOfBody = (response: Response) =>
  response.text().then(
    () => 'complete',
    () => 'broken off',
  );
const bearer = (secret: string) => ({ Authorization: `Bearer ${secret}` });
const statusOf = async (secret: string, path = '/files') =>
  (await call(app, 'GET', path, { headers: bearer(secret) })).status;

test('a revoked token ends its own streams, over both stream protocols', async () => {
  const [mine, other] = [await makeToken(), await makeToken()];
  const gateway = { url: app.url, token: mine.secret };
  const alone = postOperation(gateway, STAGES);
  const [ended, goesOn] = [endOf(alone), endOf(postOperation({ url: app.url, token: other.secret }, STAGES))];
  const headers = { 'X-GraphQL-Event-Stream-Token': await reserveStream(gateway), Accept: 'text/event-stream' };
  const singleEnded = endOfBody(await request(gateway, '/graphql/stream', { headers }));
  await waitForReaders(app, 2);
  await revokeToken(app.ctx, mine.token.id);
  expect(await Promise.all([ended, singleEnded])).toEqual(['broken off', 'broken off']);
  await waitForReaders(app, 1);
  expect(await statusOf(mine.secret)).toBe(401);
  await revokeToken(app.ctx, other.token.id);
  expect(await goesOn).toBe('broken off');
});

test('an expired token ends its streams', async () => {
  const { secret } = await makeToken(addSeconds(clock.now(), 3600));
  const stream = postOperation({ url: app.url, token: secret }, STAGES);
  const ended = endOf(stream);
  await waitForReaders(app, 1);
  clock.advance(3601);
  expect(await ended).toBe('broken off');
  await waitFor('the token to be refused', async () => (await statusOf(secret)) === 401);
});

test('a stream is not found by another token', async () => {
  const [mine, other] = [await makeToken(), await makeToken()];
  const reserved = await reserveStream({ url: app.url, token: mine.secret });
  const headers = { 'X-GraphQL-Event-Stream-Token': reserved, Accept: 'text/event-stream' };
  expect((await send({ url: app.url, token: other.secret }, '/graphql/stream', { headers })).status).toBe(400);
  const { token: stream, close } = await openStream({ url: app.url, token: mine.secret });
  const found = async (token: string) =>
    (await sendReserved({ url: app.url, token }, stream, { query: PROGRESS, variables: { id } })).status;
  expect([await found(other.secret), await found(mine.secret)]).toEqual([404, 202]);
  close();
  await waitForReaders(app, 0);
});

test('stage changes follow the path rules, and streams end when the rules change', async () => {
  const tokens = [(await makeToken()).secret, (await createToken(app.ctx, { name: 'bob', role: 'USER' })).secret];
  await addPathRule(app.ctx, { prefix: '/closed', action: 'LIST', kind: 'USER', name: 'bob' });
  await addFiles(app.ctx, [{ path: '/closed/3' }, { path: '/open/1' }]);
  const streams = tokens.map((token) =>
    postOperation<{ stageChanges: { path: string } }>({ url: app.url, token }, STAGES),
  );
  const first = streams.map((stream) => take(stream, 1));
  await waitForReaders(app, 2);
  for (const path of ['/closed/3', '/open/1']) {
    await app.ctx.db.pool.query(
      `INSERT INTO event (at, file_id, from_stage, to_stage, request_ids)
       SELECT now(), id, 'ONTAPE', 'RESTORING', '{}' FROM tape_file WHERE path = $1`,
      [path],
    );
  }
  expect(await Promise.all(first)).toEqual([
    [{ stageChanges: { path: '/open/1' } }],
    [{ stageChanges: { path: '/closed/3' } }],
  ]);
  await addPathRule(app.ctx, { prefix: '/open', action: 'LIST', kind: 'USER', name: 'bob' });
  await waitFor('the streams to end', async () => app.ctx.events.readers === 0);
});

test.each(['*/*', 'text/*', 'Text/Event-Stream', undefined])(
  'a stream with Accept: %s ends when the rights of its caller change',
  async (accept) => {
    const { secret } = await makeToken();
    const headers: Record<string, string> = { 'Content-Type': 'application/json', ...(accept && { Accept: accept }) };
    const answer = await request({ url: app.url, token: secret }, '/graphql', { headers, body: STAGES });
    const ended = endOfBody(answer);
    await waitForReaders(app, 1);
    await setQuotaMember(app.ctx, { quota: 'carol', kind: 'USER', name: 'alice', isManager: false });
    expect(await ended).toBe('broken off');
    await removeQuotaMember(app.ctx, { quota: 'carol', kind: 'USER', name: 'alice' });
  },
);

test('a change of rights ends no streams of other callers', async () => {
  const [mine, other] = [await makeToken(), await createToken(app.ctx, { name: 'bob', role: 'USER' })];
  const streams = [mine, other].map(({ secret }) => postOperation({ url: app.url, token: secret }, STAGES));
  const ended = streams.map(endOf);
  await waitForReaders(app, 2);
  await setQuotaMember(app.ctx, { quota: 'carol', kind: 'USER', name: 'somebody', isManager: false });
  await setQuotaMember(app.ctx, { quota: 'carol', kind: 'USER', name: 'bob', isManager: false });
  expect(await ended[1]).toBe('broken off');
  await waitForReaders(app, 1);
  await revokeToken(app.ctx, mine.token.id);
  expect(await ended[0]).toBe('broken off');
});

test('a stream in single connection mode ends when the rights of its caller change', async () => {
  await setQuotaMember(app.ctx, { quota: 'carol', kind: 'USER', name: 'alice', isManager: false });
  const gateway = { url: app.url, token: (await makeToken()).secret };
  const { token, response } = await openStream(gateway);
  const hers = await createRequest(app.ctx, { quota: 'carol', files: ['/not/yet'] });
  expect((await sendReserved(gateway, token, { query: PROGRESS, variables: { id: hers } })).status).toBe(202);
  await removeQuotaMember(app.ctx, { quota: 'carol', kind: 'USER', name: 'alice' });
  expect(await endOfBody(response)).toBe('broken off');
  await waitForReaders(app, 0);
});

test('malformed tokens are rejected without a database query', async () => {
  const malformed = ['tapegate_', `tapegate_${'x'.repeat(42)}`, `tapegate_${'x'.repeat(15_000)}`];
  const statements = await recordStatements(
    async () => {
      for (const secret of malformed) expect(await statusOf(secret)).toBe(401);
    },
    { isFeedToo: true },
  );
  expect(statements.filter(({ text }) => text.includes('api_token'))).toEqual([]);
});

const readRequests = async () => (await app.ctx.db.pool.query('SELECT id, state, label FROM request ORDER BY id')).rows;

test('requests that wait for an import when their token is revoked are not made', async () => {
  const { token, secret } = await makeToken();
  const before = await readRequests();
  const importing = `SELECT pg_advisory_xact_lock(${ADVISORY_SPACE}, ${advisoryKeys.catalogue})`;
  await whileLocked(app, importing, async (waiters) => {
    const body = { quota: 'alice', files: ['/stolen'] };
    const asked = Array.from({ length: 12 }, () => call(app, 'POST', '/requests', { headers: bearer(secret), body }));
    const ended = Promise.allSettled(asked);
    await waiters(2);
    await revokeToken(app.ctx, token.id);
    expect((await ended).map(({ status }) => status)).toEqual(asked.map(() => 'rejected'));
  });
  await createRequest(app.ctx, { quota: 'alice', files: ['/own'] });
  await waitFor('all to be over', async () => app.ctx.db.pool.idleCount === app.ctx.db.pool.totalCount);
  expect((await readRequests()).map(({ label }) => label)).toEqual([...before.map(({ label }) => label), '/own']);
});

test.each([
  ['REST', { path: '/tape_control/api/v1/requests', body: () => [{ quota: 'alice', files: ['/stolen'] }] }],
  [
    'GraphQL',
    {
      path: '/graphql',
      body: () => ({ query: `mutation { cancelRequest(input: { requestId: ${id} }) { errors { message } } }` }),
    },
  ],
])('a change is rolled back if its token is revoked before the commit: %s', async (_name, { path, body }) => {
  const { token, secret } = await makeToken();
  const before = await readRequests();
  const asked = await whileLocked(app, 'SELECT FROM quota q FOR UPDATE', async (waiters) => {
    const headers = { ...bearer(secret), 'Content-Type': 'application/json' };
    const answer = send({ url: app.url }, path, { headers, body: body() });
    const ended = answer.then(
      ({ text }) => text,
      () => 'cut off',
    );
    await waiters(1);
    await revokeToken(app.ctx, token.id);
    return { ended };
  });
  expect(await asked.ended).toMatch(/cut off|the token is no longer valid/);
  const rows = await waitFor('the refusal to be recorded', async () => {
    await app.ctx.refusals.settle();
    const answer = await app.ctx.db.pool.query('SELECT result FROM audit WHERE token_id = $1', [token.id]);
    return answer.rows.length > 0 && answer.rows;
  });
  expect(rows).toEqual([{ result: 'FORBIDDEN' }]);
  expect(await readRequests()).toEqual(before);
});

test('an operator may revoke the token that it uses', async () => {
  const { token, secret } = await createToken(app.ctx, { name: 'operator', role: 'OPERATOR' });
  const body = { query: `mutation { revokeToken(input: { tokenId: ${token.id} }) { errors { message } } }` };
  const headers = { ...bearer(secret), 'Content-Type': 'application/json' };
  // the revocation may cut off the response
  await send({ url: app.url }, '/graphql', { headers, body }).catch(() => undefined);
  const { rows } = await app.ctx.db.pool.query('SELECT FROM api_token WHERE id = $1 AND revoked_at IS NOT NULL', [
    token.id,
  ]);
  expect(rows).toHaveLength(1);
});
