/** Trusted GraphQL documents. A client sends the name of a document instead of its text. */
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { openDocuments } from '../../graphql/server/persisted.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { startBeside, type TestApp } from '../support/app.js';
import { send } from '../support/http.js';
import { makeTempDir } from '../support/temp-dir.js';
import { useApp } from '../support/use-app.js';

const TRUSTED = 'query Trusted { __typename }';
const WATCH = 'subscription Watch { requestProgress(requestId: 2147483647) { state } }';
const hashOf = (text: string) => createHash('sha256').update(text).digest('hex');

const file = path.join(makeTempDir(), 'persisted-documents.json');
const LARGE = `{ ${Array.from({ length: 201 }, (_, n) => `f${n}: __typename`).join(' ')} }`;
writeFileSync(file, JSON.stringify({ 'sha256:ABC1': TRUSTED, watch: WATCH, large: LARGE }));

let strict: TestApp;
let tokens: Record<'user' | 'operator', string>;
const open = useApp({}, async () => {
  strict = await startBeside(open, { config: { trustedDocuments: file, trustedOnly: true } });
  const secretOf = async (role: 'USER' | 'OPERATOR') =>
    (await createToken(open.ctx, { name: role.toLowerCase(), role })).secret;
  tokens = { user: await secretOf('USER'), operator: await secretOf('OPERATOR') };
});
afterAll(() => strict.close());

const named = (hash: string) => ({ extensions: { persistedQuery: { version: 1, sha256Hash: hash } } });
const post = (app: TestApp, body: object, headers: Record<string, string> = {}, at = '/graphql') =>
  send(app, at, { headers: { 'Content-Type': 'application/json', ...headers }, body });
const codeOf = ({ body }: { body: unknown }) =>
  (body as { errors?: { extensions?: { code?: string } }[] }).errors?.[0]?.extensions?.code;

test('a client of automatic persisted queries is asked for the text, and then gets the result', async () => {
  const query = '{ __typename }';
  const refused = await post(open, named(hashOf(query)));
  const errors = [{ message: 'PersistedQueryNotSupported', extensions: { code: 'PERSISTED_QUERY_NOT_SUPPORTED' } }];
  expect([refused.status, refused.body]).toEqual([200, { errors }]);
  expect((await post(open, { query, ...named(hashOf(query)) })).body).toEqual({ data: { __typename: 'Query' } });
  for (const body of [{ extensions: {} }, { extensions: { persistedQuery: { sha256Hash: 1 } } }]) {
    expect((await post(open, body)).status).toBe(400);
  }
});

test('a trusted document passes the same checks as a sent one', async () => {
  const refused = await post(strict, { documentId: 'large' }, { Authorization: `Bearer ${tokens.user}` });
  expect(codeOf(refused)).toBe('TOO_LARGE');
});

test('with trusted documents only, those run by id, by text and on streams, and no others', async () => {
  const user = { Authorization: `Bearer ${tokens.user}` };
  const good = [{ documentId: 'abc1' }, { documentId: 'sha256:abc1' }, named('abc1'), { query: TRUSTED }];
  for (const body of good) expect((await post(strict, body, user)).body).toEqual({ data: { __typename: 'Query' } });
  const events = { ...user, Accept: 'text/event-stream' };
  const stream = await post(strict, { documentId: 'watch' }, events, '/graphql/stream');
  expect(stream.text).toContain('event: complete');
  const query = '{ __typename }';
  for (const body of [{ query }, { query, documentId: 'abc1' }, named(hashOf(query)), { documentId: 'none' }]) {
    for (const headers of [user, { Authorization: '' }]) {
      const refused = await post(strict, body, headers);
      expect([body, refused.status, codeOf(refused)]).toEqual([body, 403, 'UNTRUSTED_DOCUMENT']);
    }
  }
});

test('an operator with a token may send any document', async () => {
  const query = 'query OfOperator { __typename }';
  const operator = { Authorization: `Bearer ${tokens.operator}` };
  const { body } = await post(strict, { query }, operator);
  expect(body).toEqual({ data: { __typename: 'Query' } });
  expect((await post(strict, { documentId: 'none' }, operator)).status).toBe(404);
});

test.each([
  ['[]', /must be a JSON object/],
  ['{"a": 1}', /must be a JSON object/],
  ['{', /cannot be read/],
  ['{"Aa": "{ __typename }", "sha256:aA": "{ other: __typename }"}', /two documents with the id "aa"/],
])('a file of trusted documents that is %s stops the gateway at its start', (text, says) => {
  const bad = path.join(path.dirname(file), 'bad.json');
  writeFileSync(bad, text);
  expect(() => openDocuments({ trustedDocuments: bad, trustedOnly: false })).toThrow(says);
});
