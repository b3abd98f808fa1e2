import { afterAll, beforeAll, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { type MailServer, startMailServer } from '../support/mail-server.js';
import { createMemoryLibrary } from '../support/memory-library.js';
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

/** REST responses at one moment. */
interface Moment {
  request: Record<string, unknown>;
  text: string;
  quota: string;
  stages: string;
  mails: string[];
}

let now = MADE;
let app: TestApp;
/** Reads that have begun. Each read returns its bytes when the test calls `finish`. */
const reads: { finish: () => void }[] = [];
const library = createMemoryLibrary();
library.onRead = (_volume, _position, bytes) => new Promise((resolve) => reads.push({ finish: () => resolve(bytes) }));
const nextRead = () => waitFor('the drive to read', async () => reads.shift());

const moments = {} as Record<'made' | 'started' | 'first' | 'last' | 'later' | 'expired', Moment>;
let mail: MailServer;
const recipients = () => mail.mails.flatMap(({ to }) => to);

/** Restores two files one after the other with one drive. The clock advances during each read. */
async function tellStory(): Promise<void> {
  mail = await startMailServer();
  const limits = { mailRate: 60_000, userMailRate: 60_000 };
  app = await startApp({ library, config: { drives: 1, smtpUrl: mail.url }, now: () => now, limits });
  await addTaped(app.ctx, library, [
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
  await waitFor('the first email', async () => recipients().length === 1);
  moments.first = await look(id);
  now = LAST;
  last.finish();
  await waitFor('the last email', async () => recipients().length === 2);
  moments.last = await look(id);
  now = LATER;
  moments.later = await look(id);
  now = EXPIRED;
  await waitFor('the files to be removed', async () => (await look(id)).stages === 'TT');
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

type Name = keyof typeof moments;
const valuesOf = (field: string, ...names: Name[]) => names.map((name) => moments[name].request[field]);

test('R43 times of progress are absent until they are known', () => {
  const times = (name: Name) => Object.keys(moments[name].request).filter((key) => /^tapestore|on_disk$/.test(key));
  expect([times('made'), times('started')]).toEqual([[], ['tapestore_request_start']]);
  expect(times('first')).toEqual(['tapestore_request_start', 'first_files_on_disk']);
});

test('R44 times of progress are between the label and the files, in the order of the table', () => {
  expect(Object.keys(moments.last.request)).toEqual([
    ...['id', 'quota', 'retention', 'request_date', 'request_patterns', 'notify_on_first_file', 'notify_on_last_file'],
    ...['label', 'tapestore_request_start', 'tapestore_request_end', 'first_files_on_disk', 'last_files_on_disk'],
    'files',
  ]);
});

test('R45 tapestore_request_start is the time when the first recall began', () => {
  expect(valuesOf('tapestore_request_start', 'started', 'last', 'expired')).toEqual([STARTED, STARTED, STARTED]);
});

test('R46 tapestore_request_end is the time when the last recall ended', () => {
  expect(valuesOf('tapestore_request_end', 'first', 'last')).toEqual([undefined, LAST]);
});

test('R47 first_files_on_disk is the time when the first file was on disk', () => {
  expect(valuesOf('first_files_on_disk', 'started', 'first', 'last')).toEqual([undefined, FIRST, FIRST]);
});

test('R48 last_files_on_disk is the time when the last file was on disk', () => {
  expect(valuesOf('last_files_on_disk', 'first', 'last', 'later')).toEqual([undefined, LAST, LAST]);
});

test('R51 the stage of a file changes from T to A to R while it is restored', () => {
  const stages = (['made', 'started', 'first', 'last'] as const).map((name) =>
    [...moments[name].stages].sort().join(''),
  );
  expect(stages).toEqual(['TT', 'AT', 'AR', 'RR']);
});

test('R52 a file stays restored until the retention ends, and then its stage is T', () => {
  expect([moments.later.stages, moments.expired.stages]).toEqual(['RR', 'TT']);
});

test('R53 the first address gets one email when the first file is on disk', () => {
  expect([moments.started.mails, moments.first.mails]).toEqual([[], [ADDRESSES.notify_on_first_file]]);
});

test('R54 the last address gets one email when the request is complete', () => {
  expect(moments.expired.mails).toEqual(Object.values(ADDRESSES));
});

test('R49 files that are on disk already count when the request is made', async () => {
  await addFiles(app.ctx, [
    { path: '/d/one.nc', stage: 'ONDISK' },
    { path: '/d/two.nc', stage: 'UNVERIFIED' },
  ]);
  const id = await makeRequest(app, { quota: 'alice', patterns: '/d/', label: 'there' });
  expect((await look(id)).text).toContain(
    `"label":"there","first_files_on_disk":"${EXPIRED}","last_files_on_disk":"${EXPIRED}","files":`,
  );
});

test('R50 a file that joins a complete request removes its last times until it is on disk', async () => {
  const arrived = '2026-11-26T00:00:00';
  await addFiles(app.ctx, [{ path: '/j/one.nc', stage: 'ONDISK' }]);
  const id = await makeRequest(app, { quota: 'alice', patterns: '/j/' });
  await addTaped(app.ctx, library, [{ path: '/j/two.nc', volume: 'V00003' }]);
  const read = await nextRead();
  const joined = await readRequest(app, id);
  expect(joined.first_files_on_disk).toBe(EXPIRED);
  expect(joined).not.toHaveProperty('last_files_on_disk');
  expect(joined).not.toHaveProperty('tapestore_request_end');
  now = arrived;
  read.finish();
  const after = await waitFor('the file to arrive', async () => {
    const request = await readRequest(app, id);
    return 'last_files_on_disk' in request && request;
  });
  const last = { last_files_on_disk: arrived, tapestore_request_end: arrived };
  expect(after).toMatchObject({ first_files_on_disk: EXPIRED, ...last });
});

test('R133 in a quota known times of progress follow the label, in the order of the table', () => {
  expect(moments.made.quota).toContain('"label":"/p/"}]}]');
  expect(moments.last.quota).toContain(
    `"label":"/p/","tapestore_request_start":"${STARTED}","tapestore_request_end":"${LAST}",` +
      `"first_files_on_disk":"${FIRST}","last_files_on_disk":"${LAST}"}]}]`,
  );
});
