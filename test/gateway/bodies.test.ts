/** Limits of request bodies: their size, their memory and their time. */
import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startApp, startBeside, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { sendGraphql } from '../support/graphql.js';
import { errorBody, makeRequest, post, read } from '../support/rest.js';
import { waitFor, whenClosed } from '../support/wait.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
  await addQuota(app.ctx, 'alice', 1_000_000n);
});
afterAll(() => app.close());

test('a body with more than 10,000 lists and objects is refused', async () => {
  const body = `[${'{},'.repeat(10_000)}{}]`;
  const message = 'the body is not JSON: it has more than 10000 lists and objects';
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
  request.on('error', () => {}); // when it is ended
  request.write(Buffer.alloc(bytes, ' '));
  return request;
}

const small = `[{"quota":"alice","patterns":"/a/"}]`.padEnd(MB, ' ');

test('stalled bodies may take only so much memory, for each caller and in all, and release it when they end', async () => {
  const narrow = await startBeside(app, { limits: { bodiesMb: 3, callerBodiesMb: 2 } });
  const open: http.ClientRequest[] = [];
  try {
    const end = () => {
      for (const request of open.splice(0)) request.destroy();
    };
    /** Starts bodies from these addresses until a small one gets the status: of several at once, the last may be the one that is refused. */
    const until = async (status: number, addresses: string[] = []) =>
      await waitFor(`an answer of ${status}`, async () => {
        const begun = addresses.map((localAddress) => beginBody(narrow, { bytes: 1.2 * MB, localAddress }));
        open.push(...begun);
        await Promise.all(begun.map((request) => once(request, 'drain')));
        await read(narrow, '/requests'); // the bodies have arrived once this is answered
        const answer = await post(narrow, small);
        return answer.status === status && answer;
      });
    const own = await until(429, ['127.0.0.1']);
    expect([own.headers.get('retry-after'), own.body]).toEqual([
      expect.stringMatching(/^\d+$/),
      errorBody('your bodies that are being read have more than 2 MB: try again later'),
    ]);
    const asked = await sendGraphql({ url: narrow.url }, `{"query":"{ __typename }"}`.padEnd(MB, ' '));
    expect([asked.status, asked.body.errors?.[0]?.extensions]).toEqual([429, { code: 'TOO_MANY_REQUESTS' }]);
    end();
    await until(200);
    const all = await until(503, ['127.0.0.2', '127.0.0.3']);
    expect([all.headers.get('retry-after'), all.body]).toEqual([
      expect.stringMatching(/^\d+$/),
      errorBody('too many bodies are being read: try again later'),
    ]);
    expect((await post(narrow, '[{"quota":"alice","patterns":"/small/"}]')).status).toBe(200);
    end();
    await until(200);
  } finally {
    for (const request of open) request.destroy();
    await narrow.close();
  }
});

test('a stalled body ends with 408, and a slow one is read', async () => {
  const impatient = await startBeside(app, { limits: { bodySeconds: 0.5 } });
  try {
    const still = beginBody(impatient, { bytes: MB });
    const slow = beginBody(impatient, { bytes: MB });
    let left = 4 * MB - 100;
    const timer = setInterval(() => {
      const part = Math.min(left, 128 * 1024);
      left -= part;
      if (part > 0) slow.write(Buffer.alloc(part, ' '));
      else if (!slow.writableEnded) slow.end(`[{"quota":"alice","patterns":"/a/"}]`.padEnd(100, ' '));
    }, 25); // in all longer than a body may stall
    const answers = await Promise.all(
      [still, slow].map(async (request) => {
        const [response] = (await once(request, 'response')) as [http.IncomingMessage];
        return [response.statusCode, JSON.parse(await text(response))];
      }),
    );
    clearInterval(timer);
    expect(answers).toEqual([
      [408, errorBody('the body brought less than 65536 bytes in 0.5 s')],
      [200, [{ req_id: expect.any(Number) }]],
    ]);
  } finally {
    await impatient.close();
  }
});

test('if the response precedes the end of the body, the connection closes after a while', async () => {
  const impatient = await startBeside(app, { limits: { bodySeconds: 0.5 } });
  const { port } = new URL(impatient.url);
  const paths = ['/tape_control/api/v1/requests', '/graphql', '/import', '/nothing'];
  await Promise.all(
    paths.map(async (path) => {
      const socket = net.connect(Number(port), '127.0.0.1');
      const closed = whenClosed(socket);
      const head = ['Host: 127.0.0.1', 'Authorization: Bearer tapegate_false', 'Transfer-Encoding: chunked'];
      socket.write(`POST ${path} HTTP/1.1\r\n${head.join('\r\n')}\r\n\r\n`);
      const [answer] = await once(socket, 'data');
      expect([path, String(answer).split(' ')[1]]).toEqual([path, path === '/nothing' ? '404' : '401']);
      const trickle = setInterval(() => socket.write('1\r\nx\r\n'), 100);
      socket.resume();
      await closed;
      clearInterval(trickle);
    }),
  );
  await impatient.close();
});
