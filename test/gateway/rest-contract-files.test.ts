import { expect, test } from 'vitest';
import { expectError } from '../support/contract.js';
import { addFiles, addPaths } from '../support/factories.js';
import { get, read } from '../support/rest.js';
import { useApp } from '../support/use-app.js';

const NAMES = ['100%', '100_', 'A', 'a b', 'a+b', 'größe', '\uFFFD', '🧲'].map((name) => `/a/${name}.nc`);

const app = useApp({}, async () => {
  await addFiles(app.ctx, [
    ...NAMES.map((path) => ({ path, stage: 'UNVERIFIED' as const })).reverse(),
    { path: '/s/d.nc', stage: 'ONDISK', verified: '2026-01-02T03:04:05', spotName: null },
    { path: '/s/t.nc', stage: 'ONTAPE', size: 0n },
    { path: '/s/u.nc', stage: 'UNVERIFIED', verified: null },
    { path: '/s/a.nc', stage: 'RESTORING' },
    { path: '/s/r.nc', stage: 'RESTORED', spotName: 'spot-2' },
  ]);
});

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
  expect((await get(app, '/files?match=/none/')).text).toBe('[{"count":0,"files":[]}]');
  const expected = Array.from({ length: 4001 }, (_, n) => `/zz/${String(n).padStart(4, '0')}.nc`);
  const before = (await list('')).map(({ path }) => path);
  await addPaths(app.ctx, ...expected);
  const { count, files } = await read<List>(app, '/files');
  expect([count, files.map((file) => file.path)]).toEqual([before.length + 4001, [...before, ...expected]]);
  await app.ctx.db.pool.query(`DELETE FROM tape_file WHERE path LIKE '/zz/%'`);
});

test('R115 files are sorted by the bytes of their paths', async () => {
  expect(await paths('match=/a/')).toEqual(NAMES);
});

test('R116 a match is a case-sensitive substring without wildcards', async () => {
  expect(await paths('match=100')).toEqual(['/a/100%.nc', '/a/100_.nc']);
  expect(await paths('match=%25')).toEqual(['/a/100%.nc']);
  expect(await paths('match=100_')).toEqual(['/a/100_.nc']);
  expect(await paths('match=A')).toEqual(['/a/A.nc']);
  expect(await paths('match=.nc&stages=R')).toEqual(['/s/r.nc']);
  for (const match of ['a/a*', 's.r', '%5C']) expect(await paths(`match=${match}`)).toEqual([]);
  expect(await paths('match=r%C3%B6')).toEqual(['/a/größe.nc']);
});

test('R117 a match that no path can contain returns 400', async () => {
  expect((await get(app, `/files?match=${'x'.repeat(2048)}`)).text).toBe('[{"count":0,"files":[]}]');
  const problems = {
    'a%00': 'match must not contain the character NUL: "a\\u0000"',
    '%FF': 'the query must be valid UTF-8: "?match=%FF"',
    '%ED%A0%80': 'the query must be valid UTF-8: "?match=%ED%A0%80"',
    ['x'.repeat(2049)]: 'match must have at most 2048 bytes, not 2049',
  };
  for (const [match, message] of Object.entries(problems)) {
    await expectError(get(app, `/files?match=${match}`), 400, message);
  }
});

test('R118 a plus means a space, and a percent sign without two hex digits means itself', async () => {
  for (const match of ['a+b', 'a%20b']) expect(await paths(`match=${match}`)).toEqual(['/a/a b.nc']);
  expect(await paths('match=a%2Bb')).toEqual(['/a/a+b.nc']);
  for (const match of ['100%', '100%.n']) expect(await paths(`match=${match}`)).toEqual(['/a/100%.nc']);
  expect(await paths('match=%EF%BF%BD')).toEqual(['/a/\uFFFD.nc']);
});

test('R119 each stage has its letter', async () => {
  const letters = Object.fromEntries((await list('match=/s/')).map((file) => [file.path, file.stage]));
  expect(letters).toEqual({ '/s/a.nc': 'A', '/s/d.nc': 'D', '/s/r.nc': 'R', '/s/t.nc': 'T', '/s/u.nc': 'U' });
});

test('R120 stages selects the files at those stages', async () => {
  for (const letter of 'ADRTU') expect(await stages(`stages=${letter}`)).toBe(letter);
  expect(await stages('stages=DTU')).toBe('DTU');
  expect(await stages('stages=ADRTU')).toBe('ADRTU');
});

test('R121 stages ignores case, order and repetition', async () => {
  expect(await stages('stages=tTd')).toBe('DT');
  expect(await stages('stages=utrda')).toBe('ADRTU');
});

test('R122 an unknown letter in stages returns 400 and is named', async () => {
  const letters = { X: 'X', TX: 'X', 'T,D': ',', 'T%20D': ' ', 'T+D': ' ', '%00': '\0', 1: '1', '%F0%9F%A7%B2': '🧲' };
  for (const [text, letter] of Object.entries(letters)) {
    const message = `stages must be letters of U, D, T, A, R, not ${JSON.stringify(letter)}`;
    await expectError(get(app, `/files?stages=${text}`), 400, message);
  }
});

test('R123 match and stages combine', async () => {
  const { count, files } = await read<List>(app, '/files?match=u.nc&stages=UT');
  expect([count, files.map((file) => file.path)]).toEqual([1, ['/s/u.nc']]);
});

test('R124 an empty parameter is ignored', async () => {
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

test('R127 any other spot-name returns 400', async () => {
  for (const value of ['True', 'TRUE', '1', 'yes', 'true ', '\0']) {
    const message = `spot-name must be true or false, not ${JSON.stringify(value)}`;
    await expectError(get(app, `/files?spot-name=${encodeURIComponent(value)}`), 400, message);
  }
});

test('R128 an unknown spot name or verification time is null', async () => {
  const files = await list('match=/s/&stages=DU&spot-name=true');
  expect(files).toEqual([
    { path: '/s/d.nc', 'spot-name': null, stage: 'D', verified: '2026-01-02T03:04:05', size: 1000 },
    { path: '/s/u.nc', 'spot-name': 'spot-1', stage: 'U', verified: null, size: 1000 },
  ]);
});

test('R129 a repeated parameter returns 400', async () => {
  for (const [name, value] of [['match', 'a'] as const, ['stages', 'T'] as const, ['spot-name', 'true'] as const]) {
    const message = `${name} must be given once, not 2 times`;
    await expectError(get(app, `/files?${name}=${value}&x=1&${name}=${value}`), 400, message);
  }
});

test('R130 unknown parameters are ignored', async () => {
  const { status, text } = await get(app, '/files?MATCH=zzz&limit=1&stage=D&match[]=zzz');
  expect([status, text]).toEqual([200, (await get(app, '/files')).text]);
});
