/** Documents that are named instead of sent: automatic ones and trusted ones. */
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openDocuments } from '../../graphql/persisted.js';
import { createToken } from '../../src/operations/access/tokens.js';
import { startApp, type TestApp } from '../support/app.js';
import { send } from '../support/http.js';
import { makeTempDir } from '../support/temp-dir.js';

const TRUSTED = 'query Trusted { __typename }';
const WATCH = 'subscription Watch { requestProgress(id: 2147483647) { state } }';
const hashOf = (text: string) => createHash('sha256').update(text).digest('hex');

let open: TestApp;
let strict: TestApp;
let file: string;
let tokens: Record<'user' | 'operator', string>;
beforeAll(async () => {
  file = path.join(makeTempDir(), 'persisted-documents.json');
  writeFileSync(file, JSON.stringify({ 'sha256:ABC1': TRUSTED, watch: WATCH }));
  open = await startApp();
  strict = await startApp({ config: { trustedDocuments: file, trustedOnly: true } });
  const secretOf = async (role: 'USER' | 'OPERATOR') =>
    (await createToken(strict.ctx, { name: role.toLowerCase(), role })).secret;
  tokens = { user: await secretOf('USER'), operator: await secretOf('OPERATOR') };
});
afterAll(async () => {
  await open.close();
  await strict.close();
});

const named = (hash: string, version = 1) => ({ extensions: { persistedQuery: { version, sha256Hash: hash } } });
const post = (app: TestApp, body: object, headers: Record<string, string> = {}, at = '/graphql') =>
  send(app, at, { headers: { 'Content-Type': 'application/json', ...headers }, body });
const callerWith = (role: 'user' | 'operator') => ({
  ...strict.ctx.caller,
  way: 'token' as const,
  roles: new Set([role]),
});
const codeOf = ({ body }: { body: unknown }) =>
  (body as { errors?: { extensions?: { code?: string } }[] }).errors?.[0]?.extensions?.code;

test('a document that was sent with its hash is known by it from then on', async () => {
  const query = 'query Automatic { __typename }';
  const unknown = await post(open, named(hashOf(query)));
  expect([unknown.status, unknown.body]).toEqual([
    200,
    { errors: [{ message: 'PersistedQueryNotFound', extensions: { code: 'PERSISTED_QUERY_NOT_FOUND' } }] },
  ]);
  const RESULT = { data: { __typename: 'Query' } };
  expect((await post(open, { query, ...named(hashOf(query)) })).body).toEqual(RESULT);
  expect((await post(open, named(hashOf(query)))).body).toEqual(RESULT);
  const extensions = encodeURIComponent(JSON.stringify(named(hashOf(query)).extensions));
  const got = await send(open, `/graphql?extensions=${extensions}`, { headers: { Accept: 'application/json' } });
  expect(got.body).toEqual(RESULT);
  for (const at of ['/graphql', '/graphql/stream']) {
    const { text } = await post(open, named(hashOf(query)), { Accept: 'text/event-stream' }, at);
    expect(text).toContain(JSON.stringify(RESULT));
  }
});

test('a hash that is not that of the query, or of another version, is refused and nothing is kept', async () => {
  const wrong = await post(open, { query: '{ __typename }', ...named('0'.repeat(64)) });
  expect([wrong.status, codeOf(wrong)]).toEqual([400, 'PERSISTED_QUERY_HASH_MISMATCH']);
  expect(codeOf(await post(open, named('0'.repeat(64))))).toBe('PERSISTED_QUERY_NOT_FOUND');
  const other = await post(open, named(hashOf('{ __typename }'), 2));
  expect([other.status, codeOf(other)]).toEqual([400, 'PERSISTED_QUERY_NOT_SUPPORTED']);
  expect((await post(open, { extensions: {} })).status).toBe(400);
});

test('what is named passes the checks that what is sent passes', async () => {
  const query = `{ ${Array.from({ length: 201 }, (_, n) => `f${n}: __typename`).join(' ')} }`;
  expect(codeOf(await post(open, { query, ...named(hashOf(query)) }))).toBe('TOO_LARGE');
  expect(codeOf(await post(open, named(hashOf(query))))).toBe('TOO_LARGE');
});

test('a subscription that is too long is refused also where its document is named', async () => {
  const query = `${WATCH} # ${'x'.repeat(17_000)}`;
  await post(open, { query, ...named(hashOf(query)) });
  const { status, text } = await post(open, named(hashOf(query)), { Accept: 'text/event-stream' });
  expect([status, text]).toEqual([413, expect.stringContaining('a subscription must have at most 16384 bytes')]);
});

test('documents that were not used for long make room for others', () => {
  const documents = openDocuments({ trustedDocuments: undefined, trustedOnly: false });
  const caller = open.ctx.caller;
  const textOf = (n: number) => `{ __typename } # ${n} ${'x'.repeat(40_000)}`;
  for (let n = 0; n < 60; n++) documents.find({ query: textOf(n), ...named(hashOf(textOf(n))) }, caller);
  expect(documents.find(named(hashOf(textOf(59))), caller)).toBe(textOf(59));
  expect(() => documents.find(named(hashOf(textOf(0))), caller)).toThrow('PersistedQueryNotFound');
});

test('trusted documents are run by their id, by their text, and on streams, and no others', async () => {
  const user = { Authorization: `Bearer ${tokens.user}` };
  const good = [{ documentId: 'abc1' }, { documentId: 'sha256:abc1' }, named('abc1'), { query: TRUSTED }];
  for (const body of good) expect((await post(strict, body, user)).body).toEqual({ data: { __typename: 'Query' } });
  const stream = await post(
    strict,
    { documentId: 'watch' },
    { ...user, Accept: 'text/event-stream' },
    '/graphql/stream',
  );
  expect(stream.text).toContain('event: complete');
  const bad = [
    { query: '{ __typename }' },
    { query: '{ __typename }', documentId: 'abc1' },
    named(hashOf('{ __typename }')),
  ];
  for (const body of [...bad, { documentId: 'none' }]) {
    for (const headers of [user, { Authorization: '' }]) {
      const refused = await post(strict, body, headers);
      expect([body, refused.status, codeOf(refused)]).toEqual([body, 403, 'UNTRUSTED_DOCUMENT']);
    }
  }
});

test('operators who show who they are may send what they like, which nobody else can name then', async () => {
  const query = 'query OfOperator { __typename }';
  const operator = { Authorization: `Bearer ${tokens.operator}` };
  expect((await post(strict, { query, ...named(hashOf(query)) }, operator)).body).toEqual({
    data: { __typename: 'Query' },
  });
  expect((await post(strict, { documentId: 'none' }, operator)).status).toBe(404);
  const user = await post(strict, named(hashOf(query)), { Authorization: `Bearer ${tokens.user}` });
  expect(codeOf(user)).toBe('UNTRUSTED_DOCUMENT');
});

test('what is refused as untrusted is not kept either', () => {
  const documents = openDocuments({ trustedDocuments: file, trustedOnly: true });
  const [query, user, operator] = ['query Refused { __typename }', callerWith('user'), callerWith('operator')];
  expect(() => documents.find({ query, ...named(hashOf(query)) }, user)).toThrow(/TRUSTED_ONLY/);
  expect(() => documents.find(named(hashOf(query)), operator)).toThrow('PersistedQueryNotFound');
});

test.each([
  ['[]', /must be a JSON object/],
  ['{"a": 1}', /must be a JSON object/],
  ['{', /cannot be read/],
  ['{"Aa": "{ __typename }", "sha256:aA": "{ other: __typename }"}', /two documents for the id "aa"/],
])('a file of trusted documents that is %s stops the start', (text, says) => {
  const bad = path.join(path.dirname(file), 'bad.json');
  writeFileSync(bad, text);
  expect(() => openDocuments({ trustedDocuments: bad, trustedOnly: false })).toThrow(says);
});
