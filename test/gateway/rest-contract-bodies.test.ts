import { once } from 'node:events';
import net from 'node:net';
import { expect, test } from 'vitest';
import { MAX_BODY_BYTES } from '../../src/gateway/http/http-body.js';
import { expectError, useContract } from '../support/contract.js';
import { type Answer, call, errorBody, get, post, put, read, readRequest } from '../support/rest.js';

const { app } = useContract(10_000n);

const TAKEN = [200, '[{"req_id":1}]'];
const REQUEST = { quota: 'alice', patterns: '/a/', label: 'mine' };

const send = (body: string | Uint8Array, headers?: Record<string, string>): Promise<Answer> =>
  call(app, 'POST', '/requests', { body, ...(headers && { headers }) });

test('R21 the body is an array holding one object', async () => {
  const { status, text } = await send(JSON.stringify([REQUEST]), { 'Content-Type': 'application/json' });
  expect([status, text]).toEqual(TAKEN);
});

test('R22 POST and PUT accept a bare object', async () => {
  const { status, text } = await send(JSON.stringify(REQUEST));
  expect([status, text]).toEqual(TAKEN);
  const changed = await call(app, 'PUT', '/requests/1', { body: '{"quota":"alice","label":"new"}' });
  expect([changed.status, (await readRequest(app, 1)).label]).toEqual([200, 'new']);
});

test('R23 the body is accepted with any Content-Type, and without one', async () => {
  const text = JSON.stringify([REQUEST]);
  for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data', '']) {
    expect((await send(text, { 'Content-Type': type })).status).toBe(200);
  }
  // fetch adds a Content-Type to a string, but not to bytes
  expect((await send(new TextEncoder().encode(text))).status).toBe(200);
});

test('R24 JSON other than an object or an array of one object returns 400 and names its type', async () => {
  const bodies = {
    '[]': 'an array of 0 elements',
    '[{},{}]': 'an array of 2 elements',
    '[5]': 'an array holding a number',
    '[[{}]]': 'an array holding an array of one element',
    '[null]': 'an array holding null',
    null: 'null',
    true: 'a boolean',
    '"[{}]"': 'a string',
    '12345678901234567890': 'a number',
  };
  for (const [body, name] of Object.entries(bodies)) {
    await expectError(send(body), 400, `the body must be an array holding one object, not ${name}`);
  }
});

test('R25 a body that is not JSON in UTF-8 returns 400', async () => {
  const latin1 = Buffer.from('[{"quota":"ali\u00E9"}]', 'latin1');
  const utf16 = Buffer.from('[{"quota":"alice"}]', 'utf16le');
  const message = expect.stringMatching(/^the body is not JSON: ./);
  for (const body of ['', ' ', '[{"quota":"ali', '[{"quota":"alice"}', 'quota=alice', latin1, utf16]) {
    await expectError(send(body), 400, message);
  }
});

test('R26 a byte order mark before the JSON is ignored', async () => {
  const { status, text } = await send(`\uFEFF${JSON.stringify([REQUEST])}`);
  expect([status, text]).toEqual(TAKEN);
});

test('R27 the last value of a repeated field counts', async () => {
  for (const [index, more] of ['', ',"x":12345678901234567890'].entries()) {
    await send(`[{"quota":"bob","patterns":"/a/","quota":"alice","label":"one","label":"two"${more}}]`);
    expect(await readRequest(app, index + 1)).toMatchObject({ quota: 'alice', label: 'two' });
  }
});

test('R28 unknown fields are ignored', async () => {
  const unknown = { id: 99, state: 'COMPLETED', request_date: '2001-01-01', size: 12, pattern: '/b/', Label: 'other' };
  const posted = await post(app, { ...REQUEST, ...unknown });
  const changed = await put(app, 1, { quota: 'alice', ...unknown });
  const { id, label, request_patterns } = await readRequest(app, 1);
  expect([posted.status, changed.status, id, label, request_patterns]).toEqual([200, 200, 1, 'mine', '/a/']);
});

test('R29 a field of a wrong type returns 400 and names the field', async () => {
  await post(app, REQUEST);
  const names = { 5: 'a number', true: 'a boolean', '{}': 'an object', '["a"]': 'an array of one element' };
  const fields = ['quota', 'retention', 'label', 'notify_on_first_file', 'notify_on_last_file'];
  for (const [json, name] of Object.entries(names)) {
    for (const field of [...fields, 'patterns']) {
      const body = `[{"quota":"alice","patterns":"/a/","${field}":${json}}]`;
      const expected = [400, errorBody(`${field} must be a string, not ${name}`)];
      const posted = await send(body);
      expect([posted.status, posted.body]).toEqual(expected);
      if (field === 'patterns') continue;
      const changed = await call(app, 'PUT', '/requests/1', { body });
      expect([changed.status, changed.body]).toEqual(expected);
    }
  }
  const problems = { 5: 'be a list of paths, not a number', '["/a",{}]': 'contain strings, not an object' };
  for (const [json, problem] of Object.entries(problems)) {
    await expectError(send(`[{"quota":"alice","files":${json}}]`), 400, `files must ${problem}`);
  }
});

test('R30 null counts as not given', async () => {
  const nulls = { files: null, retention: null, label: null, notify_on_first_file: null, notify_on_last_file: null };
  const posted = await post(app, { quota: 'alice', patterns: '/a/', ...nulls });
  expect([posted.status, posted.text]).toEqual(TAKEN);
  expect(await readRequest(app, 1)).toMatchObject({ label: '/a/', notify_on_first_file: null });
  const listed = await post(app, { quota: 'alice', patterns: null, files: ['/a'] });
  const refused = await post(app, { quota: null, patterns: '/a/' });
  expect([listed.status, refused.status]).toEqual([200, 400]);
});

test('R31 a body of 33,554,432 bytes with 100,000 paths is accepted', async () => {
  const files = Array.from({ length: 100_000 }, (_, n) => `/f/${n}`);
  const text = JSON.stringify([{ quota: 'alice', files }]);
  const { status, text: answer } = await send(text.padEnd(MAX_BODY_BYTES, ' '));
  expect([MAX_BODY_BYTES, status, answer]).toEqual([33_554_432, ...TAKEN]);
  expect((await read<{ files: string[] }>(app, '/requests/1')).files).toEqual(files);
});

test('R32 a longer body returns 413, with and without Content-Length, also to a client that reads only when it has sent all', async () => {
  // the excess bytes do not fit into the socket buffers
  const body = Buffer.alloc(MAX_BODY_BYTES + 16 * 1024 * 1024, ' ');
  const message = 'the body must have at most 33554432 bytes';
  const head = `POST ${new URL(app.api).pathname}/requests HTTP/1.1\r\nHost: localhost\r\n`;
  const announced = await sendThenListen([`${head}Content-Length: ${body.length}\r\n\r\n`, body]);
  const size = body.length.toString(16);
  const chunked = await sendThenListen([`${head}Transfer-Encoding: chunked\r\n\r\n${size}\r\n`, body, '\r\n0\r\n\r\n']);
  for (const answer of [announced, chunked]) {
    expect(answer).toMatch(/^HTTP\/1\.1 413 /);
    expect(answer).toContain('\r\nContent-Type: application/json\r\n');
    expect(answer.slice(answer.indexOf('[{'))).toBe(JSON.stringify(errorBody(message)));
  }
  expect((await get(app, '/requests')).text).toBe('[{"requests":[]}]');
});

async function sendThenListen(parts: (string | Uint8Array)[]): Promise<string> {
  const { hostname, port } = new URL(app.url);
  const socket = net.connect(Number(port), hostname);
  try {
    socket.pause();
    await once(socket, 'connect');
    for (const part of parts) {
      await new Promise<void>((resolve, reject) => socket.write(part, (error) => (error ? reject(error) : resolve())));
    }
    let text = '';
    for await (const chunk of socket) text += String(chunk);
    return text;
  } finally {
    socket.destroy();
  }
}

test('R33 an encoded body returns 415, except with the encoding identity', async () => {
  const text = JSON.stringify([REQUEST]);
  for (const encoding of ['gzip', 'deflate', 'br', 'gzip, identity']) {
    const message = `the body must be sent without Content-Encoding, not as "${encoding}"`;
    await expectError(send(text, { 'Content-Encoding': encoding }), 415, message);
  }
  expect((await send(text, { 'Content-Encoding': 'Identity' })).status).toBe(200);
});
