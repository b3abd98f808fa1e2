import { afterAll, beforeAll, expect, test } from 'vitest';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { type MailServer, startMailServer } from '../support/mail-server.js';
import { get, makeRequest, read, readRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

const ADDRESSES = { notify_on_first_file: 'first@example.org', notify_on_last_file: 'last@example.org' };
const [MADE, STARTED, FIRST, LAST, LATER, EXPIRED] = [
  '2026-11-20T10:00:00.000001',
  '2026-11-20T11:00:00.000020',
  '2026-11-20T12:00:00.000300',
  '2026-11-20T13:00:00.004000',
  '2026-11-25T10:00:00',
  '2026-11-25T10:00:00.000001',
];

/** What REST said at one moment of the story. */
interface Moment {
  request: Record<string, unknown>;
  text: string;
  quota: string;
  stages: string;
  mails: string[];
}

let now = MADE;
let app: TestApp;
/** Reads that have begun; each gives its bytes when it is told to finish. */
const reads: { finish: () => void }[] = [];
const backend = createMemoryBackend();
backend.onRead = (_volume, _position, bytes) => new Promise((resolve) => reads.push({ finish: () => resolve(bytes) }));
const nextRead = () => waitFor('the drive to read', async () => reads.shift());

const moments = {} as Record<'made' | 'started' | 'first' | 'last' | 'later' | 'expired', Moment>;
let mail: MailServer;
const recipients = () => mail.mails.flatMap(({ to }) => to);

/** One drive; the clock goes on while it reads, and what it reads comes when the story says so. */
async function tellStory(): Promise<void> {
  mail = await startMailServer();
  const limits = { mailRate: 60_000, userMailRate: 60_000 };
  app = await startApp({ backend, config: { drives: 1, smtpUrl: mail.url }, now: () => now, limits });
  await addTaped(app.ctx, backend, [
    { path: '/busy.nc', volume: 'V00000' },
    { path: '/p/one.nc', volume: 'V00001' },
    { path: '/p/two.nc', volume: 'V00002' },
  ]);
  await addQuota(app.ctx, 'alice', 10_000n);

  await makeRequest(app, { quota: 'alice', patterns: '/busy', retention: '2027-01-01' });
  const busy = await nextRead();
  const id = await makeRequest(app, { quota: 'alice', patterns: '/p/', ...ADDRESSES });
  moments.made = await look(id);
  now = STARTED;
  busy.finish();
  const first = await nextRead();
  moments.started = await look(id);
  now = FIRST;
  first.finish();
  const last = await nextRead();
  await waitFor('the first mail', async () => recipients().length === 1);
  moments.first = await look(id);
  now = LAST;
  last.finish();
  await waitFor('the last mail', async () => recipients().length === 2);
  moments.last = await look(id);
  now = LATER;
  moments.later = await look(id);
  now = EXPIRED;
  await waitFor('the files to leave', async () => (await look(id)).stages === 'TT');
  moments.expired = await look(id);
}

async function look(id: number): Promise<Moment> {
  const { text } = await get(app, `/requests/${id}`);
  const { files } = await read<{ files: { stage: string }[] }>(app, '/files?match=/p/');
  const stages = files.map(({ stage }) => stage).join('');
  const quota = (await get(app, '/quota/alice')).text;
  return { request: (JSON.parse(text) as [Record<string, unknown>])[0], text, quota, stages, mails: recipients() };
}

beforeAll(tellStory);
afterAll(async () => {
  await app.close();
  await mail.close();
});

test('R43 the times of progress are absent until they are known', () => {
  const times = (moment: Moment) => Object.keys(moment.request).filter((key) => /^tapestore|on_disk$/.test(key));
  expect([times(moments.made), times(moments.started), times(moments.first)]).toEqual([
    [],
    ['tapestore_request_start'],
    ['tapestore_request_start', 'first_files_on_disk'],
  ]);
});

test('R44 the times of progress stand between the label and the files, in the order of the table', () => {
  expect(Object.keys(moments.last.request)).toEqual([
    ...['id', 'quota', 'retention', 'request_date', 'request_patterns', 'notify_on_first_file', 'notify_on_last_file'],
    ...['label', 'tapestore_request_start', 'tapestore_request_end', 'first_files_on_disk', 'last_files_on_disk'],
    'files',
  ]);
});

test('R45 tapestore_request_start is when the first recall began, and stays', () => {
  const { started, last, expired } = moments;
  const times = [started, last, expired].map(({ request }) => request.tapestore_request_start);
  expect(times).toEqual([STARTED, STARTED, STARTED]);
});

test('R46 tapestore_request_end is when the last recall ended', () => {
  const times = [moments.first, moments.last].map(({ request }) => request.tapestore_request_end);
  expect(times).toEqual([undefined, LAST]);
});

test('R47 first_files_on_disk is when the first file was on disk, and stays', () => {
  const times = [moments.started, moments.first, moments.last].map(({ request }) => request.first_files_on_disk);
  expect(times).toEqual([undefined, FIRST, FIRST]);
});

test('R48 last_files_on_disk is when the last file was on disk', () => {
  const times = [moments.first, moments.last, moments.later].map(({ request }) => request.last_files_on_disk);
  expect(times).toEqual([undefined, LAST, LAST]);
});

test('R51 a file goes from T to A to R as it is restored', () => {
  const { made, started, first, last } = moments;
  expect(made.stages).toBe('TT');
  expect([...started.stages].sort().join('')).toBe('AT');
  expect([...first.stages].sort().join('')).toBe('AR');
  expect(last.stages).toBe('RR');
});

test('R52 a file stays restored until the retention, and then goes back to tape', () => {
  expect([moments.later.stages, moments.expired.stages]).toEqual(['RR', 'TT']);
});

test('R53 the first address gets one mail when the first file is there', () => {
  expect([moments.started.mails, moments.first.mails]).toEqual([[], [ADDRESSES.notify_on_first_file]]);
});

test('R54 the last address gets one mail when nothing is left to do', () => {
  expect(moments.expired.mails).toEqual([ADDRESSES.notify_on_first_file, ADDRESSES.notify_on_last_file]);
});

test('R49 files that are on disk already arrive when the request is made, without tape', async () => {
  await addFiles(app.ctx, [
    { path: '/d/one.nc', stage: 'ONDISK' },
    { path: '/d/two.nc', stage: 'UNVERIFIED' },
  ]);
  const id = await makeRequest(app, { quota: 'alice', patterns: '/d/', label: 'there' });
  expect((await look(id)).text).toContain(
    `"label":"there","first_files_on_disk":"${EXPIRED}","last_files_on_disk":"${EXPIRED}","files":`,
  );
});

test('R50 a file that joins a complete request takes its last times away until it has arrived', async () => {
  const arrived = '2026-11-26T00:00:00';
  await addFiles(app.ctx, [{ path: '/j/one.nc', stage: 'ONDISK' }]);
  const id = await makeRequest(app, { quota: 'alice', patterns: '/j/' });
  await addTaped(app.ctx, backend, [{ path: '/j/two.nc', volume: 'V00003' }]);
  const read = await nextRead();
  const { first_files_on_disk, last_files_on_disk, tapestore_request_end } = await readRequest(app, id);
  expect([first_files_on_disk, last_files_on_disk, tapestore_request_end]).toEqual([EXPIRED, undefined, undefined]);
  now = arrived;
  read.finish();
  const after = await waitFor('the file to arrive', async () => {
    const request = await readRequest(app, id);
    return 'last_files_on_disk' in request && request;
  });
  expect(after).toMatchObject({
    first_files_on_disk: EXPIRED,
    last_files_on_disk: arrived,
    tapestore_request_end: arrived,
  });
});

test('R133 in a quota the times of progress follow the label in the order of the table, once known', () => {
  expect(moments.made.quota).toContain('"label":"/p/"}]}]');
  expect(moments.last.quota).toContain(
    `"label":"/p/","tapestore_request_start":"${STARTED}","tapestore_request_end":"${LAST}",` +
      `"first_files_on_disk":"${FIRST}","last_files_on_disk":"${LAST}"}]}]`,
  );
});
