import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { errorBody, makeRequest, post, readRequest } from '../support/rest.js';
import { emptyTables } from '../support/tables.js';

const NOW = '2026-11-20T10:00:00.000007';

let app: TestApp;
beforeAll(async () => {
  app = await startApp({ now: () => NOW });
});
beforeEach(async () => {
  await emptyTables(app.ctx);
  await addQuota(app.ctx, 'alice', 1_000_000n);
});
afterAll(() => app.close());

test('R61 a request that is taken answers its id', async () => {
  const first = await post(app, { quota: 'alice', patterns: '/a/' });
  const second = await post(app, { quota: 'alice', patterns: '/a/' });
  expect([first.status, first.text]).toEqual([200, '[{"req_id":1}]']);
  expect([second.status, second.text]).toEqual([200, '[{"req_id":2}]']);
});

test('R62 the date of a request is when it was made', async () => {
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  expect((await readRequest(app, id)).request_date).toBe(NOW);
});

test('R63 a missing quota answers 400', async () => {
  const { status, body } = await post(app, { patterns: '/a/' });
  expect([status, body]).toEqual([400, errorBody('quota must name a user, and is missing')]);
});

test('R64 a user that cannot be found answers 403 and is named', async () => {
  for (const quota of ['nobody', '', 'Alice', 'alice ', "alice' OR 1=1 --"]) {
    const { status, body } = await post(app, { quota, patterns: '/a/' });
    expect([status, body]).toEqual([403, errorBody(`there is no quota for user ${JSON.stringify(quota)}`)]);
  }
});

test('R65 neither patterns nor files answers 400', async () => {
  const { status, body } = await post(app, { quota: 'alice', label: 'mine' });
  expect([status, body]).toEqual([400, errorBody('patterns or files must be given, and neither is')]);
});

test('R66 both patterns and files answers 400', async () => {
  for (const files of [['/a/one.nc'], '/a/one.nc']) {
    const { status, body } = await post(app, { quota: 'alice', patterns: '/a/', files });
    expect([status, body]).toEqual([400, errorBody('patterns and files exclude each other: give one of them')]);
  }
});

test('R67 empty patterns or files count as not given', async () => {
  for (const fields of [
    { patterns: '/a/', files: [] },
    { patterns: '/a/', files: '' },
    { patterns: '', files: ['/a'] },
  ]) {
    expect((await post(app, { quota: 'alice', ...fields })).status).toBe(200);
  }
  for (const fields of [{ patterns: '' }, { files: [] }, { files: '\n\r\n' }, { patterns: '', files: '' }]) {
    const { status, body } = await post(app, { quota: 'alice', ...fields });
    expect([status, body]).toEqual([400, errorBody('patterns or files must be given, and neither is')]);
  }
});

test('R68 a pattern is a plain substring in which case counts and no character is a wildcard', async () => {
  const paths = ['/a/100%_x.nc', '/a/100ab.nc', '/a/A.nc', '/a/b*c?.[nc]', '/a/b\\c.nc', '/a/bxc.nc', '/a/größe.nc'];
  await addFiles(
    app.ctx,
    paths.map((path) => ({ path })),
  );
  const matches = async (patterns: string) =>
    (await readRequest(app, await makeRequest(app, { quota: 'alice', patterns }))).files;
  expect(await matches('/a/')).toEqual(paths);
  expect(await matches('%')).toEqual(['/a/100%_x.nc']);
  expect(await matches('0%_x')).toEqual(['/a/100%_x.nc']);
  expect(await matches('_')).toEqual(['/a/100%_x.nc']);
  expect(await matches('b*c?.[')).toEqual(['/a/b*c?.[nc]']);
  expect(await matches('b\\c')).toEqual(['/a/b\\c.nc']);
  expect(await matches('b.c')).toEqual([]);
  expect(await matches('^/a')).toEqual([]);
  expect(await matches('A.nc')).toEqual(['/a/A.nc']);
  expect(await matches('a.nc')).toEqual([]);
  expect(await matches('rö')).toEqual(['/a/größe.nc']);
});

test('R69 a pattern takes files that are added later, and may match none at first', async () => {
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  expect((await readRequest(app, id)).files).toEqual([]);
  await addFiles(app.ctx, [{ path: '/a/one.nc' }, { path: '/A/two.nc' }, { path: '/x/a/three.nc' }]);
  expect((await readRequest(app, id)).files).toEqual(['/a/one.nc', '/x/a/three.nc']);
});

test('R70 a pattern that no path can hold answers 400', async () => {
  const long = 'ä'.repeat(1024);
  expect((await post(app, { quota: 'alice', patterns: long })).status).toBe(200);
  const problems = {
    'a\0b': 'must not hold the character NUL: "a\\u0000b"',
    'a\ud800b': 'must be valid Unicode: "a\\ud800b"',
    [`${long}x`]: 'must have at most 2048 bytes, not 2049',
  };
  for (const [patterns, problem] of Object.entries(problems)) {
    const { status, body } = await post(app, { quota: 'alice', patterns });
    expect([status, body]).toEqual([400, errorBody(`patterns ${problem}`)]);
  }
});

test('R71 files is a list of paths', async () => {
  const files = ['/a/one.nc', '/a/with\nline break.nc', '/a/ space '];
  const id = await makeRequest(app, { quota: 'alice', files });
  expect((await readRequest(app, id)).files).toEqual(files);
});

test('R72 files is a string with a path a line, and empty lines are passed over', async () => {
  const id = await makeRequest(app, { quota: 'alice', files: '\n/a/one.nc\r\n\r\n/a/two nc\n/a/three.nc' });
  expect((await readRequest(app, id)).files).toEqual(['/a/one.nc', '/a/two nc', '/a/three.nc']);
});

test('R73 a path that is listed twice counts once, at its first place', async () => {
  const id = await makeRequest(app, { quota: 'alice', files: ['/b', '/a', '/b', '/c', '/a'] });
  expect((await readRequest(app, id)).files).toEqual(['/b', '/a', '/c']);
});

test('R74 a path that is not absolute, or has a part that no file has, answers 400', async () => {
  for (const path of ['a/one.nc', './a', '../a', ' /a', 'C:\\a']) {
    const { status, body } = await post(app, { quota: 'alice', files: ['/fine', path] });
    const message = `files has a path that does not begin with "/": ${JSON.stringify(path)}`;
    expect([status, body]).toEqual([400, errorBody(message)]);
  }
  const parts = { '/': '', '//a': '', '/a//b': '', '/a/': '', '/./a': '.', '/a/.': '.', '/a/../b': '..', '/..': '..' };
  for (const [path, part] of Object.entries(parts)) {
    const { status, body } = await post(app, { quota: 'alice', files: ['/fine', path] });
    const message = `files has a path that has the part ${JSON.stringify(part)}: ${JSON.stringify(path)}`;
    expect([status, body]).toEqual([400, errorBody(message)]);
  }
  expect((await post(app, { quota: 'alice', files: ['/...', '/.a', '/a..b', '/~'] })).status).toBe(200);
});

test('R75 a path of over 2,048 bytes, or with a part of over 255, answers 400', async () => {
  const part = `/${'ä'.repeat(127)}x`;
  const path = `${part.repeat(7)}/${'y'.repeat(255)}`;
  expect((await post(app, { quota: 'alice', files: [path, part] })).status).toBe(200);
  const longPart = await post(app, { quota: 'alice', files: [`${part}x`] });
  const longPath = await post(app, { quota: 'alice', files: [`${path}/z`] });
  expect([Buffer.byteLength(path), longPart.status, longPart.body, longPath.status, longPath.body]).toEqual([
    2048,
    400,
    errorBody(expect.stringMatching(/^files has a path that has a part longer than 255 bytes: "\/ä/)),
    400,
    errorBody(expect.stringMatching(/^files has a path that is longer than 2048 bytes: "\/ä.*characters\)$/)),
  ]);
});

test('R79 the retention is five days after the request was made', async () => {
  for (const fields of [{}, { retention: '' }, { retention: null }]) {
    const id = await makeRequest(app, { quota: 'alice', patterns: '/a/', ...fields });
    expect((await readRequest(app, id)).retention).toBe('2026-11-25T10:00:00.000007');
  }
});

test('R80 a retention that is given is kept', async () => {
  const retention = '2026-11-20T10:00:00.000008';
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/', retention });
  expect((await readRequest(app, id)).retention).toBe(retention);
});

test('R81 a retention that is not in the future answers 400 with both times', async () => {
  const times = { [NOW]: NOW, '2026-11-20T10:00:00': '2026-11-20T10:00:00', '2026-11-20': '2026-11-20T00:00:00' };
  for (const [retention, read] of Object.entries(times)) {
    const { status, body } = await post(app, { quota: 'alice', patterns: '/a/', retention });
    const message = `retention must be in the future: ${read} is not after ${NOW}`;
    expect([status, body]).toEqual([400, errorBody(message)]);
  }
});

test('R82 a label that is given is kept', async () => {
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/', label: ' my label ' });
  expect((await readRequest(app, id)).label).toBe(' my label ');
});

test('R83 without a label it is the pattern or the first file', async () => {
  for (const [label, fields] of [
    ['/a/', { patterns: '/a/' }],
    ['/a/', { patterns: '/a/', label: '' }],
    ['/b', { files: ['/b', '/a'] }],
    ['/c', { files: '\n/c\n/a', label: '' }],
  ] as const) {
    const id = await makeRequest(app, { quota: 'alice', ...fields });
    expect((await readRequest(app, id)).label).toBe(label);
  }
});

test('R84 a label with a control character or of over 2,000 characters answers 400', async () => {
  for (const character of ['\0', '\n', '\r', '\t', '\u001b', '\u007f', '\u0085', '\u2028']) {
    const { status, body } = await post(app, { quota: 'alice', patterns: '/a/', label: `a${character}` });
    expect([status, body]).toEqual([400, errorBody(expect.stringMatching(/^label must not hold/))]);
  }
  const surrogate = await post(app, { quota: 'alice', patterns: '/a/', label: '\udfff' });
  expect([surrogate.status, surrogate.body]).toEqual([400, errorBody('label must be valid Unicode: "\\udfff"')]);
  const fitting = await post(app, { quota: 'alice', patterns: '/a/', label: 'x'.repeat(2000) });
  const long = await post(app, { quota: 'alice', patterns: '/a/', label: 'x'.repeat(2001) });
  const message = 'label must have at most 2000 characters, not 2001';
  expect([fitting.status, long.status, long.body]).toEqual([200, 400, errorBody(message)]);
});

test('R85 addresses that are given are kept', async () => {
  const addresses = { notify_on_first_file: "o'hara+tape@mail.example.org", notify_on_last_file: 'jürgen@exämple.org' };
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/', ...addresses });
  expect(await readRequest(app, id)).toMatchObject(addresses);
});

test("R86 an empty address means the quota's own, and null where it has none", async () => {
  await addQuota(app.ctx, 'bob', 100n, '');
  const empty = { notify_on_first_file: '', notify_on_last_file: '' };
  const address = 'alice@example.org';
  const own = await makeRequest(app, { quota: 'alice', patterns: '/a/', ...empty });
  const none = await makeRequest(app, { quota: 'bob', patterns: '/a/', ...empty });
  expect(await readRequest(app, own)).toMatchObject({ notify_on_first_file: address, notify_on_last_file: address });
  expect(await readRequest(app, none)).toMatchObject({ notify_on_first_file: null, notify_on_last_file: null });
});

test('R87 anything but one plain e-mail address answers 400', async () => {
  const texts = [
    'alice',
    '@example.org',
    'alice@',
    'a@b@c',
    'a b@example.org',
    'a@exa mple.org',
    'a@example.org\r\nBcc: x@y',
  ];
  const lists = [
    'a@x.org,b@x.org',
    'a@x.org; b@x.org',
    'Alice <a@x.org>',
    '"a"@x.org',
    'a@x.org\n',
    ' a@x.org',
    'a@x.org\0',
  ];
  const long = `${'a'.repeat(65)}@x.org`;
  for (const address of [...texts, ...lists, 'a@[127.0.0.1]', 'a(comment)@x.org', 'a\ud800@x.org', long]) {
    for (const field of ['notify_on_first_file', 'notify_on_last_file']) {
      const { status, body } = await post(app, { quota: 'alice', patterns: '/a/', [field]: address });
      const message = `${field} must be an e-mail address, not ${JSON.stringify(address)}`;
      expect([status, body]).toEqual([400, errorBody(message)]);
    }
  }
});
