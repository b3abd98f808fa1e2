import { appendFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { TapeError } from '../../src/errors.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { readRestored, readStage } from '../support/engine-watch.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { holdReads } from '../support/held-reads.js';
import { type MailServer, startMailServer } from '../support/mail-server.js';
import { cancel, made, release } from '../support/mutations.js';
import { viewRequest, waitForState, waitForView } from '../support/request-view.js';
import { makeRequest, put } from '../support/rest.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
let server: MailServer;
const backend = createMemoryBackend();
const hooks = { onMount: backend.onMount, onRead: backend.onRead };
const clock = createClock();
const RETENTION = '2099-01-02T03:04:05.000006';

beforeAll(async () => {
  server = await startMailServer();
  const config = { drives: 1, smtpUrl: server.url, mailFrom: 'tapes@archive.example' };
  app = await startApp({ backend, config, now: clock.now, limits: { mailRate: 60_000, userMailRate: 60_000 } });
  await addQuota(app.ctx, 'alice', 10n ** 9n, 'alice@example.org');
});
afterEach(() => {
  Object.assign(backend, hooks);
  server.onMail = () => {};
});
afterAll(async () => {
  await app.close();
  await server.close();
});

function subjectsTo(address: string): (string | undefined)[] {
  return server.mails.filter((mail) => mail.to.includes(address)).map((mail) => mail.headers.get('subject'));
}

function request(name: string, fields: object): Promise<number> {
  const addresses = { notify_on_first_file: `${name}@first.example`, notify_on_last_file: `${name}@last.example` };
  return makeRequest(app, { quota: 'alice', retention: RETENTION, ...addresses, ...fields });
}

test('the first and the last mail go out once each, when their files can be read', async () => {
  const gate = createGate();
  backend.onMount = async (volume) => {
    if (volume === 'LAST') await gate.opened;
  };
  await addTaped(app.ctx, backend, [
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
  expect(first.body).toBe(`The first file of your request ${id} ("ocean run 7", pattern "/all/") can be read now:

  ${app.restoreDir}/all/a

1 file is still to come, of 2 in all.
Restored files stay on disk until 2099-01-02 03:04:05 UTC.
`);
  expect(subjectsTo('all@last.example')).toEqual([]);

  gate.open();
  const last = await server.waitForMail('all@last.example', 'Restored: ocean run 7');
  expect(last.body).toBe(`Nothing is left to do for your request ${id} ("ocean run 7", pattern "/all/").

  on disk:  2 files, 2.00 MB

Until 2099-01-02 03:04:05 UTC you find them here:

  ${app.restoreDir}/all/a
  ${app.restoreDir}/all/b

Below these directories each file has its archive path:
  ${app.restoreDir}
`);
  expect(readable).toEqual({ 'all@first.example': ['/all/a'], 'all@last.example': ['/all/a', '/all/b'] });

  await addTaped(app.ctx, backend, [{ path: '/all/later', volume: 'FIRST', position: 9n }]);
  await waitForView(app, id, 'to have the file that came later', (view) => view.filesOnDisk === 3);
  await put(app, id, { quota: 'alice', retention: '2020-01-01' });
  await put(app, id, { quota: 'alice', retention: RETENTION });
  await waitForState(app, id, 'COMPLETED');
  await makeRequest(app, { quota: 'alice', files: ['/nowhere'], notify_on_last_file: 'mark@example.org' });
  await server.waitForMail('mark@example.org', 'No files'); // whatever else was due is out by now
  expect([...subjectsTo('all@first.example'), ...subjectsTo('all@last.example')]).toHaveLength(2);
});

test('the last mail of a request with failures names them and why, and says so in its subject', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/some/bad', volume: 'SOME', position: 1n },
    { path: '/some/good', volume: 'SOME', position: 2n },
  ]);
  await addFiles(app.ctx, [{ path: '/some/lost', volume: null, position: null }]);
  backend.onRead = async (_volume, position, bytes) => {
    if (position === 1n) throw new TapeError('PERMANENT', 'the tape is torn at 17 m\nand wet');
    return bytes;
  };
  const id = await request('some', { patterns: '/some/' });
  const last = await server.waitForMail('some@last.example', 'Partly restored: /some/');
  expect(last.body).toBe(`Nothing is left to do for your request ${id} ("/some/").

  on disk:  1 file, 1.00 kB
  failed:   2 files

Until 2099-01-02 03:04:05 UTC you find them here:

  ${app.restoreDir}/some/good

Below these directories each file has its archive path:
  ${app.restoreDir}

These files could not be restored:

  /some/bad
    the tape is torn at 17 m and wet
  /some/lost
    the catalogue has no volume and position for this file
`);
});

test('the last mail tells the paths that the catalogue does not know, and files on disk have their own place', async () => {
  await addFiles(app.ctx, [{ path: '/known/on-disk', stage: 'ONDISK', size: 0n }]);
  const files = ['/known/żółw\n2', '/known/on-disk', '/known/never'];
  const id = await request('known', { files, label: 'three' });
  const first = await server.waitForMail('known@first.example', 'First file restored: three');
  expect(first.body).toBe(`The first file of your request ${id} ("three") can be read now:

  /known/on-disk

No other file is to come.
Restored files stay on disk until 2099-01-02 03:04:05 UTC.
`);
  const last = await server.waitForMail('known@last.example', 'Restored: three');
  expect(last.body).toBe(`Nothing is left to do for your request ${id} ("three").

  on disk:  1 file, 0 bytes
  unknown:  2 paths

Until 2099-01-02 03:04:05 UTC you find them here:

  /known/on-disk

These have no restored file; what appears in the catalogue later is restored without another mail:

  /known/żółw\uFFFD2 (not in the catalogue)
  /known/never (not in the catalogue)
`);
});

test('a request that finds nothing gets its last mail at once, and no first one', async () => {
  const id = await request('nothing', { patterns: 'no such file' });
  const last = await server.waitForMail('nothing@last.example', 'No files: no such file');
  expect(last.body).toBe(`Your request ${id} ("no such file") matches no file that the catalogue knows.

  on disk:  0 files, 0 bytes
`);
  expect(subjectsTo('nothing@first.example')).toEqual([]);
});

test('a request whose every file failed says so', async () => {
  await addFiles(app.ctx, [{ path: '/failed/a', volume: null, position: null }]);
  await request('failed', { patterns: '/failed/' });
  await server.waitForMail('failed@last.example', 'Restore failed: /failed/');
  expect(subjectsTo('failed@first.example')).toEqual([]);
});

test.each([
  {
    what: 'quota',
    user: 'erin',
    size: 2500n,
    maxFiles: 3,
    told: 'quota:    3 files found no room in your quota',
    why: 'no room in your quota',
  },
  {
    what: 'limit of the request',
    user: 'fred',
    size: 99_000n,
    maxFiles: 2,
    told: 'limit:    3 files are beyond the limit of the request',
    why: 'beyond the limit of the request',
  },
])('the last mail tells what stayed out for the $what', async ({ user, size, maxFiles, told, why }) => {
  const gate = holdReads(backend);
  const folder = `/out-${user}`;
  await addQuota(app.ctx, user, size);
  await addTaped(app.ctx, backend, [{ path: `${folder}/a`, volume: `OUT-${user}` }]);
  const notifyOnLastFile = `${user}@last.example`;
  const input = { quota: user, pattern: `${folder}/`, maxFiles, retention: RETENTION, notifyOnLastFile };
  const id = await made(app, input);
  await addFiles(
    app.ctx,
    ['b', 'c', 'd', 'e'].map((name) => ({ path: `${folder}/${name}`, stage: 'ONDISK' as const })),
  );
  gate.open();
  const last = await server.waitForMail(notifyOnLastFile, `Restored: ${folder}/`);
  expect(last.body).toBe(`Nothing is left to do for your request ${id} ("${folder}/").

  on disk:  2 files, 2.00 kB
  ${told}

Until 2099-01-02 03:04:05 UTC you find them here:

  ${app.restoreDir}${folder}/a
  ${folder}/b

Below these directories each file has its archive path:
  ${app.restoreDir}

These have no restored file; what appears in the catalogue later is restored without another mail:

  ${folder}/c (${why})
  ${folder}/d (${why})
  ${folder}/e (${why})
`);
});

test('a release that completes a request sends its last mail, and one that comes later sends no second', async () => {
  const gate = createGate();
  backend.onRead = async (_volume, position, bytes) => {
    if (position === 2n) await gate.opened;
    return bytes;
  };
  await addTaped(app.ctx, backend, [
    { path: '/freed/a', volume: 'FREED', position: 1n },
    { path: '/freed/b', volume: 'FREED', position: 2n },
  ]);
  const id = await request('freed', { patterns: '/freed/' });
  await waitForView(app, id, 'to have the first file', (view) => view.filesOnDisk === 1);
  expect(subjectsTo('freed@last.example')).toEqual([]);
  await release(app, { id, match: 'freed/b' });
  gate.open();
  const last = await server.waitForMail('freed@last.example', 'Restored: /freed/');
  expect(last.body).toContain('\n  on disk:  1 file, 1.00 kB\n  released: 1 file, as you asked\n');
  await release(app, { id, match: 'freed/a' });
  await makeRequest(app, { quota: 'alice', files: ['/nowhere'], notify_on_last_file: 'mark-3@example.org' });
  await server.waitForMail('mark-3@example.org', 'No files'); // whatever else was due is out by now
  expect(subjectsTo('freed@last.example')).toHaveLength(1);
});

test('who releases all files gets no mail that nothing is left, and the mail is due again when a file joins', async () => {
  const gate = holdReads(backend);
  await addTaped(app.ctx, backend, [{ path: '/empty/a', volume: 'EMPTY' }]);
  const id = await request('empty', { patterns: '/empty/' });
  await release(app, { id, match: '/empty/' });
  expect((await viewRequest(app, id)).state).toBe('COMPLETED');
  await makeRequest(app, { quota: 'alice', files: ['/nowhere'], notify_on_last_file: 'mark-4@example.org' });
  await server.waitForMail('mark-4@example.org', 'No files');
  expect([...subjectsTo('empty@first.example'), ...subjectsTo('empty@last.example')]).toEqual([]);
  gate.open();
  await addFiles(app.ctx, [{ path: '/empty/b', stage: 'ONDISK' }]);
  expect((await server.waitForMail('empty@last.example', 'Restored: /empty/')).body).toContain('\n  /empty/b\n');
});

test('a mail lists the first of many files and counts the others', async () => {
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

test('an address that is set after the fact gets its mail, once', async () => {
  await addTaped(app.ctx, backend, [{ path: '/later/a', volume: 'LATER' }]);
  const id = await makeRequest(app, { quota: 'alice', patterns: '/later/', retention: RETENTION });
  await waitForState(app, id, 'COMPLETED');
  const addresses = { notify_on_first_file: 'later@first.example', notify_on_last_file: '' };
  for (let time = 0; time < 2; time++) await put(app, id, { quota: 'alice', ...addresses });
  await server.waitForMail('later@first.example', 'First file restored: /later/');
  await server.waitForMail('alice@example.org', 'Restored: /later/'); // an empty address is the quota's own
  await put(app, id, { quota: 'alice', notify_on_first_file: 'other@first.example' });
  await makeRequest(app, { quota: 'alice', files: ['/nowhere'], notify_on_last_file: 'mark-2@example.org' });
  await server.waitForMail('mark-2@example.org', 'No files');
  expect(subjectsTo('later@first.example')).toHaveLength(1);
  expect(subjectsTo('alice@example.org')).toHaveLength(1);
  expect(subjectsTo('other@first.example')).toEqual([]);
});

test('a cancelled request gets no mail for what comes after', async () => {
  const gate = holdReads(backend);
  await addTaped(app.ctx, backend, [{ path: '/stopped/a', volume: 'STOPPED' }]);
  const id = await request('stopped', { patterns: '/stopped/' });
  await waitForState(app, id, 'RESTORING');
  await cancel(app, id);
  await waitFor('the file to be back on tape', async () => {
    const { rows } = await app.ctx.db.pool.query(`SELECT count(*)::int AS n FROM event e
      JOIN tape_file f ON f.id = e.file_id WHERE f.path = '/stopped/a'`);
    return rows[0]?.n === 2;
  });
  gate.open();
  const { rowCount } = await app.ctx.db.pool.query('SELECT FROM notification WHERE request_id = $1', [id]);
  expect(rowCount).toBe(0);
  expect((await viewRequest(app, id)).state).toBe('CANCELLED');
});

test('a name with line breaks makes no header and no recipient', async () => {
  const path = '/header/a\r\nBcc: evil@example.org\r\n\r\nbody';
  await addFiles(app.ctx, [{ path, stage: 'ONDISK' }]);
  await request('header', { files: [path] });
  const last = await server.waitForMail('header@last.example', 'Restored: /header/a');
  expect(last.to).toEqual(['header@last.example']);
  expect([...last.headers.keys()]).not.toContain('bcc');
  expect(last.headers.get('subject')).toBe(
    'Restored: /header/a\uFFFD\uFFFDBcc: evil@example.org\uFFFD\uFFFD\uFFFD\uFFFDbody',
  );
});

test('mail says where a copy is that was changed by hand since it was restored', async () => {
  await addTaped(app.ctx, backend, [{ path: '/hand/a', volume: 'HAND' }]);
  const before = await makeRequest(app, { quota: 'alice', files: ['/hand/a'], retention: RETENTION });
  await waitForState(app, before, 'COMPLETED');
  appendFileSync(`${app.restoreDir}/hand/a`, 'by hand');
  await cancel(app, before);
  await waitFor('the file to be UNVERIFIED', async () => (await readStage(app, '/hand/a')) === 'U');
  await request('hand', { files: ['/hand/a'], label: 'hand' });
  const first = await server.waitForMail('hand@first.example', 'First file restored: hand');
  const last = await server.waitForMail('hand@last.example', 'Restored: hand');
  const place = `\n  ${app.restoreDir}/hand/a\n`;
  expect([first.body, last.body]).toEqual([expect.stringContaining(place), expect.stringContaining(place)]);
  expect(last.body).toContain(`Below these directories each file has its archive path:\n  ${app.restoreDir}\n`);
  const query = '{ tapeFile(path: "/hand/a") { restoredPath disk { mountpoint } } }';
  expect(await askData(app, query)).toEqual({
    tapeFile: { restoredPath: `${app.restoreDir}/hand/a`, disk: { mountpoint: app.restoreDir } },
  });
});

test.each([
  { dashboard: true, place: '#/requests/' },
  { dashboard: false, place: 'tape_control/api/v1/requests/' },
])('where it is known under which URL users find the gateway, mail has a link to the request: $place', async (how) => {
  const other = await startApp({
    backend: createMemoryBackend(),
    config: { smtpUrl: server.url, publicUrl: 'https://archive.example/tapes', dashboard: how.dashboard },
  });
  try {
    await addQuota(other.ctx, 'alice', 10n ** 9n);
    await addFiles(other.ctx, [{ path: '/link/a', stage: 'ONDISK' }]);
    const [first, last] = ['first', 'last'].map((name) => `link-${how.dashboard}@${name}.example`);
    const addresses = { notify_on_first_file: first, notify_on_last_file: last };
    const id = await makeRequest(other, { quota: 'alice', patterns: '/link/', ...addresses });
    const link = `\n\nThe request as it is now: https://archive.example/tapes/${how.place}${id}\n`;
    for (const [address = '', subject = ''] of [
      [first, 'First file restored: /link/'],
      [last, 'Restored: /link/'],
    ]) {
      const { body } = await server.waitForMail(address, subject);
      expect(body.slice(-link.length)).toBe(link);
    }
    // where the proxy has left the prefix as it is, and where the link leads
    const { pathname } = new URL(link.trim().split(' ').at(-1) ?? '');
    const answer = await fetch(`${other.url}${pathname}`);
    expect(answer.status).toBe(200);
    if (!how.dashboard) expect(await answer.json()).toMatchObject([{ id }]);
  } finally {
    await other.close();
  }
});

test('a letter is for programs that show HTML as well, with nothing in it that anybody else has written as HTML', async () => {
  const hostile = '<img src="https://evil.example/x"> & \'quoted\' "text"';
  await addTaped(app.ctx, backend, [{ path: '/html/<b>a</b>.nc', size: 1000 }]);
  const origin = 'https://archive.example.org/tapes?a=1&b=2';
  Object.assign(app.ctx.config, { publicUrl: origin });
  await request('html', { patterns: '/html/', label: hostile });
  const { headers, body, html } = await server.waitForMail('html@last.example', 'Restored: ');
  Object.assign(app.ctx.config, { publicUrl: undefined });
  expect(headers.get('content-type')).toMatch(/^multipart\/alternative/);
  expect(body).toContain(hostile);
  const tags = [...html.matchAll(/<\/?([a-z!]+)/g)].map(([, tag]) => tag);
  expect(new Set(tags)).toEqual(new Set(['!doctype', 'html', 'body', 'p', 'pre', 'br', 'a']));
  expect(html.match(/href="[^"]*"/g)).toEqual([
    expect.stringMatching(/^href="https:\/\/archive\.example\.org\/tapes\?a=1&#38;b=2\/\S+"$/),
  ]);
  const shown = html
    .replace(/<br>\n|<\/p>\n|<\/pre>\n/g, '\n')
    .replace(/<[^>]*>/g, '')
    .replace(/&#(\d+);/g, (_, code: string) => String.fromCharCode(Number(code)));
  const words = (text: string) => text.split(/\s+/).filter((word) => word !== '');
  expect(words(shown)).toEqual(words(body)); // it says the same
});
