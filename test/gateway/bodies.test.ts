/** Bodies that cost more than they say, and what they may take. */
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { sendGraphql } from '../support/graphql.js';
import { errorBody, post, read } from '../support/rest.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
  await addQuota(app.ctx, 'alice', 1_000_000n);
});
afterAll(() => app.close());

/** Of what the process itself has parsed meanwhile. */
async function longestParsed(work: () => Promise<void>): Promise<number> {
  const parse = vi.spyOn(JSON, 'parse');
  try {
    await work();
    return Math.max(0, ...parse.mock.calls.map(([text]) => text.length));
  } finally {
    parse.mockRestore();
  }
}

test('a body of millions of objects is not parsed at all', async () => {
  const text = `[${'{},'.repeat(11_000_000)}{}]`;
  const longest = await longestParsed(async () => {
    const message = 'the body is not JSON: it has more than 10000 lists and objects';
    const posted = await post(app, text);
    expect([posted.status, posted.body]).toEqual([400, errorBody(message)]);
    const asked = await sendGraphql(app, `{"query":"{ __typename }","variables":{"a":${text}}}`);
    expect([asked.status, asked.body]).toEqual([400, { errors: [{ message }] }]);
  });
  expect(longest).toBeLessThan(1000);
});

test.each([
  ['short', 'x'],
  ['of many digits', '20260101000000001234'],
])('a large body is parsed in a thread of its own, with names %s, and its integers are exact', async (_what, name) => {
  const files = Array.from({ length: 50_000 }, (_, n) => `/large/${name}/${'y'.repeat(60)}/${n}`);
  const body = `[{"quota":"alice","files":${JSON.stringify(files)},"other":12345678901234567890,"retention":98765432109876543210}]`;
  const taken = `[{"quota":"alice","files":${JSON.stringify(files)}}]`;
  const longest = await longestParsed(async () => {
    expect((await post(app, body)).body).toEqual(errorBody('retention must be a string, not a number'));
    expect((await post(app, taken)).status).toBe(200);
  });
  expect(longest).toBeLessThan(100_000);
  const { requests } = await read<{ requests: { id: number }[] }>(app, '/requests');
  expect((await read(app, `/requests/${requests.at(-1)?.id}`)).files).toEqual(files);
});

test('a large body that is no JSON is refused with what is wrong, and the next one is parsed', async () => {
  const long = `"${'z'.repeat(2_000_000)}"`;
  for (const [text, says] of [
    [`[${long},`, /^the body is not JSON: /],
    [`[{${long}:1,12345678901234567890:2}]`, /^the body is not JSON: /],
    [Buffer.concat([Buffer.from(`[${long}`), Buffer.from([0x22, 0xff, 0x22, 0x5d])]), /^the body is not JSON: /],
  ] as const) {
    const { status, body } = await post(app, text);
    expect([status, body]).toEqual([400, [expect.objectContaining({ error: expect.stringMatching(says) })]]);
    expect(JSON.stringify(body)).not.toContain('\uE000');
  }
  expect((await post(app, `[{"quota":"nobody","label":${long}}]`)).status).toBe(400);
});
