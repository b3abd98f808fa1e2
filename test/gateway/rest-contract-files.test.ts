import { afterAll, beforeAll, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles } from '../support/factories.js';
import { errorBody, get, read } from '../support/rest.js';

const NAMES = [
  '/a/100%.nc',
  '/a/100_.nc',
  '/a/A.nc',
  '/a/a b.nc',
  '/a/a+b.nc',
  '/a/größe.nc',
  '/a/\uFFFD.nc',
  '/a/🧲.nc',
];

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
  await addFiles(app.ctx, [
    ...NAMES.map((path) => ({ path, stage: 'UNVERIFIED' as const })).reverse(),
    { path: '/s/d.nc', stage: 'ONDISK', verified: '2026-01-02T03:04:05', spotName: null },
    { path: '/s/t.nc', stage: 'ONTAPE', size: 0n },
    { path: '/s/u.nc', stage: 'UNVERIFIED', verified: null },
    { path: '/s/a.nc', stage: 'RESTORING' },
    { path: '/s/r.nc', stage: 'RESTORED', spotName: 'spot-2' },
  ]);
});
afterAll(() => app.close());

interface List {
  count: number;
  files: { path: string; stage: string; 'spot-name'?: string | null }[];
}
const list = async (query: string) => (await read<List>(app, `/files?${query}`)).files;
const paths = async (query: string) => (await list(query)).map((file) => file.path);
const stages = async (query: string) => (await list(`match=/s/&${query}`)).map((file) => file.stage).join('');

test('R113 the list has the fields of the contract in their order', async () => {
  const { status, text } = await get(app, '/files?match=/s/&stages=DT');
  expect([status, text]).toEqual([
    200,
    '[{"count":2,"files":[{"path":"/s/d.nc","stage":"D","verified":"2026-01-02T03:04:05","size":1000},' +
      '{"path":"/s/t.nc","stage":"T","verified":"2026-01-02T03:04:05.000006","size":0}]}]',
  ]);
});

test('R114 without parameters the whole catalogue is listed and counted, however large', async () => {
  const many = await startApp();
  try {
    expect((await get(many, '/files')).text).toBe('[{"count":0,"files":[]}]');
    const expected = Array.from({ length: 4001 }, (_, n) => `/many/${String(n).padStart(4, '0')}.nc`);
    await addFiles(
      many.ctx,
      expected.map((path) => ({ path })),
    );
    const { count, files } = await read<List>(many, '/files');
    expect([count, files.map((file) => file.path)]).toEqual([4001, expected]);
  } finally {
    await many.close();
  }
});

test('R115 files are in order of the bytes of their paths', async () => {
  expect(await paths('match=/a/')).toEqual(NAMES);
});

test('R116 a match is a plain substring in which case counts and no character is a wildcard', async () => {
  expect(await paths('match=100')).toEqual(['/a/100%.nc', '/a/100_.nc']);
  expect(await paths('match=%25')).toEqual(['/a/100%.nc']);
  expect(await paths('match=100_')).toEqual(['/a/100_.nc']);
  expect(await paths('match=A')).toEqual(['/a/A.nc']);
  expect(await paths('match=a/a*')).toEqual([]);
  expect(await paths('match=.nc&stages=R')).toEqual(['/s/r.nc']);
  expect(await paths('match=s.r')).toEqual([]);
  expect(await paths('match=%5C')).toEqual([]);
  expect(await paths('match=r%C3%B6')).toEqual(['/a/größe.nc']);
});

test('R117 a match that no path can hold answers 400', async () => {
  expect((await get(app, `/files?match=${'x'.repeat(2048)}`)).text).toBe('[{"count":0,"files":[]}]');
  const problems = {
    'a%00': 'match must not hold the character NUL: "a\\u0000"',
    '%FF': 'the query must be valid UTF-8: "?match=%FF"',
    '%ED%A0%80': 'the query must be valid UTF-8: "?match=%ED%A0%80"',
    ['x'.repeat(2049)]: 'match must have at most 2048 bytes, not 2049',
  };
  for (const [match, message] of Object.entries(problems)) {
    const { status, body } = await get(app, `/files?match=${match}`);
    expect([status, body]).toEqual([400, errorBody(message)]);
  }
});

test('R118 a plus is a space, and a percent sign without two hex digits is itself', async () => {
  expect(await paths('match=a+b')).toEqual(['/a/a b.nc']);
  expect(await paths('match=a%20b')).toEqual(['/a/a b.nc']);
  expect(await paths('match=a%2Bb')).toEqual(['/a/a+b.nc']);
  expect(await paths('match=100%')).toEqual(['/a/100%.nc']);
  expect(await paths('match=100%.n')).toEqual(['/a/100%.nc']);
  expect(await paths('match=%EF%BF%BD')).toEqual(['/a/\uFFFD.nc']);
});

test('R119 each stage has its letter', async () => {
  const letters = Object.fromEntries((await list('match=/s/')).map((file) => [file.path, file.stage]));
  expect(letters).toEqual({ '/s/a.nc': 'A', '/s/d.nc': 'D', '/s/r.nc': 'R', '/s/t.nc': 'T', '/s/u.nc': 'U' });
});

test('R120 stages gives only the files at those stages', async () => {
  for (const letter of 'ADRTU') expect(await stages(`stages=${letter}`)).toBe(letter);
  expect(await stages('stages=DTU')).toBe('DTU');
  expect(await stages('stages=ADRTU')).toBe('ADRTU');
});

test('R121 stages ignores case, order and repetition', async () => {
  expect(await stages('stages=tTd')).toBe('DT');
  expect(await stages('stages=utrda')).toBe('ADRTU');
});

test('R122 an unknown letter in stages answers 400 and is named', async () => {
  const letters = { X: 'X', TX: 'X', 'T,D': ',', 'T%20D': ' ', 'T+D': ' ', '%00': '\0', 1: '1', '%F0%9F%A7%B2': '🧲' };
  for (const [text, letter] of Object.entries(letters)) {
    const { status, body } = await get(app, `/files?stages=${text}`);
    const message = `stages must be letters of U, D, T, A, R, not ${JSON.stringify(letter)}`;
    expect([status, body]).toEqual([400, errorBody(message)]);
  }
});

test('R123 match and stages narrow the list together', async () => {
  const { count, files } = await read<List>(app, '/files?match=u.nc&stages=UT');
  expect([count, files.map((file) => file.path)]).toEqual([1, ['/s/u.nc']]);
});

test('R124 an empty parameter counts as not given', async () => {
  const all = (await get(app, '/files')).text;
  for (const query of ['match=', 'stages=', 'spot-name=', 'match=&stages=&spot-name=', 'match', '']) {
    expect((await get(app, `/files?${query}`)).text).toBe(all);
  }
});

test('R125 with spot-name=true each file has its spot name after the path', async () => {
  const { text } = await get(app, '/files?match=/s/r&spot-name=true');
  expect(text).toBe(
    '[{"count":1,"files":[{"path":"/s/r.nc","spot-name":"spot-2","stage":"R",' +
      '"verified":"2026-01-02T03:04:05.000006","size":1000}]}]',
  );
});

test('R126 with spot-name=false no file has it', async () => {
  expect((await get(app, '/files?spot-name=false')).text).toBe((await get(app, '/files')).text);
  expect((await get(app, '/files')).text).not.toContain('spot');
});

test('R127 any other spot-name answers 400', async () => {
  for (const value of ['True', 'TRUE', '1', 'yes', 'true ', '\0']) {
    const { status, body } = await get(app, `/files?spot-name=${encodeURIComponent(value)}`);
    expect([status, body]).toEqual([400, errorBody(`spot-name must be true or false, not ${JSON.stringify(value)}`)]);
  }
});

test('R128 a spot name or time of verification that is not known is null', async () => {
  const files = await list('match=/s/&stages=DU&spot-name=true');
  expect(files).toEqual([
    { path: '/s/d.nc', 'spot-name': null, stage: 'D', verified: '2026-01-02T03:04:05', size: 1000 },
    { path: '/s/u.nc', 'spot-name': 'spot-1', stage: 'U', verified: null, size: 1000 },
  ]);
});

test('R129 a parameter that is given twice answers 400', async () => {
  for (const [name, value] of [['match', 'a'] as const, ['stages', 'T'] as const, ['spot-name', 'true'] as const]) {
    const { status, body } = await get(app, `/files?${name}=${value}&x=1&${name}=${value}`);
    expect([status, body]).toEqual([400, errorBody(`${name} must be given once, not 2 times`)]);
  }
});

test('R130 unknown parameters are ignored', async () => {
  const { status, text } = await get(app, '/files?MATCH=zzz&limit=1&stage=D&match[]=zzz');
  expect([status, text]).toEqual([200, (await get(app, '/files')).text]);
});
