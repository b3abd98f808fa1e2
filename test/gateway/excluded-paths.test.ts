/** Files that do not fit into open patterns: some paths are stored, and all files join when there is room. */
import { beforeAll, describe, expect, test } from 'vitest';
import { observeTransactions, type TransactionRun } from '../../src/db/transaction.js';
import { addPathRule } from '../../src/domain/access/path-rules.js';
import { withdrawFiles } from '../../src/domain/catalogue/withdrawals.js';
import { importRows } from '../../src/domain/import/import.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { cancelRequest } from '../../src/domain/requests/ends.js';
import { joinUnresolved } from '../../src/domain/requests/joins.js';
import { updateRequest } from '../../src/domain/requests/update.js';
import { examine } from '../../src/engine/doctor/doctor.js';
import { addQuota, buildRow } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { mutate } from '../support/payloads.js';
import { readStanding } from '../support/standing.js';
import { useApp } from '../support/use-app.js';

/** Maximum number of excluded paths that are stored for a user. */
const NOTED = 5;

/** Maximum number of files that an import adds to the open patterns of a user. */
const JOINS = 25;

const app = useApp({ limits: { excludedPaths: NOTED } });

async function add(directory: string, names: readonly string[], size = 10n): Promise<void> {
  await importRows(
    app.ctx,
    names.map((name, n) => buildRow({ path: `/${directory}/${name}`, size, line: n + 1 })),
  );
}

const look = (user: string) => readStanding(app.ctx, user);

const names = (count: number, prefix = 'f') => Array.from({ length: count }, (_, n) => `${prefix}${100 + n}`);

async function findFaults(): Promise<string[]> {
  const faults: string[] = [];
  await examine(app.ctx, { repair: false, checksums: false, adopt: false }, ({ kind }) => faults.push(kind));
  return faults.filter((kind) => kind.startsWith('quota') || kind.startsWith('request'));
}

/** Reads fields of a request. */
async function readRequest(id: number, fields: string): Promise<object> {
  return (await askData<{ request: object }>(app, `{ request(requestId: ${id}) { ${fields} } }`)).request;
}

/** Runs the job until no file joins. @returns the number of runs in which files joined */
async function joinAll(): Promise<number> {
  const begun: string[] = [];
  const stop = observeTransactions({ onBegin: ({ name }) => begun.push(name), onStatement: () => {} });
  try {
    for (let before = -1; before !== begun.length; ) {
      before = begun.length;
      await joinUnresolved(app.ctx);
    }
  } finally {
    stop();
  }
  return begun.filter((name) => name === 'joinUnresolved').length;
}

test('of files without room few paths are stored, and all files join when there is room', async () => {
  await addQuota(app.ctx, 'zed', 0n);
  const requests = 6;
  for (let n = 0; n < requests; n++) await createRequest(app.ctx, { quota: 'zed', pattern: '/next/' });
  await add('next', names(30));
  expect(await look('zed')).toEqual({ held: 0, noted: NOTED, more: requests, used: 0n });
  await add('next', names(10, 'g'));
  expect(await look('zed')).toEqual({ held: 0, noted: NOTED, more: requests, used: 0n });
  expect(await joinAll()).toBe(0);
  await addQuota(app.ctx, 'zed', 125n);
  await joinAll();
  expect(await look('zed')).toMatchObject({ held: 12, used: 120n });
  expect(await joinAll()).toBe(0);
  await addQuota(app.ctx, 'zed', 100_000n);
  await joinAll();
  expect(await look('zed')).toEqual({ held: requests * 40, noted: 0, more: 0, used: 10n * 40n * BigInt(requests) });
  expect(await findFaults()).toEqual([]);
});

test('files over the limit of a request are reported, and join when the limit is raised', async () => {
  await addQuota(app.ctx, 'lim', 100_000n);
  const id = await createRequest(app.ctx, { quota: 'lim', pattern: '/lim/', maxFiles: 2 });
  const state = () => readRequest(id, 'filesTotal filesOverLimit hasMoreExcluded');
  await add('lim', names(3));
  expect(await state()).toEqual({ filesTotal: 2, filesOverLimit: 1, hasMoreExcluded: false });
  await add('lim', names(20, 'g'));
  expect(await state()).toEqual({ filesTotal: 2, filesOverLimit: NOTED, hasMoreExcluded: true });
  expect(await joinAll()).toBe(0);
  await updateRequest(app.ctx, { id, maxFiles: 10 });
  await joinAll();
  expect(await state()).toMatchObject({ filesTotal: 10, hasMoreExcluded: true });
  await updateRequest(app.ctx, { id, maxFiles: null });
  await joinAll();
  expect(await state()).toEqual({ filesTotal: 23, filesOverLimit: 0, hasMoreExcluded: false });
});

test('all files of size 0 join', async () => {
  await addQuota(app.ctx, 'empty', 0n);
  await createRequest(app.ctx, { quota: 'empty', pattern: '/empty/' });
  await add('empty', names(20), 0n);
  await joinAll();
  expect(await look('empty')).toEqual({ held: 20, noted: 0, more: 0, used: 0n });
});

test('a revived request takes the files that did not fit before', async () => {
  await addQuota(app.ctx, 'back', 0n);
  const id = await createRequest(app.ctx, { quota: 'back', pattern: '/back/' });
  await add('back', names(20));
  expect(await look('back')).toMatchObject({ held: 0, noted: NOTED, more: 1 });
  await cancelRequest(app.ctx, id);
  await addQuota(app.ctx, 'back', 1000n);
  await updateRequest(app.ctx, { id, retention: '2100-01-01' });
  expect(await look('back')).toEqual({ held: 20, noted: 0, more: 0, used: 200n });
});

test('a full user does not keep files from others', async () => {
  await addQuota(app.ctx, 'full', 0n);
  await addQuota(app.ctx, 'free', 1000n);
  for (const quota of ['full', 'free', 'full']) await createRequest(app.ctx, { quota, pattern: '/both/' });
  await add('both', names(20));
  expect(await look('free')).toEqual({ held: 20, noted: 0, more: 0, used: 200n });
  expect(await look('full')).toMatchObject({ held: 0, noted: NOTED });
});

test('files that path rules deny are not reported as excluded', async () => {
  await addQuota(app.ctx, 'shut', 0n);
  await addPathRule(app.ctx, { prefix: '/shut/hidden', action: 'REQUEST', kind: 'USER', name: 'another' });
  const caller = { ...app.ctx.caller, name: 'shut', way: 'token' as const, roles: new Set(['user' as const]) };
  const id = await createRequest({ ...app.ctx, caller }, { quota: 'shut', pattern: '/shut/' });
  await add('shut/hidden', names(20));
  const state = () => readRequest(id, 'filesRefused hasMoreExcluded');
  expect(await state()).toEqual({ filesRefused: 0, hasMoreExcluded: false });
  await joinAll();
  expect(await look('shut')).toMatchObject({ held: 0, noted: 0, more: 0 });
  await add('shut', names(20));
  expect(await state()).toEqual({ filesRefused: NOTED, hasMoreExcluded: true });
});

test('a file that does not fit does not block smaller files', async () => {
  await addQuota(app.ctx, 'stuck', 100n);
  for (const pattern of ['/stuck-large/', '/stuck/']) await createRequest(app.ctx, { quota: 'stuck', pattern });
  await add('stuck-large', ['one'], 500n);
  await add('stuck', names(10), 20n);
  expect(await look('stuck')).toEqual({ held: 5, noted: NOTED, more: 1, used: 100n });
  await addQuota(app.ctx, 'stuck', 400n);
  await add('stuck', names(5, 'n'), 1n);
  expect(await look('stuck')).toEqual({ held: 10, noted: NOTED, more: 1, used: 105n });
  await joinAll();
  expect(await look('stuck')).toEqual({ held: 11, noted: NOTED, more: 0, used: 125n });
  // the large file comes first in its import
  await importRows(app.ctx, [
    buildRow({ path: '/stuck/a', size: 500n }),
    buildRow({ path: '/stuck/b', size: 3n, line: 2 }),
    buildRow({ path: '/stuck/c', size: 2n, line: 3 }),
  ]);
  await joinAll();
  expect(await look('stuck')).toEqual({ held: 13, noted: NOTED, more: 1, used: 130n });
  expect(await joinAll()).toBe(0);
});

test('released files stay out, even if their paths were not stored', async () => {
  await addQuota(app.ctx, 'let', 100n);
  const id = await createRequest(app.ctx, { quota: 'let', pattern: '/let/' });
  const state = () => readRequest(id, 'filesTotal filesReleased hasMoreExcluded');
  const release = (match: string) =>
    mutate(app, 'releaseFiles', { requestId: id, match }, 'request { filesReleased }', 'message');
  await add('let', names(12), 20n);
  await add('let', ['g1', 'g2', 'h1'], 20n);
  expect(await look('let')).toEqual({ held: 5, noted: NOTED, more: 1, used: 100n });
  expect(await release('/let/h')).toEqual({ filesReleased: 1 });
  expect(await state()).toEqual({ filesTotal: 5, filesReleased: 1, hasMoreExcluded: true });
  expect(await release('/let/f')).toEqual({ filesReleased: 13 });
  expect(await state()).toEqual({ filesTotal: 0, filesReleased: 13, hasMoreExcluded: true });
  await joinAll();
  expect(await state()).toEqual({ filesTotal: 2, filesReleased: 13, hasMoreExcluded: false });
  await add('let', ['f-new'], 20n);
  const after = { filesTotal: 3, filesReleased: 13, hasMoreExcluded: false };
  expect(await state()).toEqual(after);
  expect(await look('let')).toMatchObject({ noted: 0, used: 60n });
  await cancelRequest(app.ctx, id);
  await addQuota(app.ctx, 'let', 1000n);
  await updateRequest(app.ctx, { id, retention: '2100-01-01' });
  await joinAll();
  expect(await state()).toEqual(after);
  expect(await release('/let/none')).toEqual({
    message: expect.stringContaining('does not match any path of request'),
  });
});

/** Returns a generator of numbers from 0 (inclusive) to 1 (exclusive). */
function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Returns files that fit into the quota, but are neither in a matching request nor stored as excluded. */
async function readMissed(user: string) {
  const { rows } = await app.ctx.db.pool.query(
    `SELECT r.id, f.path, f.size FROM request r JOIN quota q ON q.id = r.quota_id JOIN tape_file f ON strpos(f.path, r.pattern) > 0
     WHERE q."user" = $1 AND q.used + f.size <= q.size AND (r.files_total < r.max_files) IS NOT FALSE
       AND (r.bytes_total + f.size <= r.max_bytes) IS NOT FALSE
       AND NOT EXISTS (SELECT FROM request_file h WHERE h.request_id = r.id AND h.file_id = f.id)
       AND NOT EXISTS (SELECT FROM unresolved_path a WHERE a.request_id = r.id AND a.path = f.path)`,
    [user],
  );
  return rows;
}

async function isCharged(user: string): Promise<boolean> {
  const { rows } = await app.ctx.db.pool.query<{ right: boolean }>(
    `SELECT q.used = (SELECT coalesce(sum(h.size), 0) FROM request_file h JOIN request r ON r.id = h.request_id WHERE r.quota_id = q.id) AS right
     FROM quota q WHERE q."user" = $1`,
    [user],
  );
  return rows[0]?.right === true;
}

test.each([1, 2])('after random changes no file with room stays out unnoticed (seed %i)', async (seed) => {
  const random = createRandom(seed);
  const pick = <T>(...from: T[]): T => from[Math.floor(random() * from.length)] as T;
  const user = `rnd${seed}`;
  await addQuota(app.ctx, user, 30n);
  const patterns = ['/a/', '/1/', '/', '/b/2'].map((end) => `/rnd${seed}${end}`);
  patterns[1] = `${seed}/a/1`; // also matches paths of other seeds
  const ids: number[] = [];
  for (const pattern of patterns) ids.push(await createRequest(app.ctx, { quota: user, pattern }));
  for (let step = 0; step < 25; step++) {
    const what = random();
    if (what < 0.6) {
      const sizes = Array.from({ length: 1 + Math.floor(random() * 9) }, () => pick(0n, 1n, 1n, 2n, 5n, 9n, 200n));
      const rows = sizes.map((size, n) => ({
        path: `/rnd${seed}/${pick('a', 'b')}/${pick(0, 1, 2)}/${random()}`,
        size,
        line: n + 1,
      }));
      await importRows(app.ctx, rows.map(buildRow));
    } else if (what < 0.8) await addQuota(app.ctx, user, BigInt(Math.floor(random() * 120)));
    else
      await updateRequest(app.ctx, {
        id: pick(...ids),
        ...pick({ maxFiles: 12 }, { maxFiles: null }, { maxBytes: 40n }, { maxBytes: null }),
      });
    if (random() < 0.6) continue;
    await joinAll();
    expect(await readMissed(user)).toEqual([]);
    expect(await isCharged(user)).toBe(true);
  }
  for (const id of ids) await updateRequest(app.ctx, { id, maxFiles: null, maxBytes: null });
  await addQuota(app.ctx, user, 10n ** 9n);
  await joinAll();
  expect(await readMissed(user)).toEqual([]);
  expect(await look(user)).toMatchObject({ noted: 0, more: 0 });
  expect(await isCharged(user)).toBe(true);
});

/**
 * Returns the order in which an import searches patterns and locks the catalogue.
 * @param meanwhile runs after the first step
 */
async function recordSearches(work: () => Promise<void>, meanwhile = async () => {}): Promise<string[]> {
  const steps: string[] = [];
  let own: TransactionRun | undefined;
  const stop = observeTransactions({
    onBegin: (run) => {
      own ??= run.name === 'importRows' ? run : undefined;
    },
    onStatement: async (run, { text }) => {
      const step = text.startsWith('FETCH') ? 'search' : text.includes('pg_advisory_xact_lock') ? 'lock' : undefined;
      if (run !== own || !step) return;
      if (steps.push(step) === 1) await meanwhile();
    },
  });
  try {
    await work();
  } finally {
    stop();
  }
  return steps;
}

test.each([
  ['race', false],
  ['race-withdrawn', true],
])(
  'an import searches older patterns before it locks the catalogue, and newer ones after that (%s)',
  async (user, isWithdrawn) => {
    await addQuota(app.ctx, user, 1000n);
    await addQuota(app.ctx, `no-${user}`, 0n);
    const pattern = `/${user}/`;
    const request = (quota: string) => createRequest(app.ctx, { quota, pattern });
    const [older, ended] = [await request(user), await request(user)];
    const revived = await request(user);
    await cancelRequest(app.ctx, revived);
    await request(`no-${user}`);
    await add(user, ['known']);
    const complete = { prefix: pattern, mostPercent: 100 };
    let newer = 0;
    const meanwhile = async () => {
      newer = await request(user);
      await updateRequest(app.ctx, { id: revived, retention: '2100-01-01' });
      await cancelRequest(app.ctx, ended);
      if (isWithdrawn) await importRows(app.ctx, [], { complete });
    };
    const steps = await recordSearches(() => add(user, ['known', ...names(3)]), meanwhile);
    expect(steps).toEqual(['search', 'lock', 'search']);
    const held = await Promise.all([older, ended, revived, newer].map((id) => readRequest(id, 'filesTotal')));
    expect(held).toEqual([4, 1, 4, 4].map((filesTotal) => ({ filesTotal })));
    expect(await look(`no-${user}`)).toEqual({ held: 0, noted: 4, more: 0, used: 0n });
    expect(await recordSearches(() => add(user, names(3, 'g')))).toEqual(['search', 'lock']);
    expect(await findFaults()).toEqual([]);
  },
);

test('a file that returns with another size is charged with it', async () => {
  await addQuota(app.ctx, 'size', 1000n);
  await add('size', ['a'], 10n);
  await importRows(app.ctx, [], { complete: { prefix: '/size/', mostPercent: 100 } });
  const id = await createRequest(app.ctx, { quota: 'size', pattern: '/size/' });
  await add('size', ['a'], 25n);
  expect(await look('size')).toMatchObject({ held: 1, used: 25n });
  expect(await readRequest(id, 'bytesTotal')).toEqual({ bytesTotal: '25' });
  expect(await findFaults()).toEqual([]);
});

describe('an import adds a limited number of files to the open patterns of a user', () => {
  beforeAll(() => void Object.assign(app.ctx.config.limits, { importJoins: JOINS, excludedPaths: 1000 }));

  test('with many patterns, the rest joins after the import', async () => {
    for (const user of ['many', 'few']) await addQuota(app.ctx, user, 10n ** 12n);
    const ids: number[] = [];
    for (let n = 0; n < 6; n++) ids.push(await createRequest(app.ctx, { quota: 'many', pattern: '/joins/' }));
    await createRequest(app.ctx, { quota: 'few', pattern: '/joins/' });
    const state = () => readRequest(ids[5] as number, 'filesTotal hasMoreExcluded');
    await add('joins', names(JOINS));
    expect(await look('many')).toEqual({ held: JOINS, noted: 0, more: 6, used: BigInt(10 * JOINS) });
    expect(await look('few')).toEqual({ held: JOINS, noted: 0, more: 0, used: BigInt(10 * JOINS) });
    expect(await state()).toMatchObject({ hasMoreExcluded: true });
    await joinUnresolved(app.ctx);
    expect(await look('many')).toEqual({ held: 6 * JOINS, noted: 0, more: 0, used: BigInt(60 * JOINS) });
    expect(await state()).toEqual({ filesTotal: JOINS, hasMoreExcluded: false });
    expect(await findFaults()).toEqual([]);
  });

  test('with one pattern, the first files join, and the others after the import if there is room', async () => {
    await addQuota(app.ctx, 'one', 400n);
    await createRequest(app.ctx, { quota: 'one', pattern: '/large/' });
    await add('large', names(60));
    expect(await look('one')).toEqual({ held: JOINS, noted: 0, more: 1, used: BigInt(10 * JOINS) });
    await joinUnresolved(app.ctx);
    expect(await look('one')).toEqual({ held: 40, noted: 20, more: 0, used: 400n });
    expect(await findFaults()).toEqual([]);
  });

  test('the rest joins even if the returning file that stands for it is withdrawn meanwhile', async () => {
    await addQuota(app.ctx, 'mark', 1000n);
    await add('mark', ['z'], 1n);
    await importRows(app.ctx, [], { complete: { prefix: '/mark/', mostPercent: 100 } });
    await createRequest(app.ctx, { quota: 'mark', pattern: '/mark/' });
    const meanwhile = async () => void (await withdrawFiles(app.ctx, { path: '/mark/z' }));
    const rows = names(30).map((name, n) => buildRow({ path: `/mark/${name}`, size: 2n, line: n + 1 }));
    const returning = buildRow({ path: '/mark/z', size: 1n, line: 31 });
    await recordSearches(async () => void (await importRows(app.ctx, [...rows, returning])), meanwhile);
    await joinAll();
    expect(await look('mark')).toEqual({ held: 30, noted: 0, more: 0, used: 60n });
  });
});
