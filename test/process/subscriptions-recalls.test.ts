/** Subscriptions to the progress of recalls. */
import { expect, test } from 'vitest';
import { createRequest } from '../../src/domain/requests/create.js';
import { cancelRequest } from '../../src/domain/requests/ends.js';
import { addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { holdReads } from '../support/held-reads.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { waitForState } from '../support/request-view.js';
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
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const library = createMemoryLibrary();
const { open: openReads } = holdReads(library);
const [[, open]] = transports as [(typeof transports)[0]];

const app = useApp({ library, config: { drives: 6 } }, async () => {
  await addQuota(app.ctx, 'alice', 1_000_000n);
});

const TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z$/);
const END = { earliest: TIME, planned: TIME, latest: TIME };

let count = 0;

const countRestoring = async (prefix: string) => {
  const query = `{ tapeFiles(match: "${prefix}", stages: [RESTORING]) { totalCount } }`;
  return (await askData<{ tapeFiles: { totalCount: number } }>(app, query)).tapeFiles.totalCount;
};

/** Creates a request for files of 1000, 2000 and 3000 bytes on three volumes. Reads wait for `openReads`. */
async function startRecalls(): Promise<{ id: number; prefix: string; volumes: [string, string, string] }> {
  const prefix = `/w${++count}/`;
  const volumes: [string, string, string] = [`A${count}`, `B${count}`, `C${count}`];
  await addTaped(
    app.ctx,
    library,
    volumes.map((volume, n) => ({ path: `${prefix}${n + 1}`, volume, size: 1000 * (n + 1) })),
  );
  const id = await createRequest(app.ctx, { quota: 'alice', pattern: prefix });
  await waitFor('the recalls to run', async () => (await countRestoring(prefix)) === 3);
  return { id, prefix, volumes };
}

test('the progress of a request starts with its state, reports each step, and completes with the request', async () => {
  const { id, volumes } = await startRecalls();
  const stream = open<Progress>(app, { query: PROGRESS, variables: { id } });
  const results = await take(stream, 1);
  for (const volume of volumes) {
    openReads(volume);
    results.push(...(await take(stream, 1)));
  }
  expect(await stream.next()).toMatchObject({ done: true });
  const eventId = expect.stringMatching(/^\d+$/);
  const totals = { filesTotal: 3, filesFailed: 0, bytesTotal: '6000', at: TIME, eventId };
  expect(results.map(({ requestProgress }) => requestProgress)).toEqual([
    { ...totals, state: 'RESTORING', filesOnDisk: 0, bytesOnDisk: '0', end: END },
    { ...totals, state: 'RESTORING', filesOnDisk: 1, bytesOnDisk: '1000', end: END },
    { ...totals, state: 'RESTORING', filesOnDisk: 2, bytesOnDisk: '3000', end: END },
    { ...totals, state: 'COMPLETED', filesOnDisk: 3, bytesOnDisk: '6000', end: null },
  ]);
  const ids = results.map(({ requestProgress }) => Number(requestProgress.eventId));
  expect(ids).toEqual([...new Set(ids)].sort((a, b) => a - b));
});

test.each(transports)('a client that disconnects leaves no listener behind, over %s', async (_name, open) => {
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
  // closes streams before they get any event
  for (let n = 0; n < 10; n++) {
    const stream = open(app, { query: CHANGES });
    const next = stream.next().catch(() => undefined);
    stream.close();
    waiting.push(next);
  }
  for (const volume of volumes) openReads(volume);
  await waitForState(app, id, 'COMPLETED');
  await waitForReaders(app, before);
});

test('no end is estimated while a volume of the request is suspended', async () => {
  const prefix = `/out${++count}/`;
  const [open1, out] = [`IN${count}`, `OUT${count}`];
  await addTaped(app.ctx, library, [
    { path: `${prefix}1`, volume: open1 },
    { path: `${prefix}2`, volume: out },
  ]);
  await suspend(app, { kind: 'VOLUME', name: out, mode: 'IMMEDIATE' });
  const id = await createRequest(app.ctx, { quota: 'alice', pattern: prefix });
  const stream = open<Progress>(app, { query: PROGRESS, variables: { id } });
  openReads(open1);
  let last: Progress['requestProgress'] | undefined;
  while (last?.filesOnDisk !== 1) last = (await take(stream, 1))[0]?.requestProgress;
  expect(last).toMatchObject({ state: 'RESTORING', bytesOnDisk: '1000', end: null });
  await resume(app, 'VOLUME', out);
  openReads(out);
  await drain(stream);
});

test('a client that resumes after an event id gets each later event once', async () => {
  const { id, volumes } = await startRecalls();
  const whole = open<Progress>(app, { query: PROGRESS, variables: { id } });
  const seen = await take(whole, 1);
  const first = open<Progress>(app, { query: PROGRESS, variables: { id } });
  await take(first, 1);
  openReads(volumes[0]);
  const [last] = await take(first, 1);
  first.close();
  openReads(volumes[1]);
  seen.push(...(await take(whole, 2)));
  const resumption = { query: PROGRESS, variables: { id, after: last?.requestProgress.eventId } };
  const second = open<Progress>(app, resumption);
  const resumed = await take(second, 1);
  openReads(volumes[2]);
  for (const { data } of await drain(second)) if (data) resumed.push(data);
  for (const { data } of await drain(whole)) if (data) seen.push(data);
  expect(seen).toHaveLength(4);
  // each stream has its own estimates of the end
  const withoutEnd = ({ requestProgress }: Progress) => ({ ...requestProgress, end: null });
  expect(last && withoutEnd(last)).toEqual(seen[1] && withoutEnd(seen[1]));
  expect(resumed.map(withoutEnd)).toEqual(seen.slice(2).map(withoutEnd));
  // the request has finished before this stream begins
  expect((await drain(open<Progress>(app, resumption))).map(({ data }) => data && withoutEnd(data))).toEqual(
    resumed.map(withoutEnd),
  );
});

const summarize = (results: Changes[]) =>
  results.map(({ stageChanges: { path, from, to } }) => `${path} ${from} ${to}`);
const ofEach = (prefix: string, change: string) => [1, 2, 3].map((n) => `${prefix}${n} ${change}`);

test('stage changes start with the current stages, and include those of released files', async () => {
  const { id, prefix, volumes } = await startRecalls();
  const stream = open<Changes>(app, { query: CHANGES, variables: { match: prefix } });
  const results = await take(stream, 3);
  for (const volume of volumes) {
    openReads(volume);
    results.push(...(await take(stream, 1)));
  }
  await waitForState(app, id, 'COMPLETED');
  await cancelRequest(app.ctx, id);
  results.push(...(await take(stream, 3)));
  stream.close();
  expect(results[0]?.stageChanges).toMatchObject({ at: TIME, eventId: expect.stringMatching(/^\d+$/) });
  const [started, released] = [summarize(results.slice(0, 6)), summarize(results.slice(6))];
  expect(started).toEqual([...ofEach(prefix, 'null RESTORING'), ...ofEach(prefix, 'RESTORING RESTORED')]);
  expect(released.sort()).toEqual(ofEach(prefix, 'RESTORED ONTAPE'));
  const after = results[3]?.stageChanges.eventId;
  const since = open<Changes>(app, { query: CHANGES, variables: { match: prefix, after } });
  expect(await take(since, 5)).toEqual(results.slice(4));
  since.close();
});

test('stage changes can be of a request, of matching files of it, or of all files, then without current stages', async () => {
  const { id, prefix, volumes } = await startRecalls();
  const other = await startRecalls();
  const before = app.ctx.events.readers;
  const ofRequest = open<Changes>(app, { query: CHANGES, variables: { requestId: id } });
  const ofBoth = open<Changes>(app, { query: CHANGES, variables: { requestId: id, match: `${prefix}2` } });
  const ofAll = open<Changes>(app, { query: CHANGES });
  const taken = [take(ofRequest, 6), take(ofBoth, 2), take(ofAll, 1)] as const;
  await waitForReaders(app, before + 3);
  openReads(other.volumes[0]);
  expect(summarize(await taken[2])).toEqual([`${other.prefix}1 RESTORING RESTORED`]);
  for (const volume of [...volumes, ...other.volumes]) openReads(volume);
  const changes = summarize(await taken[0]);
  expect(changes.slice(0, 3)).toEqual(ofEach(prefix, 'null RESTORING'));
  expect(changes.slice(3).sort()).toEqual(ofEach(prefix, 'RESTORING RESTORED'));
  expect(summarize(await taken[1])).toEqual([`${prefix}2 null RESTORING`, `${prefix}2 RESTORING RESTORED`]);
  for (const stream of [ofRequest, ofBoth, ofAll]) stream.close();
});
