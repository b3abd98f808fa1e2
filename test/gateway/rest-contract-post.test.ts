import { expect, test } from 'vitest';
import { expectError, NOW, useContract } from '../support/contract.js';
import { addFiles, addPaths, addQuota } from '../support/factories.js';
import { makeRequest, post, readRequest } from '../support/rest.js';

const { app } = useContract(1_000_000n);

const expectInvalid = (fields: object, message: string) =>
  expectError(post(app, { quota: 'alice', ...fields }), 400, message);

test('R61 an accepted request returns its id', async () => {
  const first = await post(app, { quota: 'alice', patterns: '/a/' });
  const second = await post(app, { quota: 'alice', patterns: '/a/' });
  expect([first.status, first.text]).toEqual([200, '[{"req_id":1}]']);
  expect([second.status, second.text]).toEqual([200, '[{"req_id":2}]']);
});

test('R62 the date of a request is the time when it was made', async () => {
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  expect((await readRequest(app, id)).request_date).toBe(NOW);
});

test('R63 a missing quota returns 400', async () => {
  await expectError(post(app, { patterns: '/a/' }), 400, 'quota must name a user, and is missing');
});

test('R64 an unknown user returns 403 and is named', async () => {
  for (const quota of ['nobody', '', 'Alice', 'alice ', "alice' OR 1=1 --"]) {
    const message = `there is no quota for user ${JSON.stringify(quota)}`;
    await expectError(post(app, { quota, patterns: '/a/' }), 403, message);
  }
});

test('R65 a request without patterns and files returns 400', async () => {
  await expectInvalid({ label: 'mine' }, 'patterns or files must be given');
});

test('R66 a request with patterns and files returns 400', async () => {
  for (const files of [['/a/one.nc'], '/a/one.nc']) {
    await expectInvalid({ patterns: '/a/', files }, 'patterns and files cannot be combined: give only one');
  }
});

test('R67 empty patterns and files are ignored', async () => {
  for (const fields of [
    { patterns: '/a/', files: [] },
    { patterns: '/a/', files: '' },
    { patterns: '', files: ['/a'] },
    { patterns: '/a/', files: [''] },
    { files: ['', '/a', ''] },
  ]) {
    expect((await post(app, { quota: 'alice', ...fields })).status).toBe(200);
  }
  for (const fields of [
    { patterns: '' },
    { files: [] },
    { files: '\n\r\n' },
    { files: ['', ''] },
    { patterns: '', files: '' },
  ]) {
    await expectInvalid({ ...fields }, 'patterns or files must be given');
  }
});

test('R68 a pattern is a case-sensitive substring without wildcards', async () => {
  const paths = ['/a/100%_x.nc', '/a/100ab.nc', '/a/A.nc', '/a/b*c?.[nc]', '/a/b\\c.nc', '/a/bxc.nc', '/a/größe.nc'];
  await addPaths(app.ctx, ...paths);
  const matches = async (patterns: string) =>
    (await readRequest(app, await makeRequest(app, { quota: 'alice', patterns }))).files;
  expect(await matches('/a/')).toEqual(paths);
  for (const pattern of ['%', '0%_x', '_']) expect(await matches(pattern)).toEqual(['/a/100%_x.nc']);
  for (const pattern of ['b.c', '^/a', 'a.nc']) expect(await matches(pattern)).toEqual([]);
  expect(await matches('b*c?.[')).toEqual(['/a/b*c?.[nc]']);
  expect(await matches('b\\c')).toEqual(['/a/b\\c.nc']);
  expect(await matches('A.nc')).toEqual(['/a/A.nc']);
  expect(await matches('rö')).toEqual(['/a/größe.nc']);
});

test('R69 a pattern also takes files that are added later, and may match none at first', async () => {
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  expect((await readRequest(app, id)).files).toEqual([]);
  await addFiles(app.ctx, [{ path: '/a/one.nc' }, { path: '/A/two.nc' }, { path: '/x/a/three.nc' }]);
  expect((await readRequest(app, id)).files).toEqual(['/a/one.nc', '/x/a/three.nc']);
});

test('R70 a pattern that no path can contain returns 400', async () => {
  const long = 'ä'.repeat(1024);
  expect((await post(app, { quota: 'alice', patterns: long })).status).toBe(200);
  const problems = {
    'a\0b': 'must not contain the character NUL: "a\\u0000b"',
    'a\ud800b': 'must be valid Unicode: "a\\ud800b"',
    [`${long}x`]: 'must have at most 2048 bytes, not 2049',
  };
  for (const [patterns, problem] of Object.entries(problems)) {
    await expectInvalid({ patterns }, `patterns ${problem}`);
  }
});

test('R71 files is a list of paths', async () => {
  const files = ['/a/one.nc', '/a/with\nline break.nc', '/a/ space '];
  const id = await makeRequest(app, { quota: 'alice', files });
  expect((await readRequest(app, id)).files).toEqual(files);
});

test('R72 files may be a string with a path per line, and empty lines are ignored', async () => {
  const id = await makeRequest(app, { quota: 'alice', files: '\n/a/one.nc\r\n\r\n/a/two nc\n/a/three.nc' });
  expect((await readRequest(app, id)).files).toEqual(['/a/one.nc', '/a/two nc', '/a/three.nc']);
});

test('R73 a repeated path counts once, at its first position', async () => {
  const id = await makeRequest(app, { quota: 'alice', files: ['/b', '/a', '/b', '/c', '/a'] });
  expect((await readRequest(app, id)).files).toEqual(['/b', '/a', '/c']);
});

test('R74 a path that is not absolute, or has an empty, . or .. part, returns 400', async () => {
  for (const path of ['a/one.nc', './a', '../a', ' /a', 'C:\\a']) {
    const message = `files has a path that does not begin with "/": ${JSON.stringify(path)}`;
    await expectInvalid({ files: ['/fine', path] }, message);
  }
  const parts = { '/': '', '//a': '', '/a//b': '', '/a/': '', '/./a': '.', '/a/.': '.', '/a/../b': '..', '/..': '..' };
  for (const [path, part] of Object.entries(parts)) {
    const message = `files has a path that contains the part ${JSON.stringify(part)}: ${JSON.stringify(path)}`;
    await expectInvalid({ files: ['/fine', path] }, message);
  }
  expect((await post(app, { quota: 'alice', files: ['/...', '/.a', '/a..b', '/~'] })).status).toBe(200);
});

test('R75 a path of over 2,048 bytes, or with a part of over 255, returns 400', async () => {
  const part = `/${'ä'.repeat(127)}x`;
  const path = `${part.repeat(7)}/${'y'.repeat(255)}`;
  expect((await post(app, { quota: 'alice', files: [path, part] })).status).toBe(200);
  expect(Buffer.byteLength(path)).toBe(2048);
  const isLong = (what: string) => expect.stringContaining(`files has a path that ${what}: "/ä`);
  await expectInvalid({ files: [`${part}x`] }, isLong('contains a part longer than 255 bytes'));
  await expectInvalid({ files: [`${path}/z`] }, isLong('is longer than 2048 bytes'));
});

test('R79 the default retention is five days after the request was made', async () => {
  for (const fields of [{}, { retention: '' }, { retention: null }]) {
    const id = await makeRequest(app, { quota: 'alice', patterns: '/a/', ...fields });
    expect((await readRequest(app, id)).retention).toBe('2026-11-25T10:00:00.000007');
  }
});

test('R80 a given retention is kept', async () => {
  const retention = '2026-11-20T10:00:00.000008';
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/', retention });
  expect((await readRequest(app, id)).retention).toBe(retention);
});

test('R81 a retention that is not in the future returns 400 with both times', async () => {
  const times = { [NOW]: NOW, '2026-11-20T10:00:00': '2026-11-20T10:00:00', '2026-11-20': '2026-11-20T00:00:00' };
  for (const [retention, read] of Object.entries(times)) {
    const message = `retention must be in the future: ${read} is not after ${NOW}`;
    await expectInvalid({ patterns: '/a/', retention }, message);
  }
});

test('R82 a given label is kept', async () => {
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/', label: ' my label ' });
  expect((await readRequest(app, id)).label).toBe(' my label ');
});

test('R83 the default label is the pattern or the first file', async () => {
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

test('R84 a label with a control character or of over 2,000 characters returns 400', async () => {
  for (const character of ['\0', '\n', '\r', '\t', '\u001b', '\u007f', '\u0085', '\u2028']) {
    const message = expect.stringMatching(/^label must not contain/);
    await expectInvalid({ patterns: '/a/', label: `a${character}` }, message);
  }
  await expectInvalid({ patterns: '/a/', label: '\udfff' }, 'label must be valid Unicode: "\\udfff"');
  expect((await post(app, { quota: 'alice', patterns: '/a/', label: 'x'.repeat(2000) })).status).toBe(200);
  const message = 'label must have at most 2000 characters, not 2001';
  await expectInvalid({ patterns: '/a/', label: 'x'.repeat(2001) }, message);
});

test('R85 given addresses are kept', async () => {
  const addresses = { notify_on_first_file: "o'hara+tape@mail.example.org", notify_on_last_file: 'jürgen@exämple.org' };
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/', ...addresses });
  expect(await readRequest(app, id)).toMatchObject(addresses);
});

test("R86 an empty address means the quota's own, or null if it has none", async () => {
  await addQuota(app.ctx, 'bob', 100n, '');
  const empty = { notify_on_first_file: '', notify_on_last_file: '' };
  const address = 'alice@example.org';
  const own = await makeRequest(app, { quota: 'alice', patterns: '/a/', ...empty });
  const none = await makeRequest(app, { quota: 'bob', patterns: '/a/', ...empty });
  expect(await readRequest(app, own)).toMatchObject({ notify_on_first_file: address, notify_on_last_file: address });
  expect(await readRequest(app, none)).toMatchObject({ notify_on_first_file: null, notify_on_last_file: null });
});

test('R87 anything but one plain email address returns 400', async () => {
  const texts = ['alice', '@example.org', 'a@b@c', 'a b@example.org', 'a@example.org\r\nBcc: x@y', 'a@x.org,b@x.org'];
  const more = ['Alice <a@x.org>', '"a"@x.org', ' a@x.org', 'a@x.org\0', 'a@[127.0.0.1]', 'a(comment)@x.org'];
  const others = [
    'a@x.org\nb@x.org',
    'a@x.org;b@x.org',
    '<a@x.org>',
    'a@',
    '"a\r\nDATA"@x.org',
    `${'a'.repeat(65)}@x.org`,
  ];
  for (const address of [...texts, ...more, ...others, 'a\ud800@x.org']) {
    for (const field of ['notify_on_first_file', 'notify_on_last_file']) {
      const message = `${field} must be an email address, not ${JSON.stringify(address)}`;
      await expectInvalid({ patterns: '/a/', [field]: address }, message);
    }
  }
});
