/** Estimated counts of files. */
import { expect, test } from 'vitest';
import { addPathRule } from '../../src/domain/access/path-rules.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { askData, askErrors } from '../support/graphql.js';
import { lock } from '../support/locks.js';
import { recordStatements } from '../support/statements.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const FILES = 12_000;

const app = useApp({}, async () => {
  await app.ctx.db.pool.query(
    `INSERT INTO tape_file (path, size, stage) SELECT '/many/' || n, 1, 'ONTAPE' FROM generate_series(1, ${FILES}) n`,
  );
  await app.ctx.db.pool.query('ANALYZE tape_file');
});

async function count(args: string, token = app.token) {
  const query = `{ tapeFiles${args} { totalCount isCountEstimated } }`;
  type Answer = { tapeFiles: { totalCount: number; isCountEstimated: boolean } };
  return (await askData<Answer>({ url: app.url, token }, query)).tapeFiles;
}

test('a count is exact unless an estimate is requested', async () => {
  for (const args of ['', '(count: EXACT)', '(count: null)']) {
    expect(await count(args)).toEqual({ totalCount: FILES, isCountEstimated: false });
  }
});

test('an estimate is exact for few files', async () => {
  for (const more of ['', ', stages: [ONTAPE]', ', match: "many"']) {
    const { totalCount, isCountEstimated } = await count(`(count: ESTIMATED${more})`);
    expect([isCountEstimated, totalCount > 10_000, totalCount < 2 * FILES]).toEqual([true, true, true]);
  }
  expect(await count('(count: ESTIMATED, match: "/many/11")')).toEqual({ totalCount: 1111, isCountEstimated: false });
  expect(await count('(count: ESTIMATED, stages: [RESTORED])')).toEqual({ totalCount: 0, isCountEstimated: false });
});

test('an estimate is not below the number of files that were counted, or that a sample contains if that takes too long', async () => {
  // PostgreSQL's statistics estimate that four paths contain both this word and this text
  const all = { totalCount: FILES, isCountEstimated: true };
  expect(await count('(count: ESTIMATED, match: "/many/")')).toEqual(all);
  const unlock = await lock(app, 'LOCK TABLE tape_file');
  const late = count('(count: ESTIMATED, match: "/many/")');
  try {
    await waitFor('the count to take too long', async () => {
      const explaining = `SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'EXPLAIN%'`;
      return (await app.ctx.db.pool.query(explaining)).rowCount === 1;
    });
  } finally {
    await unlock();
  }
  expect(await late).toEqual(all);
});

test('both fields take one count, and none if they are not requested', async () => {
  const read = async (fields: string, args = '(count: ESTIMATED, match: "/many/11")') =>
    (await recordStatements(() => askData(app, `{ tapeFiles${args} { ${fields} } }`))).length;
  expect(await read('totalCount isCountEstimated edges { cursor }')).toBe(await read('totalCount edges { cursor }'));
  expect(await read('isCountEstimated edges { cursor }', '')).toBe(1);
});

test('the flag counts towards the limit of counts', async () => {
  const lists = Array.from({ length: 26 }, (_, n) => `l${n}: tapeFiles { isCountEstimated }`).join(' ');
  expect(JSON.stringify(await askErrors(app, `{ ${lists} }`))).toContain(
    'requests the total counts of 26 top-level lists',
  );
});

test('a count does not reveal files that path rules hide', async () => {
  const { secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
  await addPathRule(app.ctx, { prefix: '/many/1', action: 'LIST', kind: 'USER', name: 'bob' });
  expect(await count('(count: ESTIMATED)', secret)).toEqual({ totalCount: FILES - 1, isCountEstimated: false });
});
