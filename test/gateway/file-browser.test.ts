/** Queries of the file browser: searches, orders, directories with sizes, and suggestions. */
import { describe, expect, test } from 'vitest';
import { sql } from '../../src/db/sql.js';
import { addPathRule, removePathRule } from '../../src/domain/access/path-rules.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { parseSearch } from '../../src/domain/file-search.js';
import { matchesTerms } from '../../src/domain/match.js';
import { addFiles } from '../support/factories.js';
import { ask, askData, askErrors, type Connection } from '../support/graphql.js';
import { useApp } from '../support/use-app.js';

const app = useApp({}, async () => {
  await addFiles(app.ctx, [
    { path: '/demo/Ocean/2024/sst_2024-01.nc', size: 300n, volume: 'V2' },
    { path: '/demo/Ocean/2024/sst_2024-02.nc', size: 100n, volume: 'V1' },
    { path: '/demo/Ocean/2024/notes 100%.txt', size: 200n, stage: 'ONDISK', volume: null, position: null },
    { path: '/demo/Ocean/2024.txt', size: 5n },
    { path: '/demo/Ocean/2025/sst_2025-01.nc', size: 400n },
    { path: '/demo/ice/2024/deep/a_2024-10.NC', size: 700n },
    { path: '/demo/readme', size: 10n },
    { path: '/demo/zzz', size: 20n },
  ]);
  await app.ctx.db.pool.query(
    `INSERT INTO tape_file (path, size, stage) SELECT '/many/' || lpad(n::text, 5, '0') || '.nx', 1, 'ONTAPE' FROM generate_series(1, 3000) n`,
  );
  await app.ctx.db.pool.query('VACUUM ANALYZE tape_file');
  await app.ctx.db.pool.query(
    `UPDATE tape_file SET mtime = '2024-03-01' WHERE path LIKE '%-01.nc'; UPDATE tape_file SET mtime = '2024-02-01 12:00:00.5' WHERE path LIKE '%-02.nc'`,
  );
});

type Paths = { tapeFiles: Connection<{ path: string }> };

async function find(args: string, variables: object = {}, token = app.token): Promise<string[]> {
  const names = Object.keys(variables);
  const declared = names.length > 0 ? `(${names.map((name) => `$${name}: String`).join(', ')})` : '';
  const query = `query ${declared} { tapeFiles(${args}) { edges { node { path } } } }`;
  const { tapeFiles } = await askData<Paths>({ url: app.url, token }, query, variables);
  return tapeFiles.edges.map(({ node }) => node.path.replace('/demo/', ''));
}

const search = (text: string) => find('search: $text', { text });

describe('a search', () => {
  test.each([
    ['sst ocean 2024', ['Ocean/2024/sst_2024-01.nc', 'Ocean/2024/sst_2024-02.nc']],
    ['"ocean"', []],
    ['"Ocean" 2025', ['Ocean/2025/sst_2025-01.nc']],
    ['"notes 100%"', ['Ocean/2024/notes 100%.txt']],
    ['100%', ['Ocean/2024/notes 100%.txt']],
    ['_01', []],
    [
      '*.nc 2024-*',
      ['Ocean/2024/sst_2024-01.nc', 'Ocean/2024/sst_2024-02.nc', 'ice/2024/deep/a_2024-10.NC'].slice(0, 0),
    ],
    ['*2024-0?.nc', ['Ocean/2024/sst_2024-01.nc', 'Ocean/2024/sst_2024-02.nc']],
    ['*2024-[1-9]?.nc', ['ice/2024/deep/a_2024-10.NC']],
    ['202[!4] sst', ['Ocean/2025/sst_2025-01.nc']],
    ['/demo/*/2024.*', ['Ocean/2024.txt']],
    ['/demo/*/2024/** nc', ['Ocean/2024/sst_2024-01.nc', 'Ocean/2024/sst_2024-02.nc', 'ice/2024/deep/a_2024-10.NC']],
    ['/demo/**/deep/*', ['ice/2024/deep/a_2024-10.NC']],
    ['/demo/**/zzz', ['zzz']],
    ['2024/*.nc', ['Ocean/2024/sst_2024-01.nc', 'Ocean/2024/sst_2024-02.nc']],
    ['OCEAN z', []],
    ['  /demo/ ', undefined],
  ])('for %j finds the matching paths', async (text, paths) => {
    const found = await search(text);
    if (paths === undefined) expect(found).toHaveLength(8);
    else expect(found.toSorted()).toEqual(paths.toSorted());
  });

  test('is rejected if it is not valid', async () => {
    const query = 'query ($text: String) { tapeFiles(search: $text) { totalCount } }';
    expect(await askErrors(app, query, { text: '[z-a]' })).toEqual([
      'search must not have a range in descending order: "[z-a]"',
    ]);
  });

  test('uses the trigram index for words and globs', async () => {
    const client = await app.ctx.db.pool.connect();
    try {
      await client.query(sql`SET enable_seqscan = off`);
      for (const text of ['ocean', '*ocean*.nc', '/demo/ocean/**']) {
        const { rows } = await client.query(
          sql`EXPLAIN SELECT FROM tape_file f WHERE ${matchesTerms(parseSearch(text))}`,
        );
        expect(JSON.stringify(rows)).toContain('tape_file_path_trgm_idx');
      }
    } finally {
      client.release(true);
    }
  });
});

describe('a list of files', () => {
  test('contains only the files directly in the parent directory, by bytes', async () => {
    expect(await find('parent: "/demo"')).toEqual(['readme', 'zzz']);
    expect(await find('parent: "/demo/Ocean"')).toEqual(['Ocean/2024.txt']);
    expect(await find('parent: "/demo/Ocean/2024/", minSize: 150')).toEqual([
      'Ocean/2024/notes 100%.txt',
      'Ocean/2024/sst_2024-01.nc',
    ]);
    expect(await find('parent: "/"')).toEqual([]);
    expect(await find('parent: "/none"')).toEqual([]);
  });

  test('is limited by modification time, and shows the time', async () => {
    expect(await find('modifiedSince: "2024-02-15"')).toEqual([
      'Ocean/2024/sst_2024-01.nc',
      'Ocean/2025/sst_2025-01.nc',
    ]);
    const query = '{ tapeFiles(modifiedUntil: "2024-02-15") { edges { node { modifiedAt } } } }';
    expect(await askData(app, query)).toEqual({
      tapeFiles: { edges: [{ node: { modifiedAt: '2024-02-01T12:00:00.500000Z' } }] },
    });
  });

  test.each([
    ['PATH', ['notes 100%.txt', 'sst_2024-01.nc', 'sst_2024-02.nc']],
    ['SIZE', ['sst_2024-02.nc', 'notes 100%.txt', 'sst_2024-01.nc']],
    ['STAGE', ['notes 100%.txt', 'sst_2024-01.nc', 'sst_2024-02.nc']],
    ['MODIFIED', ['notes 100%.txt', 'sst_2024-02.nc', 'sst_2024-01.nc']],
    ['VOLUME', ['notes 100%.txt', 'sst_2024-02.nc', 'sst_2024-01.nc']],
  ])('is read page by page in both directions in the order of %s', async (field, names) => {
    const paths = names.map((name) => `/demo/Ocean/2024/${name}`);
    for (const list of ['parent: "/demo/Ocean/2024"', 'directory: "/demo/Ocean/2024/"']) {
      for (const [direction, expected] of [
        ['ASC', paths],
        ['DESC', paths.toReversed()],
      ] as const) {
        const args = `${list}, orderBy: { field: ${field}, direction: ${direction} }`;
        const read = async (page: string) =>
          (
            await askData<Paths>(
              app,
              `{ tapeFiles(${args}, ${page}) { edges { cursor node { path } } pageInfo { hasNextPage endCursor } } }`,
            )
          ).tapeFiles;
        const pathsOf = ({ edges }: Paths['tapeFiles']) => edges.map(({ node }) => node.path);
        const first = await read('first: 2');
        const second = await read(`first: 2, after: ${JSON.stringify(first.pageInfo.endCursor)}`);
        expect([first, second].flatMap(pathsOf)).toEqual(expected);
        expect([first.pageInfo.hasNextPage, second.pageInfo.hasNextPage]).toEqual([true, false]);
        const back = await read(`last: 1, before: ${JSON.stringify(second.edges[0]?.cursor)}`);
        expect(pathsOf(back)).toEqual(expected.slice(1, 2));
      }
    }
  });

  test('rejects a cursor with an impossible time', async () => {
    for (const time of ['2026-02-30 00:00:00', '9999-99-99 99:99:99', '0000-01-01 00:00:00']) {
      const cursor = Buffer.from(`GPC:files-by-MODIFIED:${time}\0/a`).toString('base64');
      const list = `tapeFiles(orderBy: { field: MODIFIED, direction: ASC }, after: ${JSON.stringify(cursor)})`;
      expect((await askErrors(app, `{ ${list} { edges { cursor } } }`))[0]).toContain(
        'after must be a cursor of this list',
      );
    }
  });

  test('rejects a cursor of another order', async () => {
    const query = (field: string, page: string) =>
      `{ tapeFiles(orderBy: { field: ${field}, direction: ASC }, ${page}) { pageInfo { endCursor } } }`;
    const { tapeFiles } = await askData<Paths>(app, query('VOLUME', 'first: 3'));
    const cursor = JSON.stringify(tapeFiles.pageInfo.endCursor);
    expect((await askErrors(app, query('SIZE', `after: ${cursor}`)))[0]).toContain(
      'after must be a cursor of this list',
    );
  });

  test('adds up the sizes of all files unless their number is an estimate', async () => {
    const sum = (args: string) => askData(app, `{ tapeFiles(${args}) { totalBytes totalCount isCountEstimated } }`);
    const measured = { tapeFiles: { totalBytes: '600', totalCount: 3, isCountEstimated: false } };
    for (const args of ['parent: "/demo/Ocean/2024"', 'directory: "/demo/Ocean/2024"']) {
      expect(await sum(args)).toEqual(measured);
      expect(await sum(`${args}, count: ESTIMATED`)).toEqual(measured);
    }
    expect(await sum('search: "nothing"')).toMatchObject({ tapeFiles: { totalBytes: '0' } });
  });
});

describe('a directory', () => {
  type Entries = { directory: { entries: Connection<{ path: string; fileCount: number; bytes: string }> } };
  const read = async (path: string, args = 'onlyDirectories: true', token = app.token) =>
    (
      await askData<Entries>(
        { url: app.url, token },
        `{ directory(path: "${path}") { entries(${args}) { edges { cursor node { path fileCount bytes isEstimated } } pageInfo { hasNextPage endCursor } } } }`,
      )
    ).directory.entries;

  test('lists its subdirectories with their files and sizes', async () => {
    const { edges } = await read('/demo');
    expect(edges.map(({ node }) => node)).toEqual([
      { path: '/demo/Ocean', fileCount: 5, bytes: '1005', isEstimated: false },
      { path: '/demo/ice', fileCount: 1, bytes: '700', isEstimated: false },
    ]);
    const first = await read('/demo', 'onlyDirectories: true, first: 1');
    expect(first.pageInfo.hasNextPage).toBe(true);
    const second = await read('/demo', `onlyDirectories: true, first: 1, after: "${first.pageInfo.endCursor}"`);
    expect(second.edges.map(({ node }) => node.path)).toEqual(['/demo/ice']);
    expect(second.pageInfo.hasNextPage).toBe(false);
    const all = (await read('/demo', 'first: 10')).edges.map(({ node }) => [node.path, node.fileCount]);
    expect(all).toEqual([
      ['/demo/Ocean', 5],
      ['/demo/ice', 1],
      ['/demo/readme', null],
      ['/demo/zzz', null],
    ]);
  });

  test('shows only subdirectories and files that the caller may list', async () => {
    const { secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
    const rules = ['/demo/ice', '/demo/Ocean/2025', '/demo/zzz'].map(
      (prefix) => ({ prefix, action: 'LIST', kind: 'USER', name: 'bob' }) as const,
    );
    for (const rule of rules) await addPathRule(app.ctx, rule);
    const { edges } = await read('/demo', 'onlyDirectories: true', secret);
    expect(edges.map(({ node }) => node)).toEqual([
      { path: '/demo/Ocean', fileCount: 4, bytes: '605', isEstimated: false },
    ]);
    for (const args of ['', ', orderBy: { field: SIZE, direction: DESC }']) {
      expect(await find(`parent: "/demo"${args}`, {}, secret)).toEqual(['readme']);
    }
    expect(await find('search: "sst"', {}, secret)).toHaveLength(2);
    const query =
      '{ pathMatches(paths: ["/demo/zzz", "/demo/zzy", "/demo/ise/2024/deep/a_2024-10.NC"]) { file { path } suggestions } nameSuggestions(word: "deeep") }';
    expect(await askData({ url: app.url, token: secret }, query)).toEqual({
      pathMatches: Array(3).fill({ file: null, suggestions: [] }),
      nameSuggestions: [],
    });
    for (const rule of rules) await removePathRule(app.ctx, rule);
  });
});

describe('a list of paths', () => {
  const match = (paths: string[]) =>
    askData(app, 'query ($paths: [String!]!) { pathMatches(paths: $paths) { path file { size } suggestions } }', {
      paths,
    });

  test('is matched with files, and unknown paths with similar paths', async () => {
    const known = '/demo/Ocean/2024/sst_2024-02.nc';
    const wrong = [
      '/demo/Ocaen/2024/sst_2024-02.nc',
      '/demo/OCEAN/2024/SST_2024-01.nc',
      '/demo/Ocean/2024/sst_2024-03.nc',
    ];
    const unknown = ['/other/file', 'sst_2024-02.nc', '/demo//x', '/demo/\0'];
    expect(await match([known, ...wrong, ...unknown])).toEqual({
      pathMatches: [
        { path: known, file: { size: '100' }, suggestions: [] },
        { path: wrong[0], file: null, suggestions: [known, '/demo/Ocean/2024/sst_2024-01.nc'] },
        { path: wrong[1], file: null, suggestions: ['/demo/Ocean/2024/sst_2024-01.nc', known] },
        { path: wrong[2], file: null, suggestions: ['/demo/Ocean/2024/sst_2024-01.nc', known] },
        ...unknown.map((path) => ({ path, file: null, suggestions: [] })),
      ],
    });
  });

  test('has at most 1,000 paths, of which 50 unknown ones get suggestions, and costs as much as its paths', async () => {
    const answer = (await match(Array(60).fill('/demo/readm'))) as { pathMatches: { suggestions: string[] }[] };
    expect(answer.pathMatches.filter(({ suggestions }) => suggestions.length > 0)).toHaveLength(50);
    const query = 'query ($paths: [String!]!) { pathMatches(paths: $paths) { path } }';
    expect((await ask(app, query, { paths: Array(1001).fill('/x') })).errors?.[0]?.message).toBe(
      'paths must contain at most 1000 paths, not 1001',
    );
    const deep =
      'query ($paths: [String!]!) { pathMatches(paths: $paths) { file { volume { files(first: 1000) { edges { node { path } } } } } } }';
    expect((await ask(app, deep, { paths: Array(1000).fill('/x') })).errors?.[0]?.message).toContain(
      'but the maximum is 100000',
    );
  });

  test('of a directory with many entries is compared with entries that have the same beginning', async () => {
    expect(await match(['/many/02900.xn'])).toMatchObject({
      pathMatches: [{ suggestions: expect.arrayContaining(['/many/02900.nx']) }],
    });
  });

  test('a word that no path contains has similar names', async () => {
    const suggest = (word: string) =>
      askData(app, 'query ($word: String!) { nameSuggestions(word: $word, directory: "/demo/") }', { word });
    expect(await suggest('redme')).toEqual({ nameSuggestions: ['readme'] });
    expect(await suggest('OCEEAN')).toEqual({ nameSuggestions: ['Ocean'] });
    expect(await suggest('xyzzy')).toEqual({ nameSuggestions: [] });
  });
});
