/** Commands on a running Tapegate: `suspend`, `drain`, `resume`, `suspensions`, `show` and `priority`. */
import { afterAll, afterEach, expect, test } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { done, parseLines, parseTable, refused } from '../support/command-results.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cleanUp, type Result, runCli } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { readSuspensions, readTries } from '../support/suspend.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const library = createMemoryLibrary();
const hooks = { onMount: library.onMount, onRead: library.onRead };
let env: Record<string, string>;

const app = useApp({ library, config: { drives: 1 } }, async () => {
  env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
  await addQuota(app.ctx, 'ann', 10n ** 9n);
});
afterEach(() => {
  Object.assign(library, hooks);
  library.log.length = 0;
});
afterAll(cleanUp);

const run = (...args: string[]): Promise<Result> => runCli(args, { env });

test('suspensions lists what is out of service, and each command prints the same with --json', async () => {
  expect(await run('suspensions')).toEqual(done('nothing is suspended\n'));
  expect(await run('suspensions', '--json')).toEqual(done(''));
  expect(await run('suspend', 'user', 'ann', '--reason', 'slow')).toEqual(done('user ann is suspended: slow\n'));
  expect(await run('resume', 'user', 'ann')).toEqual(done('user ann is in service again\n'));
  const held = await run('suspend', 'user', 'ann', '--reason', 'too\u202efast', '--json');
  const { since, ...rest } = JSON.parse(held.stdout);
  expect(rest).toEqual({ kind: 'USER', name: 'ann', mode: 'IMMEDIATE', reason: 'too\u202efast' });
  await run('drain', 'library', 'directory');
  expect(await run('drain', 'disk', app.restoreDir)).toEqual(done(`disk ${app.restoreDir} is draining\n`));
  expect(parseTable(await run('suspensions'))).toEqual([
    ['KIND', 'NAME', 'MODE', 'SINCE', 'REASON'],
    ['user', 'ann', 'IMMEDIATE', since.slice(0, 19), 'too\uFFFDfast'],
    ['library', 'directory', 'DRAINING', expect.any(String), '-'],
    ['disk', app.restoreDir, 'DRAINING', expect.any(String), '-'],
    [''],
  ]);
  const json = await run('suspensions', '--json');
  expect(json.stdout.split('\n')[0]).toBe(held.stdout.trimEnd());
  expect(await run('resume', 'user', 'ann', '--json')).toEqual(held);
  await run('resume', 'library', 'directory');
  await run('resume', 'disk', app.restoreDir);
  expect(await readSuspensions(app)).toEqual([]);
});

test('suspend and resume reject unknown names, a bad reason, and objects in service', async () => {
  expect(await run('suspend', 'volume', 'nowhere')).toEqual(refused(1, 'there is no volume "nowhere"'));
  expect(await run('resume', 'user', 'ann')).toEqual(refused(1, 'user "ann" is not suspended'));
  expect(await run('suspend', 'user', 'ann', '--reason', 'a\nb')).toEqual(
    refused(2, '--reason must not contain control characters: "a\\nb"'),
  );
});

test('show prints a request, and the tries, error and next try of each file that is not on disk', async () => {
  await addTaped(app.ctx, library, [
    { path: '/show/1-good', volume: 'GOOD', size: 1500 },
    { path: '/show/2-failed', volume: 'BAD', position: 1n },
    { path: '/show/3-paused', volume: 'BAD', position: 2n },
    { path: '/show/4-held', volume: 'RESTING' },
  ]);
  library.onRead = async (_volume, position, bytes) => {
    if (bytes.length === 1500) return bytes;
    throw new TapeError(position === 1n ? 'PERMANENT' : 'TRANSIENT', position === 1n ? 'erased' : 'dust');
  };
  await run('suspend', 'volume', 'RESTING', '--reason', 'it is being copied');
  const id = await makeRequest(app, {
    quota: 'ann',
    files: ['/show/1-good', '/show/2-failed', '/show/3-paused', '/show/4-held', '/show/later'],
    retention: '2999-01-02',
    label: 'mine',
    notify_on_first_file: 'first@example.org',
    notify_on_last_file: 'last@example.org',
  });
  // the suspension keeps the displayed state unchanged
  const paused = await waitFor('the pause', async () => {
    const tries = await readTries(app, id);
    const now = tries['/show/3-paused'];
    const isPaused = (now?.attempts ?? 0) > 1 && now?.nextTryAt !== null;
    return tries['/show/1-good']?.state === 'ON_DISK' && isPaused && now;
  });
  await run('suspend', 'user', 'ann', '--reason', 'a pause');
  const [request, ...files] = parseLines(await run('show', String(id), '--json'));
  expect(request).toMatchObject({
    requestId: id,
    quota: { user: 'ann', suspension: { mode: 'IMMEDIATE', reason: 'a pause' } },
    state: 'RESTORING',
    label: 'mine',
    priority: 0,
    filesTotal: 4,
    filesOnDisk: 1,
    filesFailed: 1,
    filesUnknown: 1,
    bytesOnDisk: 1500,
    notifyOnFirstFile: 'first@example.org',
    notifyOnLastFile: 'last@example.org',
  });
  expect(files).toMatchObject([
    {
      file: { path: '/show/2-failed' },
      state: 'FAILED',
      attempts: null,
      lastErrorClass: 'PERMANENT',
      lastError: 'erased',
    },
    { file: { path: '/show/3-paused' }, state: 'WAITING', lastErrorClass: 'TRANSIENT', lastError: 'dust' },
    { file: { path: '/show/4-held', volume: { name: 'RESTING' } }, state: 'WAITING', attempts: 0, nextTryAt: null },
  ]);
  expect(files[1].attempts).toBeGreaterThanOrEqual(paused.attempts ?? 0);
  const text = parseTable(await run('show', String(id)));
  expect(text).toContainEqual([`REQUEST ${id}`, 'RESTORING']);
  expect(text).toContainEqual(['FILES', '/show/1-good and 4 other paths']);
  expect(text).toContainEqual(['USER', 'ann, suspended: a pause']);
  expect(text).toContainEqual(['ON DISK', '1 of 5 files, 1.50 kB of 4.50 kB; 1 unresolved path']);
  expect(text).toContainEqual(['UNRESOLVED', '1 path']);
  expect(text).toContainEqual(['EMAIL', 'first@example.org (first file)']);
  expect(text).toContainEqual(['EMAIL', 'last@example.org (end)']);
  const from = text.findIndex(([first]) => first === 'FILE');
  expect(text.slice(from)).toEqual([
    ['FILE', 'STATE', 'TRIES', 'NEXT TRY', 'REASON'],
    ['/show/2-failed', 'FAILED', 'PERMANENT: erased'],
    expect.arrayContaining(['/show/3-paused', 'WAITING', 'TRANSIENT: dust']),
    ['/show/4-held', 'WAITING', '0', 'volume RESTING is suspended: it is being copied'],
    [''],
    ["1 of the request's paths is not in the catalogue (case-sensitive):"],
    ['', '/show/later'],
    [expect.stringMatching(/^request \d+ stays active until /)],
    [''],
  ]);
  const some = await run('show', String(id), '--limit', '1');
  const lines = some.stdout.split('\n');
  const first = lines.findIndex((line) => line.startsWith('/show/2-failed '));
  expect(lines[first + 1]).toBe('the first file that is not on disk; --limit shows more');
  expect((await run('show', String(id), '--limit', '0')).stdout).not.toContain('/show/2-failed');
  await run('resume', 'user', 'ann');
  await run('resume', 'volume', 'RESTING');
});

test('priority sets the priority of a request, and refuses a bad one', async () => {
  const id = await makeRequest(app, { quota: 'ann', files: ['/no/such'] });
  expect(await run('priority', String(id), '5')).toEqual(done(`request ${id} has priority 5\n`));
  expect(await run('priority', String(id), '--json', '--', '-5')).toEqual(done(`{"requestId":${id},"priority":-5}\n`));
  expect(await run('priority', String(id), '5000')).toEqual(
    refused(2, 'priority must be a whole number from -1000 to 1000, not 5000'),
  );
  expect(await run('priority', String(id), 'high')).toEqual(refused(2, '<n> must be a whole number, not "high"'));
  expect(await run('priority', '99999', '1')).toEqual(
    refused(1, 'there is no request 99999, or you are not allowed to see it'),
  );
});
