/** Limits on a user's open patterns and unresolved paths. */
import { expect, test } from 'vitest';
import type { Limits } from '../../src/config/config.js';
import { addSeconds } from '../../src/core/time.js';
import { counterKinds } from '../../src/domain/doctor/counters.js';
import { findRepairable } from '../../src/domain/doctor/findings.js';
import { expireRequests } from '../../src/domain/requests/ends.js';
import { joinUnresolved } from '../../src/domain/requests/joins.js';
import { startGateway } from '../../src/main/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import type { Gateway } from '../support/http.js';
import { cancel, create, made, release, retry, update } from '../support/mutations.js';
import { mutate } from '../support/payloads.js';
import { errorBody, makeRequest, post, put } from '../support/rest.js';
import { recordStatements } from '../support/statements.js';
import { dumpTables, emptyTables } from '../support/tables.js';
import { callTape, stageFiles } from '../support/tape-rest.js';
import { useApp } from '../support/use-app.js';

let now: string;
let defaults: Limits;
const app = useApp({ now: () => now }, async () => {
  defaults = { ...app.ctx.config.limits };
});

let starts = 0;
/** Empties the database, sets limits, and advances the clock beyond the recorded refusals of earlier tests. */
async function start(limits: Partial<Limits>): Promise<void> {
  now = addSeconds('2026-11-20T10:00:00', 3600 * ++starts);
  Object.assign(app.ctx.config.limits, defaults, limits);
  await emptyTables(app.ctx);
  for (const user of ['alice', 'bob']) await addQuota(app.ctx, user, 1000n);
}

const later = '2999-01-01T00:00:00';
const paths = (name: string, count: number) => Array.from({ length: count }, (_, n) => `/new/${name}/${n}`);

/** Returns the stored count of unresolved paths of a quota. The doctor must find no fault in the count. */
async function readPaths(): Promise<number | undefined> {
  for (const fault of counterKinds) {
    for await (const found of findRepairable(app.ctx, fault, { repair: false })) expect(found).toBeUndefined();
  }
  const { rows } = await app.ctx.db.pool.query<{ paths: number }>(
    `SELECT unresolved_paths AS paths FROM quota WHERE "user" = 'alice'`,
  );
  return rows[0]?.paths;
}

/** Expects both protocols to refuse a new request without changing any table. */
async function expectRefused(input: object, message: string, figures: object): Promise<void> {
  const { pattern, ...rest } = input as { pattern?: string };
  const before = await dumpTables(app.ctx);
  const answer = await post(app, pattern === undefined ? rest : { ...rest, patterns: pattern });
  expect([answer.status, answer.body]).toEqual([403, errorBody(message)]);
  const error = '__typename code message ... on LimitReached { user limit allowed present added }';
  expect(await mutate(app, 'createRequest', input, 'request { state }', error)).toEqual({
    ...{ __typename: 'LimitReached', code: 'LIMIT_REACHED', message, user: 'alice', ...figures },
  });
  expect(await dumpTables(app.ctx)).toEqual(before);
}

test('a user over OPEN_PATTERNS may still list paths', async () => {
  await start({ openPatterns: 1 });
  const id = await made(app, { quota: 'alice', pattern: '/a/' });
  const message = 'user "alice" would have 2 requests with a pattern, but the maximum at a time is 1 (OPEN_PATTERNS)';
  const figures = { limit: 'OPEN_PATTERNS', allowed: 1, present: 1, added: 1 };
  await expectRefused({ quota: 'alice', pattern: '/b/' }, message, figures);
  const statements = await recordStatements(() => create(app, { quota: 'alice', pattern: '/b/' }));
  expect(statements.filter(({ text }) => text.includes('tape_file'))).toEqual([]); // nothing was searched
  const listed = await made(app, { quota: 'alice', files: ['/b/1'] });
  await cancel(app, listed);
  expect(await update(app, { requestId: listed, retention: later })).toMatchObject({ __typename: 'Request' });
  await cancel(app, id);
  await made(app, { quota: 'alice', pattern: '/b/' });
  await made(app, { quota: 'bob', pattern: '/b/' });
  const before = await dumpTables(app.ctx);
  const revived = await put(app, id, { quota: 'alice', retention: later });
  expect([revived.status, revived.body]).toEqual([403, errorBody(message)]);
  expect(await update(app, { requestId: id, retention: later })).toMatchObject({ __typename: 'LimitReached', message });
  expect(await dumpTables(app.ctx)).toEqual(before);
});

test('stage requests are refused once UNSTAGED_PATHS paths of a user could not be staged', async () => {
  await start({ unstagedPaths: 4 });
  await addFiles(app.ctx, [{ path: '/known/1', size: 1n }]);
  const file = (path: string) => ({ path, targetedMetadata: { default: { quota: 'alice' } } });
  const first = await stageFiles(app, [...paths('gone', 2), '/known/1'].map(file));
  const second = await stageFiles(app, [file('/new/other')]);
  const third = await stageFiles(app, [file('/known/1')]);
  await callTape(app, 'DELETE', `/stage/${third}`);
  await stageFiles(app, [file('/new/last')]);
  const stored = async () => {
    const { stage_request, stage_request_file, request } = await dumpTables(app.ctx);
    return [stage_request, stage_request_file, request];
  };
  const before = await stored();
  const { status, text } = await callTape(app, 'POST', '/stage', { files: [file('/known/1')] });
  const message =
    'user "alice" would have 5 paths that stage requests could not stage, but the maximum at a time is 4 (UNSTAGED_PATHS)';
  expect([status, text]).toEqual([429, expect.stringContaining(JSON.stringify(message).slice(1, -1))]);
  expect(await stored()).toEqual(before);
  for (const id of [first, second]) await callTape(app, 'DELETE', `/stage/${id}`);
  await stageFiles(app, [file('/known/1')]);
});

test('no more than UNRESOLVED_PATHS unresolved paths of a user are stored', async () => {
  await start({ unresolvedPaths: 15 });
  await addFiles(app.ctx, [{ path: '/known/1', size: 1n }]);
  const answers: (number | string)[] = [];
  for (let n = 0; n < 3; n++) {
    const { status, text } = await post(app, { quota: 'alice', files: paths(`flood${n}`, 10) });
    answers.push(status === 200 ? status : text);
  }
  const refusal = JSON.stringify(
    errorBody('user "alice" would have 20 unresolved paths, but the maximum at a time is 15 (UNRESOLVED_PATHS)'),
  );
  expect(answers).toEqual([200, refusal, refusal]);
  const { rows } = await app.ctx.db.pool.query('SELECT count(*)::int AS stored FROM unresolved_path');
  expect(rows).toEqual([{ stored: 10 }]);
  // paths in the catalogue do not count
  await makeRequest(app, { quota: 'alice', files: ['/known/1', ...paths('rest', 5)] });
  const message = 'user "alice" would have 16 unresolved paths, but the maximum at a time is 15 (UNRESOLVED_PATHS)';
  const figures = { limit: 'UNRESOLVED_PATHS', allowed: 15, present: 15, added: 1 };
  await expectRefused({ quota: 'alice', files: ['/known/1', '/new/one'] }, message, figures);
  await makeRequest(app, { quota: 'alice', files: ['/known/1'] });
  expect(await readPaths()).toBe(15);
});

test('the count of paths stays right through the life of requests', async () => {
  await start({ unresolvedPaths: 5 });
  await addFiles(app.ctx, [{ path: '/c/known', size: 10n, stage: 'ONDISK' }]);
  const listed = await made(app, { quota: 'alice', files: ['/c/known', '/c/1', '/c/2', '/c/3', '/c/4'] });
  const pattern = await made(app, { quota: 'alice', pattern: '/c/' });
  expect(await readPaths()).toBe(4);
  // /c/1 joins both requests; /c/2 does not fit into the quota, but is no longer unresolved
  await addFiles(app.ctx, [
    { path: '/c/1', size: 400n, stage: 'ONDISK' },
    { path: '/c/2', size: 400n, stage: 'ONDISK' },
  ]);
  expect(await readPaths()).toBe(2);
  await release(app, { requestId: listed, paths: ['/c/2', '/c/3', '/c/known'] });
  expect(await readPaths()).toBe(1);
  await retry(app, { requestId: listed });
  await update(app, { requestId: pattern, maxFiles: 1 });
  await joinUnresolved(app.ctx);
  expect(await readPaths()).toBe(1);
  await cancel(app, listed);
  await cancel(app, listed);
  expect(await readPaths()).toBe(0);
  now = addSeconds(now, 6 * 86_400);
  await expireRequests(app.ctx);
  expect(await readPaths()).toBe(0);
  // /c/4 was unresolved when the request ended; now it is in the catalogue and does not count
  await made(app, { quota: 'alice', files: paths('full', 5) });
  await addFiles(app.ctx, [{ path: '/c/4', size: 1n, stage: 'ONDISK' }]);
  expect(await update(app, { requestId: listed, retention: later })).toMatchObject({ __typename: 'Request' });
  expect(await update(app, { requestId: pattern, retention: later, maxFiles: null })).toMatchObject({
    __typename: 'Request',
  });
  expect(await readPaths()).toBe(5);
  now = '2999-01-02T00:00:00';
  // the requests have expired but not ended; reviving one of them must not count its paths twice
  expect(await update(app, { requestId: pattern, retention: '2999-02-01T00:00:00' })).toMatchObject({
    __typename: 'Request',
  });
  expect(await readPaths()).toBe(0);
});

test('an expired request does not block new ones, even before it is ended', async () => {
  await start({ unresolvedPaths: 1, openPatterns: 1 });
  await made(app, { quota: 'alice', files: ['/a'] });
  await made(app, { quota: 'alice', pattern: '/a' });
  now = addSeconds(now, 6 * 86_400);
  await made(app, { quota: 'alice', files: ['/b'] });
  await made(app, { quota: 'alice', pattern: '/b' });
  expect(await readPaths()).toBe(1);
});

/**
 * Sends simultaneous requests, half by REST and half by GraphQL. Only the limit may refuse a request.
 * @returns the number of accepted requests
 */
async function countTaken(
  gateways: readonly Gateway[],
  inputs: readonly { pattern?: string; files?: string[] }[],
): Promise<number> {
  const ends = await Promise.all(
    inputs.map(async ({ pattern, files }, n) => {
      const gateway = gateways[n % gateways.length] as Gateway;
      if (n % 4 < 2) return (await create(gateway, { quota: 'alice', pattern, files })).__typename;
      const { status, text } = await post(gateway, { quota: 'alice', patterns: pattern, files });
      return status === 200 ? 'Request' : status === 403 && / at a time is \d+ \(/.test(text) ? 'LimitReached' : text;
    }),
  );
  expect(ends.filter((end) => end !== 'Request' && end !== 'LimitReached')).toEqual([]);
  return ends.filter((end) => end === 'Request').length;
}

test('of simultaneous requests at two gateways, exactly as many as the limits allow are accepted', async () => {
  await start({ openPatterns: 5, unresolvedPaths: 15 });
  const second = await startGateway(app.ctx);
  const gateways = [app, { ...app, url: second.url }];
  try {
    const patterns = Array.from({ length: 16 }, (_, n) => ({ pattern: `/p${n}` }));
    expect(await countTaken(gateways, patterns)).toBe(5);
    const lists = Array.from({ length: 16 }, (_, n) => ({ files: [`/l${n}/1`, `/l${n}/2`] }));
    expect(await countTaken(gateways, lists)).toBe(7);
    expect(await readPaths()).toBe(14);
    const { rows } = await app.ctx.db.pool.query<{ id: number }>('SELECT id FROM request ORDER BY id');
    await Promise.all(rows.map(({ id }) => cancel(app, id)));
    expect(await readPaths()).toBe(0);
    // new and revived requests race
    const [revived, taken] = await Promise.all([
      Promise.all(rows.map(({ id }) => update(app, { requestId: id, retention: later }))),
      countTaken(
        gateways,
        Array.from({ length: 5 }, (_, n) => ({ pattern: `/m${n}` })),
      ),
    ]);
    const revivedLists = revived.slice(5);
    expect(revivedLists.map((end) => end.__typename)).toEqual(Array(7).fill('Request'));
    const revivedPatterns = revived.slice(0, 5).filter((end) => end.__typename === 'Request');
    expect([revivedPatterns.length + taken, await readPaths()]).toEqual([5, 14]);
  } finally {
    await second.close();
  }
});
