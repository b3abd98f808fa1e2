/** The email of requests: when it is sent, and its text. */
import { appendFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { startApp, startBeside, type TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { readRestored, readStage } from '../support/engine-watch.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { holdReads } from '../support/held-reads.js';
import { type MailServer, startMailServer } from '../support/mail-server.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cancel, made, release } from '../support/mutations.js';
import { askForMail } from '../support/outbox.js';
import { viewRequest, waitForState, waitForView } from '../support/request-view.js';
import { makeRequest, put } from '../support/rest.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
let server: MailServer;
const library = createMemoryLibrary();
const hooks = { onMount: library.onMount, onRead: library.onRead };
const clock = createClock();
const RETENTION = '2099-01-02T03:04:05.000006';

beforeAll(async () => {
  server = await startMailServer();
  const config = { drives: 1, smtpUrl: server.url, mailFrom: 'tapes@archive.example' };
  app = await startApp({ library, config, now: clock.now, limits: { mailRate: 60_000, userMailRate: 60_000 } });
  await addQuota(app.ctx, 'alice', 10n ** 9n, 'alice@example.org');
});
afterEach(() => {
  Object.assign(library, hooks);
  server.onMail = () => {};
});
afterAll(async () => {
  await app.close();
  await server.close();
});

function subjectsTo(address: string): (string | undefined)[] {
  return server.mails.filter((mail) => mail.to.includes(address)).map((mail) => mail.headers.get('subject'));
}

let marks = 0;

/** Waits until the engine has sent all email that was due. */
async function waitUntilSent(): Promise<void> {
  const name = `mark-${++marks}`;
  await askForMail(app, name);
  await server.waitForMail(`${name}@example.org`, 'No files');
}

function request(name: string, fields: object): Promise<number> {
  const addresses = { notify_on_first_file: `${name}@first.example`, notify_on_last_file: `${name}@last.example` };
  return makeRequest(app, { quota: 'alice', retention: RETENTION, ...addresses, ...fields });
}

test('the first and the last email are sent once each, when their files can be read', async () => {
  const gate = createGate();
  library.onMount = async (volume) => {
    if (volume === 'LAST') await gate.opened;
  };
  await addTaped(app.ctx, library, [
    { path: '/all/a', volume: 'FIRST', size: 2_000_000 },
    { path: '/all/b', volume: 'LAST', size: 1500 },
  ]);
  const readable: Record<string, string[]> = {};
  server.onMail = ({ to }) => {
    readable[String(to)] = ['/all/a', '/all/b'].filter((file) => readRestored(app, file) !== undefined);
  };
  const id = await request('all', { patterns: '/all/', label: 'ocean run 7' });
  const first = await server.waitForMail('all@first.example', 'First file restored: ocean run 7');
  expect(first).toMatchObject({ from: 'tapes@archive.example', to: ['all@first.example'] });
  expect(first.headers.get('from')).toBe('tapes@archive.example');
  expect(first.headers.get('to')).toContain('all@first.example');
  expect(first.headers.get('auto-submitted')).toBe('auto-generated');
  expect(first.headers.get('message-id')).toMatch(/^<[0-9a-f-]{36}@archive\.example>$/);
  const [text, end] = first.body.split('\n\nThe remaining files are expected at about ');
  expect(text).toBe(`The first file of your request ${id} ("ocean run 7", pattern "/all/") is on disk:

  ${app.restoreDir}/all/a

1 more file will follow (2 in total).
Restored files stay on disk until 2099-01-02 03:04:05 UTC.`);
  const time = String.raw`20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC`;
  expect(end).toMatch(new RegExp(`^${time} \\(${time} to ${time}; estimate without measurements\\)\\.\n$`));
  expect(subjectsTo('all@last.example')).toEqual([]);

  gate.open();
  const last = await server.waitForMail('all@last.example', 'Restored: ocean run 7');
  expect(last.body).toBe(`Your request ${id} ("ocean run 7", pattern "/all/") has finished.

  on disk:  2 files, 2.00 MB

The restored files are available until 2099-01-02 03:04:05 UTC:

  ${app.restoreDir}/all/a
  ${app.restoreDir}/all/b

The files are at their archive paths below these directories:
  ${app.restoreDir}
`);
  expect(readable).toEqual({ 'all@first.example': ['/all/a'], 'all@last.example': ['/all/a', '/all/b'] });

  await addTaped(app.ctx, library, [{ path: '/all/later', volume: 'FIRST', position: 9n }]);
  await waitForView(app, id, 'to have the file that came later', (view) => view.filesOnDisk === 3);
  await put(app, id, { quota: 'alice', retention: '2020-01-01' });
  await put(app, id, { quota: 'alice', retention: RETENTION });
  await waitForState(app, id, 'COMPLETED');
  await waitUntilSent();
  expect([...subjectsTo('all@first.example'), ...subjectsTo('all@last.example')]).toHaveLength(2);
});

test('the last email lists the failed files with their errors, and its subject mentions failures', async () => {
  await addTaped(app.ctx, library, [
    { path: '/some/bad', volume: 'SOME', position: 1n },
    { path: '/some/good', volume: 'SOME', position: 2n },
  ]);
  await addFiles(app.ctx, [{ path: '/some/lost', volume: null, position: null }]);
  library.onRead = async (_volume, position) => {
    if (position === 1n) throw new TapeError('PERMANENT', 'the tape is torn at 17 m\nand wet');
  };
  await request('some', { patterns: '/some/' });
  const last = await server.waitForMail('some@last.example', 'Partly restored: /some/');
  expect(last.body).toContain('\n  on disk:  1 file, 1.00 kB\n  failed:   2 files\n');
  expect(last.body).toContain(`These files could not be restored:

  /some/bad
    the tape is torn at 17 m and wet
  /some/lost
    the catalogue does not contain the volume and position of the file
`);
});

test('the last email lists unknown paths, and the own paths of files that were on disk already', async () => {
  await addFiles(app.ctx, [{ path: '/known/on-disk', stage: 'ONDISK', size: 0n }]);
  const files = ['/known/żółw\n2', '/known/on-disk', '/known/never'];
  await request('known', { files, label: 'three' });
  const first = await server.waitForMail('known@first.example', 'First file restored: three');
  expect(first.body).toContain('\n  /known/on-disk\n\nNo more files will follow.\n');
  const last = await server.waitForMail('known@last.example', 'Restored 1 of 3 files; 2 unresolved paths: three');
  expect(last.body).toContain('\n  on disk:  1 of 3 files, 0 bytes\n  missing:  2 unresolved paths\n');
  expect(last.body).not.toContain('The files are at their archive paths');
  expect(last.body).toContain(`  /known/on-disk

Files with these paths were not restored. If these files appear in the catalogue later, Tapegate restores them without another email:

  /known/żółw\uFFFD2 (not in the catalogue)
  /known/never (not in the catalogue)
`);
});

test('a request that matches nothing gets its last email at once, and no first one', async () => {
  const id = await request('nothing', { patterns: 'no such file' });
  const last = await server.waitForMail('nothing@last.example', 'No files: no such file');
  expect(last.body).toBe(`Your request ${id} ("no such file") matches no file in the catalogue.

  on disk:  0 files, 0 bytes
`);
  expect(subjectsTo('nothing@first.example')).toEqual([]);
});

test('the subject says if all files failed, and there is no first email', async () => {
  await addFiles(app.ctx, [{ path: '/failed/a', volume: null, position: null }]);
  await request('failed', { patterns: '/failed/' });
  await server.waitForMail('failed@last.example', 'Restore failed: /failed/');
  expect(subjectsTo('failed@first.example')).toEqual([]);
});

test.each([
  [
    ...(['quota', 'erin', 2500n, 3, 'quota:    3 files', 'over your quota'] as const),
    ...(['2 of 5 files', ' 2 of 5 files; 3 files over the quota'] as const),
  ],
  [
    ...(['limit of the request', 'fred', 99_000n, 2, 'limit:    3 files', "over the request's limit"] as const),
    ...(['2 files', ''] as const),
  ],
] as const)('the last email lists the files beyond the %s', async (...row) => {
  const [, user, size, maxFiles, what, why, files, subject] = row;
  const gate = holdReads(library);
  const directory = `/out-${user}`;
  await addQuota(app.ctx, user, size);
  await addTaped(app.ctx, library, [{ path: `${directory}/a`, volume: `OUT-${user}` }]);
  const notifyOnLastFile = `${user}@last.example`;
  const input = { quota: user, pattern: `${directory}/`, maxFiles, retention: RETENTION, notifyOnLastFile };
  await made(app, input);
  await addFiles(
    app.ctx,
    ['b', 'c', 'd', 'e'].map((name) => ({ path: `${directory}/${name}`, stage: 'ONDISK' as const })),
  );
  gate.open();
  const last = await server.waitForMail(notifyOnLastFile, `Restored${subject}: ${directory}/`);
  expect(last.body).toContain(`\n  on disk:  ${files}, 2.00 kB\n  ${what} ${why}\n`);
  for (const name of ['c', 'd', 'e']) expect(last.body).toContain(`\n  ${directory}/${name} (${why})\n`);
});

test('a release that completes a request sends the last email, and a later release sends none', async () => {
  const gate = createGate();
  library.onRead = async (_volume, position) => {
    if (position === 2n) await gate.opened;
  };
  await addTaped(app.ctx, library, [
    { path: '/freed/a', volume: 'FREED', position: 1n },
    { path: '/freed/b', volume: 'FREED', position: 2n },
  ]);
  const id = await request('freed', { patterns: '/freed/' });
  await waitForView(app, id, 'to have the first file', (view) => view.filesOnDisk === 1);
  expect(subjectsTo('freed@last.example')).toEqual([]);
  await release(app, { requestId: id, match: 'freed/b' });
  gate.open();
  const last = await server.waitForMail('freed@last.example', 'Restored: /freed/');
  expect(last.body).toContain('\n  on disk:  1 file, 1.00 kB\n  released: 1 file, as you requested\n');
  await release(app, { requestId: id, match: 'freed/a' });
  await waitUntilSent();
  expect(subjectsTo('freed@last.example')).toHaveLength(1);
});

test('a request whose files are all released gets no email until another file joins', async () => {
  const gate = holdReads(library);
  await addTaped(app.ctx, library, [{ path: '/empty/a', volume: 'EMPTY' }]);
  const id = await request('empty', { patterns: '/empty/' });
  await release(app, { requestId: id, match: '/empty/' });
  expect((await viewRequest(app, id)).state).toBe('COMPLETED');
  await waitUntilSent();
  expect([...subjectsTo('empty@first.example'), ...subjectsTo('empty@last.example')]).toEqual([]);
  gate.open();
  await addFiles(app.ctx, [{ path: '/empty/b', stage: 'ONDISK' }]);
  expect((await server.waitForMail('empty@last.example', 'Restored: /empty/')).body).toContain('\n  /empty/b\n');
});

test('an email lists the first 20 files and counts the others', async () => {
  const files = Array.from({ length: 23 }, (_, index) => `/many/${String(index).padStart(2, '0')}`);
  await addFiles(
    app.ctx,
    files.map((path) => ({ path, stage: 'ONDISK' as const, size: 1n })),
  );
  await request('many', { files, label: 'many' });
  const last = await server.waitForMail('many@last.example', 'Restored: many');
  const listed = last.body.split('\n').filter((line) => line.startsWith('  /many/') || line.startsWith('  …'));
  expect(listed).toEqual([...files.slice(0, 20).map((path) => `  ${path}`), '  … and 3 more']);
});

test('an address that is set after the restore gets the email once', async () => {
  await addTaped(app.ctx, library, [{ path: '/later/a', volume: 'LATER' }]);
  const id = await makeRequest(app, { quota: 'alice', patterns: '/later/', retention: RETENTION });
  await waitForState(app, id, 'COMPLETED');
  const addresses = { notify_on_first_file: 'later@first.example', notify_on_last_file: '' };
  for (let time = 0; time < 2; time++) await put(app, id, { quota: 'alice', ...addresses });
  await server.waitForMail('later@first.example', 'First file restored: /later/');
  await server.waitForMail('alice@example.org', 'Restored: /later/'); // an empty address means the address of the quota
  await put(app, id, { quota: 'alice', notify_on_first_file: 'other@first.example' });
  await waitUntilSent();
  expect(subjectsTo('later@first.example')).toHaveLength(1);
  expect(subjectsTo('alice@example.org')).toHaveLength(1);
  expect(subjectsTo('other@first.example')).toEqual([]);
});

test('a cancelled request gets no more email', async () => {
  const gate = holdReads(library);
  await addTaped(app.ctx, library, [{ path: '/stopped/a', volume: 'STOPPED' }]);
  const id = await request('stopped', { patterns: '/stopped/' });
  await waitForState(app, id, 'RESTORING');
  await cancel(app, id);
  await waitFor('the file to be back on tape', async () => (await readStage(app, '/stopped/a')) === 'T');
  gate.open();
  const { rowCount } = await app.ctx.db.pool.query('SELECT FROM notification WHERE request_id = $1', [id]);
  expect(rowCount).toBe(0);
  expect((await viewRequest(app, id)).state).toBe('CANCELLED');
});

test('a path with line breaks adds no header and no recipient', async () => {
  const path = '/header/a\r\nBcc: evil@example.org\r\n\r\nbody';
  await addFiles(app.ctx, [{ path, stage: 'ONDISK' }]);
  await request('header', { files: [path] });
  const last = await server.waitForMail('header@last.example', 'Restored: /header/a');
  expect(last.to).toEqual(['header@last.example']);
  expect([...last.headers.keys()]).not.toContain('bcc');
  expect(last.headers.get('content-type')).toMatch(/^text\/plain/);
  expect(last.headers.get('subject')).toBe(
    'Restored: /header/a\uFFFD\uFFFDBcc: evil@example.org\uFFFD\uFFFD\uFFFD\uFFFDbody',
  );
});

test('email shows where a file was restored whose earlier copy was changed outside Tapegate', async () => {
  await addTaped(app.ctx, library, [{ path: '/hand/a', volume: 'HAND' }]);
  const before = await makeRequest(app, { quota: 'alice', files: ['/hand/a'], retention: RETENTION });
  await waitForState(app, before, 'COMPLETED');
  appendFileSync(`${app.restoreDir}/hand/a`, 'by hand');
  await cancel(app, before);
  await waitFor('the file to be UNVERIFIED', async () => (await readStage(app, '/hand/a')) === 'U');
  await request('hand', { files: ['/hand/a'], label: 'hand' });
  const first = await server.waitForMail('hand@first.example', 'First file restored: hand');
  const last = await server.waitForMail('hand@last.example', 'Restored: hand');
  const query = '{ tapeFile(path: "/hand/a") { restoredPath disk { mountpoint } } }';
  const { tapeFile } = await askData<{ tapeFile: { restoredPath: string; disk: object } }>(app, query);
  expect(tapeFile.restoredPath).toMatch(new RegExp(`^${app.restoreDir}/\\.tapegate-renamed/[-\\d]+/a$`));
  expect(tapeFile.disk).toEqual({ mountpoint: app.restoreDir });
  const place = expect.stringContaining(`\n  ${tapeFile.restoredPath}\n`);
  expect([first.body, last.body]).toEqual([place, place]);
  expect(last.body).not.toContain('The files are at their archive paths');
});

test('an email lists no path of a file that is not on disk any more', async () => {
  await addFiles(
    app.ctx,
    ['/left/a', '/left/b'].map((file) => ({ path: file, stage: 'ONDISK' as const })),
  );
  const id = await makeRequest(app, { quota: 'alice', patterns: '/left/', label: 'left' });
  await app.ctx.db.pool.query("UPDATE tape_file SET stage = 'ONTAPE' WHERE path = '/left/b'");
  await put(app, id, { quota: 'alice', notify_on_last_file: 'left@last.example' });
  const { body } = await server.waitForMail('left@last.example', 'Restored: left');
  expect([body.includes('/left/a'), body.includes('/left/b')]).toEqual([true, false]);
});

test.each([
  { dashboard: true, path: '#/requests/' },
  { dashboard: false, path: 'tape_control/api/v1/requests/' },
])('email links to the request at TAPEGATE_PUBLIC_URL: $path', async ({ dashboard, path }) => {
  const other = await startBeside(app, { config: { publicUrl: 'https://archive.example/tapes', dashboard } });
  await addFiles(app.ctx, [{ path: '/link/a', stage: 'ONDISK' }]);
  const [first, last] = ['first', 'last'].map((name) => `link-${dashboard}@${name}.example`);
  const addresses = { notify_on_first_file: first, notify_on_last_file: last };
  const id = await makeRequest(other, { quota: 'alice', patterns: '/link/', ...addresses });
  const link = `\n\nCurrent state of the request: https://archive.example/tapes/${path}${id}\n`;
  for (const [address = '', subject = ''] of [
    [first, 'First file restored: /link/'],
    [last, 'Restored: /link/'],
  ]) {
    const { body } = await server.waitForMail(address, subject);
    expect(body.slice(-link.length)).toBe(link);
  }
  // the gateway also serves paths with the prefix of TAPEGATE_PUBLIC_URL
  const { pathname } = new URL(link.trim().split(' ').at(-1) ?? '');
  const answer = await fetch(`${other.url}${pathname}`);
  expect(answer.status).toBe(200);
  if (!dashboard) expect(await answer.json()).toMatchObject([{ id }]);
  await other.close();
});
