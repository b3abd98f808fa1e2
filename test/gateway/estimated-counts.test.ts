/** Counts of files that may be estimates, and say so. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { removePathRule, setPathRule } from '../../src/operations/access/path-rules.js';
import { createToken } from '../../src/operations/access/tokens.js';
import { startApp, type TestApp } from '../support/app.js';
import { askData, askErrors } from '../support/graphql.js';
import { recordStatements } from '../support/statements.js';

const FILES = 12_000;

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
  await app.ctx.db.pool.query(
    `INSERT INTO tape_file (path, size, stage) SELECT '/many/' || n, 1, 'ONTAPE' FROM generate_series(1, ${FILES}) n`,
  );
  await app.ctx.db.pool.query('ANALYZE tape_file');
});
afterAll(() => app.close());

interface Counted {
  totalCount: number;
  isCountEstimated: boolean;
}

async function count(args: string, token = app.token): Promise<Counted> {
  const { tapeFiles } = await askData<{ tapeFiles: Counted }>(
    { url: app.url, token },
    `{ tapeFiles${args} { totalCount isCountEstimated } }`,
  );
  return tapeFiles;
}

test('a count is exact unless an estimate is asked for', async () => {
  for (const args of ['', '(count: EXACT)', '(count: null)']) {
    expect(await count(args)).toEqual({ totalCount: FILES, isCountEstimated: false });
  }
});

test('an estimate of many is one, and of few is exact', async () => {
  for (const args of [
    '(count: ESTIMATED)',
    '(count: ESTIMATED, stages: [ONTAPE])',
    '(count: ESTIMATED, match: "many")',
  ]) {
    const { totalCount, isCountEstimated } = await count(args);
    expect([isCountEstimated, totalCount > 10_000, totalCount < 2 * FILES]).toEqual([true, true, true]);
  }
  expect(await count('(count: ESTIMATED, match: "/many/11")')).toEqual({ totalCount: 1111, isCountEstimated: false });
  expect(await count('(count: ESTIMATED, stages: [RESTORED])')).toEqual({ totalCount: 0, isCountEstimated: false });
});

test('both fields cost one count, and neither where it is not asked for', async () => {
  const read = async (fields: string, args = '(count: ESTIMATED, match: "/many/11")') =>
    (await recordStatements(() => askData(app, `{ tapeFiles${args} { ${fields} } }`))).length;
  expect(await read('totalCount isCountEstimated edges { cursor }')).toBe(await read('totalCount edges { cursor }'));
  expect(await read('isCountEstimated edges { cursor }', '')).toBe(1);
});

test('the flag is a count like others where counts are limited', async () => {
  const lists = Array.from({ length: 26 }, (_, n) => `l${n}: tapeFiles { isCountEstimated }`).join(' ');
  expect(JSON.stringify(await askErrors(app, `{ ${lists} }`))).toContain('26 counts');
});

test('of what rules by folders keep from a caller no estimate tells', async () => {
  const hidden = { prefix: '/many/1', action: 'LIST', kind: 'USER', name: 'bob' } as const;
  const { secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
  await setPathRule(app.ctx, hidden);
  try {
    expect(await count('(count: ESTIMATED)', secret)).toEqual({ totalCount: FILES - 1, isCountEstimated: false });
  } finally {
    await removePathRule(app.ctx, hidden);
  }
});
