/** Limits of request bodies: their size, memory and time. */
import { once } from 'node:events';
import http from 'node:http';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { startBeside, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { sendGraphql } from '../support/graphql.js';
import { errorBody, makeRequest, post, read } from '../support/rest.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const app = useApp({}, async () => {
  await addQuota(app.ctx, 'alice', 1_000_000n);
});

test('a body with more than 10,000 lists and objects is refused', async () => {
  const body = `[${'{},'.repeat(10_000)}{}]`;
  const message = 'the body is not JSON: the body has more than 10000 lists and objects';
  const posted = await post(app, body);
  expect([posted.status, posted.body]).toEqual([400, errorBody(message)]);
  const asked = await sendGraphql(app, `{"query":"{ __typename }","variables":{"a":${body}}}`);
  expect([asked.status, asked.body]).toEqual([400, { errors: [{ message }] }]);
});

test('a large body is read exactly, integers included', async () => {
  const files = Array.from({ length: 10_000 }, (_, n) => `/large/20260101000000001234/${'y'.repeat(80)}/${n}`);
  const body = `[{"quota":"alice","files":${JSON.stringify(files)},"other":12345678901234567890,"retention":98765432109876543210}]`;
  expect((await post(app, body)).body).toEqual(errorBody('retention must be a string, not a number'));
  const id = await makeRequest(app, { quota: 'alice', files });
  expect((await read(app, `/requests/${id}`)).files).toEqual(files);
});

test('a large body that is not JSON is refused with the reason, and the next one is read', async () => {
  const long = `"${'z'.repeat(2_000_000)}"`;
  const invalid = [
    `[${long},`,
    `[{${long}:1,12345678901234567890:2}]`,
    Buffer.concat([Buffer.from(`[${long}`), Buffer.from([0x22, 0xff, 0x22, 0x5d])]),
  ];
  for (const json of invalid) {
    const { status, body } = await post(app, json);
    const error = expect.stringMatching(/^the body is not JSON: [^\uE000]*$/);
    expect([status, body]).toEqual([400, [expect.objectContaining({ error })]]);
  }
  expect((await post(app, `[{"quota":"nobody","label":${long}}]`)).status).toBe(400);
});

const MB = 1024 * 1024;

/** Sends the beginning of a body of 5 MB. */
function beginBody({ api }: TestApp, { bytes, localAddress }: { bytes: number; localAddress?: string }) {
  const options = { method: 'POST', agent: false, ...(localAddress && { localAddress }) };
  const request = http.request(`${api}/requests`, { ...options, headers: { 'Content-Length': 5 * MB } });
  request.on('error', () => {}); // ignores the error when the test destroys the request
  request.write(Buffer.alloc(bytes, ' '));
  return request;
}

const small = `[{"quota":"alice","patterns":"/a/"}]`.padEnd(MB, ' ');

test('stalled bodies may take only so much memory, for each caller and in all, and release it when they end', async () => {
  const narrow = await startBeside(app, { limits: { bodiesMb: 4 } });
  const open: http.ClientRequest[] = [];
  try {
    const end = () => {
      for (const request of open.splice(0)) request.destroy();
    };
    /**
     * Starts bodies from these addresses until a small request gets `status`. The gateway may refuse the last of
     * several simultaneous bodies.
     */
    const until = async (status: number, addresses: string[] = []) =>
      await waitFor(`an answer of ${status}`, async () => {
        const begun = addresses.map((localAddress) => beginBody(narrow, { bytes: 1.2 * MB, localAddress }));
        open.push(...begun);
        await Promise.all(begun.map((request) => once(request, 'drain')));
        await read(narrow, '/requests'); // once this request is answered, the gateway has received the bodies
        const answer = await post(narrow, small);
        return answer.status === status && answer;
      });
    const own = await until(429, ['127.0.0.1']);
    expect([own.headers.get('retry-after'), own.body]).toEqual([
      expect.stringMatching(/^\d+$/),
      errorBody('the limit of 1572864 bytes of request bodies per caller is reached: try again later'),
    ]);
    const asked = await sendGraphql({ url: narrow.url }, `{"query":"{ __typename }"}`.padEnd(MB, ' '));
    expect([asked.status, asked.body.errors?.[0]?.extensions]).toEqual([429, { code: 'TOO_MANY_REQUESTS' }]);
    end();
    await until(200);
    const all = await until(503, ['127.0.0.2', '127.0.0.3', '127.0.0.4']);
    expect([all.headers.get('retry-after'), all.body]).toEqual([
      expect.stringMatching(/^\d+$/),
      errorBody('too many bytes of request bodies: try again later'),
    ]);
    expect((await post(narrow, '[{"quota":"alice","patterns":"/small/"}]')).status).toBe(200);
    end();
    await until(200);
  } finally {
    for (const request of open) request.destroy();
    await narrow.close();
  }
});

test('a body that stalls is given up, and one that arrives slowly is read', async () => {
  const impatient = await startBeside(app, { config: { readerSeconds: 2 } });
  const end = `[{"quota":"alice","patterns":"/a/"}]`;
  const [still, slow] = [beginBody(impatient, { bytes: MB }), beginBody(impatient, { bytes: MB })];
  let left = 4 * MB - end.length;
  const trickle = setInterval(() => {
    left -= 1024;
    slow.write(Buffer.alloc(1024, ' '));
  }, 50);
  try {
    await new Promise((resolve) => still.once('close', resolve)); // events.once() would reject on an `error` event
    clearInterval(trickle);
    slow.end(Buffer.concat([Buffer.alloc(left, ' '), Buffer.from(end)]));
    const [response] = (await once(slow, 'response')) as [http.IncomingMessage];
    expect([response.statusCode, JSON.parse(await text(response))]).toEqual([200, [{ req_id: expect.any(Number) }]]);
  } finally {
    clearInterval(trickle);
    await impatient.close();
  }
});
