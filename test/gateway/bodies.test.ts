/** Bodies that cost more than they say, and what they may take. */
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { startApp, startBeside, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { sendGraphql } from '../support/graphql.js';
import { errorBody, post, read } from '../support/rest.js';
import { waitFor, whenClosed } from '../support/wait.js';

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

test('a body of a million objects is not parsed at all', async () => {
  const body = `[${'{},'.repeat(1_000_000)}{}]`;
  const longest = await longestParsed(async () => {
    const message = 'the body is not JSON: it has more than 10000 lists and objects';
    const posted = await post(app, body);
    expect([posted.status, posted.body]).toEqual([400, errorBody(message)]);
    const asked = await sendGraphql(app, `{"query":"{ __typename }","variables":{"a":${body}}}`);
    expect([asked.status, asked.body]).toEqual([400, { errors: [{ message }] }]);
  });
  expect(longest).toBeLessThan(1000);
});

test.each([
  ['short', 'x'],
  ['of many digits', '20260101000000001234'],
])('a large body is parsed in a thread of its own, with names %s, and its integers are exact', async (_what, name) => {
  const files = Array.from({ length: 10_000 }, (_, n) => `/large/${name}/${'y'.repeat(120)}/${n}`);
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
  for (const [json, says] of [
    [`[${long},`, /^the body is not JSON: /],
    [`[{${long}:1,12345678901234567890:2}]`, /^the body is not JSON: /],
    [Buffer.concat([Buffer.from(`[${long}`), Buffer.from([0x22, 0xff, 0x22, 0x5d])]), /^the body is not JSON: /],
  ] as const) {
    const { status, body } = await post(app, json);
    expect([status, body]).toEqual([400, [expect.objectContaining({ error: expect.stringMatching(says) })]]);
    expect(JSON.stringify(body)).not.toContain('\uE000');
  }
  expect((await post(app, `[{"quota":"nobody","label":${long}}]`)).status).toBe(400);
});

const threads = () => readdirSync('/proc/self/task').length;

test.runIf(process.platform === 'linux')(
  'what a large body has left on the heap of its thread goes with that',
  async () => {
    const long = `"${'z'.repeat(2_000_000)}"`;
    expect((await post(app, `[{"quota":"nobody","label":${long}}]`)).status).toBe(400);
    const before = threads();
    await waitFor('the thread to end', async () => threads() < before);
    expect((await post(app, `[{"quota":"nobody","label":${long}}]`)).status).toBe(400);
  },
);

const MB = 1024 * 1024;

/** Begins to send a body of 5 MB, and stops after some of it. */
function beginBody({ api }: TestApp, { bytes, localAddress }: { bytes: number; localAddress?: string }) {
  const options = { method: 'POST', agent: false, ...(localAddress && { localAddress }) };
  const request = http.request(`${api}/requests`, { ...options, headers: { 'Content-Length': 5 * MB } });
  request.on('error', () => {}); // when it is ended
  request.write(Buffer.alloc(bytes, ' '));
  return request;
}

const small = `[{"quota":"alice","patterns":"/a/"}]`.padEnd(MB, ' ');

test('bodies that stand still take a bounded room, each caller and all together, and give it back when they end', async () => {
  const narrow = await startBeside(app, { limits: { bodiesMb: 3, callerBodiesMb: 2 } });
  const open: http.ClientRequest[] = [];
  try {
    const end = () => {
      for (const request of open.splice(0)) request.destroy();
    };
    /** Bodies stand still that are begun from there: of some that come at once, the last may be the one that is refused. */
    const until = async (status: number, addresses: string[] = []) =>
      await waitFor(`an answer of ${status}`, async () => {
        const begun = addresses.map((localAddress) => beginBody(narrow, { bytes: 1.2 * MB, localAddress }));
        open.push(...begun);
        await Promise.all(begun.map((request) => once(request, 'drain')));
        await read(narrow, '/requests'); // what was sent before has come by now
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

test('a body that stands still is given up with 408, and one that comes slowly is taken', async () => {
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
    }, 25); // what makes it slow: it takes longer than a body may stand still
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

test('a sender who was answered before its body had come has bounded time for the rest', async () => {
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
