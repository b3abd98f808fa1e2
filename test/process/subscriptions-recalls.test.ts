/** What subscriptions tell of recalls, over each of the three ways to them. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createRequest } from '../../src/operations/requests/create.js';
import { cancelRequest } from '../../src/operations/requests/ends.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { holdReads } from '../support/held-reads.js';
import {
  CHANGES,
  type Changes,
  drain,
  PROGRESS,
  type Progress,
  type Stream,
  take,
  transports,
  waitForReaders,
} from '../support/streams.js';
import { resume, suspend } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();
const { open: letGo } = holdReads(backend);

beforeAll(async () => {
  app = await startApp({ backend, config: { drives: 6 } });
  await addQuota(app.ctx, 'alice', 1_000_000n);
});
afterAll(() => app.close());

const TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z$/);

let count = 0;

/** A request for files of 1000, 2000 and 3000 bytes on three volumes, whose recalls all wait for `letGo`. */
async function startRecalls(): Promise<{ id: number; prefix: string; volumes: [string, string, string] }> {
  const prefix = `/w${++count}/`;
  const volumes: [string, string, string] = [`A${count}`, `B${count}`, `C${count}`];
  await addTaped(
    app.ctx,
    backend,
    volumes.map((volume, n) => ({ path: `${prefix}${n + 1}`, volume, size: 1000 * (n + 1) })),
  );
  const id = await createRequest(app.ctx, { quota: 'alice', pattern: prefix });
  await waitFor('the recalls to run', async () => {
    const query = `{ tapeFiles(match: "${prefix}", stages: [RESTORING]) { totalCount } }`;
    return (await askData<{ tapeFiles: { totalCount: number } }>(app, query)).tapeFiles.totalCount === 3;
  });
  return { id, prefix, volumes };
}

async function waitForState(id: number, state: string): Promise<void> {
  await waitFor(`request ${id} to be ${state}`, async () => {
    const { request } = await askData<{ request: { state: string } }>(app, `{ request(id: ${id}) { state } }`);
    return request.state === state;
  });
}

const ids = (results: Progress[]) => results.map(({ requestProgress }) => BigInt(requestProgress.eventId));
const isRising = (numbers: bigint[]) => numbers.every((number, n) => n === 0 || number > (numbers[n - 1] ?? 0n));

describe.each(transports)('over %s', (name, open) => {
  test('the progress of a request is its present state, then each step, and ends with the request', async () => {
    const { id, volumes } = await startRecalls();
    const stream = open<Progress>(app, { query: PROGRESS, variables: { id } });
    const results = await take(stream, 1);
    for (const volume of volumes) {
      letGo(volume);
      results.push(...(await take(stream, 1)));
    }
    expect(await stream.next()).toMatchObject({ done: true });
    const totals = {
      filesTotal: 3,
      filesFailed: 0,
      bytesTotal: '6000',
      at: TIME,
      eventId: expect.stringMatching(/^\d+$/),
    };
    expect(results.map(({ requestProgress }) => requestProgress)).toEqual([
      { ...totals, state: 'RESTORING', filesOnDisk: 0, bytesOnDisk: '0', eta: null },
      { ...totals, state: 'RESTORING', filesOnDisk: 1, bytesOnDisk: '1000', eta: TIME },
      { ...totals, state: 'RESTORING', filesOnDisk: 2, bytesOnDisk: '3000', eta: TIME },
      { ...totals, state: 'COMPLETED', filesOnDisk: 3, bytesOnDisk: '6000', eta: null },
    ]);
    expect(isRising(ids(results))).toBe(true);
  });

  test('who goes away leaves no listener behind', async () => {
    const { id, prefix, volumes } = await startRecalls();
    const before = app.ctx.events.readers;
    const streams: Stream<unknown>[] = [
      open(app, { query: PROGRESS, variables: { id } }),
      open(app, { query: CHANGES, variables: { match: prefix } }),
      open(app, { query: CHANGES }),
    ];
    const waiting = streams.map((stream) => stream.next().catch(() => undefined));
    await waitForReaders(app, before + 3);
    for (const stream of streams) stream.close();
    await waitForReaders(app, before);
    // and before anything has come
    for (let n = 0; n < 10; n++) {
      const stream = open(app, { query: CHANGES });
      const next = stream.next().catch(() => undefined);
      stream.close();
      waiting.push(next);
    }
    for (const volume of volumes) letGo(volume);
    await waitForState(id, 'COMPLETED');
    await waitForReaders(app, before);
  });

  if (name !== transports[0]?.[0]) return; // the rest does not depend on the way to it

  test('no end is told while a volume of the request is out of service', async () => {
    const prefix = `/out${++count}/`;
    const [open1, out] = [`IN${count}`, `OUT${count}`];
    await addTaped(app.ctx, backend, [
      { path: `${prefix}1`, volume: open1 },
      { path: `${prefix}2`, volume: out },
    ]);
    await suspend(app, { kind: 'VOLUME', name: out, mode: 'HELD' });
    const id = await createRequest(app.ctx, { quota: 'alice', pattern: prefix });
    const stream = open<Progress>(app, { query: PROGRESS, variables: { id } });
    letGo(open1);
    let last: Progress['requestProgress'] | undefined;
    while (last?.filesOnDisk !== 1) last = (await take(stream, 1))[0]?.requestProgress;
    expect(last).toMatchObject({ state: 'RESTORING', bytesOnDisk: '1000', eta: null });
    await resume(app, 'VOLUME', out);
    letGo(out);
    await drain(stream);
  });

  test('who comes back with the last event id gets what happened since, and nothing twice', async () => {
    const { id, volumes } = await startRecalls();
    const whole = open<Progress>(app, { query: PROGRESS, variables: { id } });
    const seen = await take(whole, 1);
    const first = open<Progress>(app, { query: PROGRESS, variables: { id } });
    await take(first, 1);
    letGo(volumes[0]);
    const [last] = await take(first, 1);
    first.close();
    letGo(volumes[1]);
    seen.push(...(await take(whole, 2)));
    const second = open<Progress>(app, {
      query: PROGRESS,
      variables: { id, after: last?.requestProgress.eventId },
    });
    const resumed = await take(second, 1);
    letGo(volumes[2]);
    for (const { data } of await drain(second)) if (data) resumed.push(data);
    for (const { data } of await drain(whole)) if (data) seen.push(data);
    expect(seen).toHaveLength(4);
    expect(last).toEqual(seen[1]);
    expect(resumed).toEqual(seen.slice(2));
    // and once all is over
    const third = open<Progress>(app, { query: PROGRESS, variables: { id, after: last?.requestProgress.eventId } });
    expect((await drain(third)).map(({ data }) => data)).toEqual(resumed);
  });

  test('stages are told as they are, then as they change, also those of the files let go', async () => {
    const { id, prefix, volumes } = await startRecalls();
    const stream = open<Changes>(app, { query: CHANGES, variables: { match: prefix } });
    const results = await take(stream, 3);
    for (const volume of volumes) {
      letGo(volume);
      results.push(...(await take(stream, 1)));
    }
    await waitForState(id, 'COMPLETED');
    await cancelRequest(app.ctx, id);
    results.push(...(await take(stream, 3)));
    stream.close();
    const changes = results.map(({ stageChanges: { at: _, eventId: __, ...change } }) => change);
    const now = (n: number) => ({ path: `${prefix}${n}`, from: null, to: 'RESTORING' });
    const restored = (n: number) => ({ path: `${prefix}${n}`, from: 'RESTORING', to: 'RESTORED' });
    const gone = (n: number) => ({ path: `${prefix}${n}`, from: 'RESTORED', to: 'ONTAPE' });
    expect(changes.slice(0, 6)).toEqual([now(1), now(2), now(3), restored(1), restored(2), restored(3)]);
    expect(changes.slice(6)).toEqual(expect.arrayContaining([gone(1), gone(2), gone(3)]));
    const since = open<Changes>(app, {
      query: CHANGES,
      variables: { match: prefix, after: results[3]?.stageChanges.eventId },
    });
    expect(await take(since, 5)).toEqual(results.slice(4));
    since.close();
  });

  test('the stages of a request are those of its files alone', async () => {
    const { id, prefix, volumes } = await startRecalls();
    const other = await startRecalls();
    const stream = open<Changes>(app, { query: CHANGES, variables: { requestId: id } });
    const both = open<Changes>(app, { query: CHANGES, variables: { requestId: id, match: `${prefix}2` } });
    const results = await take(stream, 3);
    const second = await take(both, 1);
    letGo(other.volumes[0]);
    await waitFor('the file of the other request', async () => {
      const query = `{ tapeFile(path: "${other.prefix}1") { stage } }`;
      return (await askData<{ tapeFile: { stage: string } }>(app, query)).tapeFile.stage === 'RESTORED';
    });
    for (const volume of [...volumes, ...other.volumes]) letGo(volume);
    results.push(...(await take(stream, 3)));
    second.push(...(await take(both, 1)));
    stream.close();
    both.close();
    const [one, two, three] = [`${prefix}1`, `${prefix}2`, `${prefix}3`];
    expect(results.slice(0, 3).map(({ stageChanges }) => stageChanges.path)).toEqual([one, two, three]);
    expect(
      results
        .slice(3)
        .map(({ stageChanges }) => stageChanges.path)
        .sort(),
    ).toEqual([one, two, three]);
    expect(second.map(({ stageChanges: { path, from, to } }) => ({ path, from, to }))).toEqual([
      { path: two, from: null, to: 'RESTORING' },
      { path: two, from: 'RESTORING', to: 'RESTORED' },
    ]);
  });

  test('without a choice, all changes are told, and no present stages', async () => {
    const { volumes, prefix, id } = await startRecalls();
    const before = app.ctx.events.readers;
    const stream = open<Changes>(app, { query: CHANGES });
    const next = take(stream, 1);
    await waitForReaders(app, before + 1);
    letGo(volumes[0]);
    expect(await next).toEqual([
      {
        stageChanges: {
          path: `${prefix}1`,
          from: 'RESTORING',
          to: 'RESTORED',
          at: TIME,
          eventId: expect.stringMatching(/^\d+$/),
        },
      },
    ]);
    stream.close();
    letGo(volumes[1]);
    letGo(volumes[2]);
    await waitForState(id, 'COMPLETED');
  });
});
