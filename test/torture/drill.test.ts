/**
 * A drill with real processes. A restored copy of Tapegate runs beside production under load, and must not change
 * anything
 * outside its database. Then the copy takes over. TAPEGATE_DRILL_SECONDS is the duration of the load.
 */
import { existsSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { askData } from '../support/graphql.js';
import type { Gateway } from '../support/http.js';
import { startMailServer } from '../support/mail-server.js';
import { cancel } from '../support/mutations.js';
import { cleanUp, makeDataDir, runCli, startServer, stop } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { hashTree, waitForEnd } from '../support/server.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';
import { startReceiver } from '../support/webhook-receiver.js';

const { TAPEGATE_DRILL_SECONDS: given } = process.env;
const SECONDS = Number(given ?? 2);
/** Files of two requests in the backup. The copy cancels the first request. */
const [CANCELLED, HELD] = [
  [0, 1],
  [2, 3],
];
/** Files that production and the copy request in turn. Production keeps LIVE live requests, the copy twice as many. */
const LOAD = Array.from({ length: 35 }, (_each, n) => 4 + n);
const LIVE = 3;
/** File that is requested when no more restores are allowed. */
const NEVER = 39;

const nameOf = (n: number) => `/drill/${n}`;
const bytesOf = (n: number) => `file ${n}`;
const readFence = async (gateway: Gateway) =>
  (await askData<{ fence: { reason: string } | null }>(gateway, '{ fence { reason } }')).fence?.reason ?? null;

afterAll(cleanUp);

test('a restored copy beside production changes and sends nothing until it takes over, which stops production', {
  timeout: (SECONDS + 300) * 1000,
}, async () => {
  const [mail, receiver] = [await startMailServer(), await startReceiver()];
  const [dataDir, copyDir, source] = [makeDataDir(), makeDataDir(), makeTempDir()];
  const backup = path.join(makeTempDir(), 'backup');
  const common = {
    ...{ DEMO: 'off', LOG_LEVEL: 'silent', DRIVES: '1' },
    ...{ SMTP_URL: mail.url, TAPEGATE_MAIL_RATE: '1000000', TAPEGATE_WEBHOOK_HOSTS: '127.0.0.1' },
  };
  const [env, copyEnv] = [
    { ...common, DATA_DIR: dataDir },
    { ...common, DATA_DIR: copyDir },
  ];
  const run = (of: Record<string, string>, ...args: string[]) => runCli(args, { env: of });
  const done = async (of: Record<string, string>, ...args: string[]) =>
    expect({ args, ...(await run(of, ...args)) }).toMatchObject({ code: 0, stderr: expect.anything() });
  const ask = (gateway: Gateway, label: string, ...files: number[]) =>
    makeRequest(gateway, {
      ...{ quota: 'alice', label, files: files.map(nameOf), retention: '2099-01-01' },
      notify_on_last_file: 'alice@example.org',
    });
  const [restored, library] = [path.join(dataDir, 'restore'), path.join(dataDir, 'library')];
  const placeOf = (n: number) => path.join(restored, nameOf(n));
  const inodesOf = (files: readonly number[]) => files.map((n) => statSync(placeOf(n)).ino);
  const isRight = (n: number) => existsSync(placeOf(n)) && readFileSync(placeOf(n), 'utf8') === bytesOf(n);
  const readSent = () => [
    ...mail.mails.map(({ headers }) => [headers.get('message-id'), headers.get('subject')?.split(': ').at(-1)]),
    ...receiver.messages.map(({ id, data }) => [id, data.label]),
  ];

  const production = await startServer('start', { env });
  mkdirSync(path.join(source, 'drill'));
  for (const n of [...CANCELLED, ...HELD, ...LOAD, NEVER]) writeFileSync(path.join(source, nameOf(n)), bytesOf(n));
  await done(env, 'quota', 'set', 'alice', '--size', '1G');
  await done(env, 'archive', source, '--move');
  await done(env, 'webhook', 'add', receiver.url, '--all');
  const tapes = hashTree(library);
  const cancelled = await ask(production, 'production', ...CANCELLED);
  const held = await ask(production, 'production', ...HELD);
  for (const id of [cancelled, held]) await waitForEnd(production, id);
  const inodes = inodesOf([...CANCELLED, ...HELD]);
  await done(env, 'backup', backup);
  await done(copyEnv, 'restore', backup);
  symlinkSync(library, path.join(copyDir, 'library')); // the same tapes

  const copy = await startServer('start', { env: copyEnv });
  expect(await readFence(copy)).toContain('the database was restored from a backup');
  await cancel(copy, cancelled);
  const [live, liveInCopy] = [new Map<number, number>(), new Map<number, number>()];
  const cancelOldest = async (gateway: Gateway, requests: Map<number, number>, most: number) => {
    const [oldest] = requests.keys();
    if (requests.size <= most || oldest === undefined) return;
    await cancel(gateway, oldest);
    requests.delete(oldest);
  };
  let rounds = 0;
  for (const until = performance.now() + SECONDS * 1000; performance.now() < until; rounds++) {
    const n = LOAD[rounds % LOAD.length] ?? 0;
    const [id, idInCopy] = await Promise.all([ask(production, 'production', n), ask(copy, 'copy', n)]);
    live.set(id, n);
    liveInCopy.set(idInCopy, n);
    await waitForEnd(production, id);
    await cancelOldest(production, live, LIVE);
    await cancelOldest(copy, liveInCopy, 2 * LIVE);
    const wrong = [...CANCELLED, ...HELD, ...live.values()].filter((each) => !isRight(each));
    expect([wrong, inodesOf([...CANCELLED, ...HELD])]).toEqual([[], inodes]);
  }
  const sent = readSent();
  expect([hashTree(library), await readFence(production), rounds > 0]).toEqual([tapes, null, true]);
  expect(new Set(sent.map(([, label]) => label))).toEqual(new Set(['production']));
  expect(new Set(sent.map(([id]) => id)).size).toBe(sent.length);
  expect(
    receiver.messages.filter(({ type, data }) => type === 'request.ended' && data.requestId === cancelled),
  ).toEqual([]);

  const takenAt = performance.now();
  const takeover = run(copyEnv, 'takeover', '--yes');
  await waitFor('production to stop', async () =>
    /belongs to another Tapegate/.test((await readFence(production)) ?? ''),
  );
  const stoppedMs = performance.now() - takenAt;
  expect(await takeover).toMatchObject({ code: 0 });
  expect(await run(env, 'archive', source)).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/this Tapegate is fenced: .* belongs to another Tapegate/),
  });
  const left = inodesOf([...live.values()]);
  await ask(production, 'production', NEVER);
  for (const id of live.keys()) await cancel(production, id);

  // after the takeover, the copy continues without a restart
  await mail.waitForMail('alice@example.org', 'Restored: copy');
  await waitFor('a webhook message of the copy', async () =>
    receiver.messages.some(({ data }) => data.label === 'copy'),
  );
  await waitFor('the removal of cancelled files', async () => !CANCELLED.some((n) => existsSync(placeOf(n))));
  for (const id of [held, ...liveInCopy.keys()]) await waitForEnd(copy, id);
  expect([...HELD, ...liveInCopy.values()].filter((n) => !isRight(n))).toEqual([]);
  expect([inodesOf(HELD), inodesOf([...live.values()]), existsSync(placeOf(NEVER))]).toEqual([
    inodes.slice(CANCELLED.length),
    left,
    false,
  ]);
  expect([hashTree(library), await readFence(copy)]).toEqual([tapes, null]);
  expect(await readFence(production)).toMatch(/belongs to another Tapegate/);
  if (given !== undefined) {
    console.log({
      seconds: SECONDS,
      requests: 2 + 2 * rounds,
      files: Object.keys(hashTree(restored)).length,
      stoppedMs,
    });
    expect(stoppedMs).toBeLessThan(10_000);
  }
  for (const server of [copy, production]) await stop(server);
  await mail.close();
  await receiver.close();
});
