import { expect, test } from 'vitest';
import { expectError, NOW, useContract } from '../support/contract.js';
import { addFiles, addQuota } from '../support/factories.js';
import { call, errorBody, get, makeRequest, post, put, read, readRequest } from '../support/rest.js';

const { app } = useContract(10_000n);

/** Returns one response of each kind: every success and every error. */
async function answerAll() {
  await addFiles(app.ctx, [{ path: '/a/one.nc' }]);
  return await Promise.all([
    post(app, { quota: 'alice', patterns: '/a/' }),
    ...['/requests', '/files', '/quota/alice'].map((path) => get(app, path)),
    post(app, { quota: 'alice' }),
    post(app, { quota: 'nobody', patterns: '/a/' }),
    ...['/requests/77', '/nothing'].map((path) => get(app, path)),
    put(app, 77, { quota: 'alice' }),
    call(app, 'DELETE', '/requests'),
    call(app, 'POST', '/requests', { body: '[', headers: { 'Content-Encoding': 'gzip' } }),
  ]);
}

const STATUSES = [200, 200, 200, 200, 400, 403, 404, 404, 404, 405, 415];

test('R01 each body is an array of exactly one object', async () => {
  const answers = await answerAll();
  expect(answers.map(({ status }) => status)).toEqual(STATUSES);
  for (const { body } of answers) expect(body).toEqual([expect.any(Object)]);
});

test('R02 the Content-Type of each response is exactly application/json', async () => {
  const answers = await answerAll();
  expect(answers.map(({ headers }) => headers.get('content-type'))).toEqual(STATUSES.map(() => 'application/json'));
});

test('R03 Vary names Accept in each response', async () => {
  const answers = await answerAll();
  expect(answers.map(({ headers }) => headers.get('vary'))).toEqual(STATUSES.map(() => 'Accept, Accept-Encoding'));
});

test('R04 a client that accepts only HTML gets JSON', async () => {
  const { status, headers, text } = await call(app, 'GET', '/requests', { headers: { Accept: 'text/html' } });
  expect([status, headers.get('content-type'), text]).toEqual([200, 'application/json', '[{"requests":[]}]']);
});

test('R05 an error has the same message as error and error_msg, in this order, and no other key', async () => {
  const { status, text } = await get(app, '/requests/77');
  const message = 'there is no request with id 77';
  expect([status, text]).toEqual([404, `[{"error":"${message}","error_msg":"${message}"}]`]);
});

test('R06 an unknown path returns 404 and names the path', async () => {
  const prefix = new URL(app.api).pathname;
  for (const path of ['', '/', '/request', '/requests/1/files', '/quota', '/files/1', '//files']) {
    await expectError(get(app, path), 404, `there is nothing at ${prefix}${path}`);
  }
});

test('R07 an unknown method of a path returns 405 with the allowed methods', async () => {
  const allowed = { '/requests': 'GET, POST, HEAD', '/requests/1': 'GET, PUT, HEAD' };
  const readOnly = { '/files': 'GET, HEAD', '/quota/alice': 'GET, HEAD' };
  for (const [path, allow] of Object.entries({ ...allowed, ...readOnly })) {
    for (const method of ['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'PROPFIND']) {
      if (allow.includes(method)) continue;
      const { status, headers, body } = await call(app, method, path);
      const message = `${method} is not allowed here, only ${allow}`;
      expect([path, status, headers.get('allow'), body]).toEqual([path, 405, allow, errorBody(message)]);
    }
  }
});

test('R08 HEAD returns the status and the headers of GET without a body', async () => {
  for (const [path, status] of [['/files', 200] as const, ['/requests/77', 404] as const]) {
    const answer = await call(app, 'HEAD', path);
    const type = answer.headers.get('content-type');
    expect([answer.status, type, answer.text]).toEqual([status, 'application/json', '']);
  }
});

test('R09 a trailing slash changes nothing', async () => {
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  for (const path of ['/requests', `/requests/${id}`, '/files', '/quota/alice']) {
    expect((await get(app, `${path}/`)).text).toBe((await get(app, path)).text);
  }
});

test('R10 a path in other letter case returns 404', async () => {
  expect((await get(app, '/Requests')).status).toBe(404);
  expect((await get(app, '/quota/Alice')).status).toBe(404);
});

test('R11 a path whose percent-encoding is not UTF-8 returns 400', async () => {
  for (const path of ['/quota/%zz', '/quota/%', '/quota/%FF', '/quota/%ED%A0%80', '/requests/%C3']) {
    await expectError(get(app, path), 400, `the path is not valid: ${path}`);
  }
});

test('R12 a missing or unknown authorization is accepted', async () => {
  const answers = await Promise.all([
    call(app, 'GET', '/quota/alice'),
    call(app, 'GET', '/quota/alice', { headers: { Authorization: 'Bearer nobody', Cookie: 'session=1' } }),
  ]);
  expect(answers.map(({ status }) => status)).toEqual([200, 200]);
});

test('R13 an internal failure returns 500 without details', async () => {
  await app.ctx.db.pool.query('ALTER TABLE tape_file RENAME TO tape_file_away');
  try {
    const answers = await Promise.all([get(app, '/files'), post(app, { quota: 'alice', files: ['/a'] })]);
    const expected = [500, 'application/json', errorBody('Internal error')];
    for (const { status, headers, body } of answers)
      expect([status, headers.get('content-type'), body]).toEqual(expected);
  } finally {
    await app.ctx.db.pool.query('ALTER TABLE tape_file_away RENAME TO tape_file');
  }
});

test('R14 a DateTime is in UTC and has no zone', async () => {
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/', retention: '2026-12-01T23:59:59' });
  expect((await readRequest(app, id)).retention).toBe('2026-12-01T23:59:59');
});

test('R15 a DateTime has six digits of fraction or none', async () => {
  const forms = { '.5': '.500000', '.00001': '.000010', '.000000': '', '': '' };
  for (const [given, expected] of Object.entries(forms)) {
    const retention = `2026-12-01T10:00:00${given}`;
    const id = await makeRequest(app, { quota: 'alice', patterns: '/a/', retention });
    expect((await readRequest(app, id)).retention).toBe(`2026-12-01T10:00:00${expected}`);
  }
});

test('R16 microseconds of a body and of an import are kept', async () => {
  await addFiles(app.ctx, [{ path: '/a/one.nc', verified: '1999-12-31T23:59:59.999999' }]);
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/', retention: '2999-12-31T23:59:59.999999' });
  const { request_date, retention } = await readRequest(app, id);
  const { files } = await read<{ files: { verified: string }[] }>(app, '/files');
  expect([request_date, retention]).toEqual([NOW, '2999-12-31T23:59:59.999999']);
  expect(files[0]?.verified).toBe('1999-12-31T23:59:59.999999');
});

test('R17 a date means midnight at its start', async () => {
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/', retention: '2028-02-29' });
  expect((await readRequest(app, id)).retention).toBe('2028-02-29T00:00:00');
});

test('R18 a time with a zone, an impossible time and one in another form return 400', async () => {
  const form = 'a date YYYY-MM-DD or a UTC date-time YYYY-MM-DDTHH:MM:SS[.ffffff] without a zone';
  const times = `2027-01-01T00:00:00Z 2027-01-01T00:00:00+01:00 2027-02-29 2027-01-01T24:00:00 2027-01-01T23:59:60 0000-01-01
    2027-02-30T00:00:00 2027-13-01 2027-01-01T00:00:00+0100 99999-01-01 infinity
    2027-01-01T00:00 2027-1-1 20270101 2027-01-01t00:00:00 2027-01-01T00:00:00.1234567 1764000000 tomorrow`;
  for (const retention of [...times.split(/\s+/), '2027-01-01 00:00:00', '2027-01-01\n', 'a\0b', '\ud800']) {
    const message = `retention must be ${form}, not ${JSON.stringify(retention)}`;
    await expectError(post(app, { quota: 'alice', patterns: '/a/', retention }), 400, message);
  }
});

test('R19 sizes beyond 2^53 are exact', async () => {
  await addQuota(app.ctx, 'big', 9_223_372_036_854_775_807n);
  await addFiles(app.ctx, [{ path: '/big/file.nc', size: 9_007_199_254_740_993n }]);
  await makeRequest(app, { quota: 'big', patterns: '/big/' });
  expect((await get(app, '/files')).text).toMatch(/"size":9007199254740993}]}]$/);
  expect((await get(app, '/quota/big')).text).toContain('"size":9223372036854775807,"used":9007199254740993,');
});

test('R20 text is returned as it was sent', async () => {
  const texts = ['a "quoted" \\ label', 'Größe 漢字 🧲', '\uE000tapegate:5', '<b>&amp;</b>', '12345678901234567890'];
  for (const label of texts) {
    const id = await makeRequest(app, { quota: 'alice', patterns: '/a/', label });
    expect((await readRequest(app, id)).label).toBe(label);
  }
  const notes = '\uE000tapegate:5';
  await app.ctx.db.prisma.quota.update({ where: { user: 'alice' }, data: { notes, size: 2n ** 60n } });
  expect(await read(app, '/quota/alice')).toMatchObject({ notes });
});
