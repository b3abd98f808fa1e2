/** How a site's scripts are run: what their ends mean, and what is done with those that do not end. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { isExhausted, TapeError } from '../../src/errors.js';
import { LibraryError } from '../../src/tape/backend.js';
import { createDrives, createStaging, findScripts, readLines, waitForNoScript } from '../support/command-bench.js';
import { errorOf, readStaged, staged } from '../support/staging-bench.js';
import { quiet } from '../support/tape-backend.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';

const root = makeTempDir('scripts');
afterAll(async () => {
  await waitForNoScript(`TAPES=${root}`);
  rmSync(root, { recursive: true });
});

/** A script of a shell's, as settings name it; what Tapegate adds comes as `$1` and so on, after a `--`. */
const sh = (text: string) => ['/bin/sh', '-c', `shift; ${text}`, 'script'];

const environment = [`TAPES=${root}`];

function createFetcher(text: string, settings: Record<string, unknown> = {}, limits: Record<string, number> = {}) {
  const none = sh('exit 0');
  return createStaging({ stage: none, poll: none, fetch: sh(text), environment, ...settings }, limits);
}

function createReader(text: string, settings: Record<string, unknown> = {}, limits: Record<string, number> = {}) {
  return createDrives({ read: sh(text), environment, ...settings }, limits);
}

async function readDrive(text: string, settings: Record<string, unknown> = {}, signal = quiet()): Promise<string> {
  const volume = await createReader(text, settings).mount('V1', 'drive-1', signal);
  const chunks: Uint8Array[] = [];
  for await (const chunk of volume.read({ path: '/a', position: 3n, size: 10n }, signal)) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

const FILE = staged('/a', 10);

/** Exit code, then the name of the error and its class, of each kind of call: mount, read, stage, fetch. */
const EXITS: [number, string, string, string, string][] = [
  [100, 'TapeError TRANSIENT', 'TapeError TRANSIENT', 'LibraryError TRANSIENT', 'TapeError TRANSIENT'],
  [101, 'TapeError PERMANENT', 'TapeError PERMANENT', 'LibraryError PERMANENT', 'TapeError PERMANENT'],
  [102, 'TapeError MEDIA', 'TapeError MEDIA', 'LibraryError MEDIA', 'TapeError MEDIA'],
  [103, 'TapeError SPACE', 'TapeError SPACE', 'LibraryError SPACE', 'TapeError SPACE'],
  [104, 'TapeError POLICY', 'TapeError POLICY', 'LibraryError POLICY', 'TapeError POLICY'],
  [105, 'LibraryError TRANSIENT', 'LibraryError TRANSIENT', 'LibraryError TRANSIENT', 'LibraryError TRANSIENT'],
  [
    106,
    'RetryLaterError TRANSIENT',
    'RetryLaterError TRANSIENT',
    'RetryLaterError TRANSIENT',
    'RetryLaterError TRANSIENT',
  ],
  [107, 'TapeError TRANSIENT', 'TapeError TRANSIENT', 'LibraryError TRANSIENT', 'NotReadyError TRANSIENT'],
  [108, 'TapeError MEDIA', 'VolumeError MEDIA', 'LibraryError MEDIA', 'TapeError MEDIA'],
  [109, 'DriveError TRANSIENT', 'DriveError TRANSIENT', 'LibraryError TRANSIENT', 'TapeError TRANSIENT'],
  [1, 'TapeError TRANSIENT', 'TapeError TRANSIENT', 'LibraryError TRANSIENT', 'TapeError TRANSIENT'],
  [255, 'TapeError TRANSIENT', 'TapeError TRANSIENT', 'LibraryError TRANSIENT', 'TapeError TRANSIENT'],
];

test.each(EXITS)('exit code %i tells what has failed, and the last line says why', async (code, ...expected) => {
  const script = `echo "first" >&2; printf 'the robot\\033is stuck\\n\\n' >&2; exit ${code}`;
  const staging = createFetcher(script, { stage: sh(script) });
  const errors = [
    await errorOf(createDrives({ mount: sh(script), read: sh(script), environment }).mount('V1', 'drive-1', quiet())),
    await errorOf(readDrive(script)),
    await errorOf(staging.stage([FILE], quiet())),
    await errorOf(readStaged(staging, FILE)),
  ];
  expect(errors.map((error) => `${error?.constructor.name} ${(error as TapeError).errorClass}`)).toEqual(expected);
  for (const error of errors) {
    expect((error as TapeError).message).toMatch(new RegExp(`: the robot is stuck \\(exit code ${code}\\)$`));
  }
});

test.each([
  ['retry-after: 42', 42],
  ['Retry-After: 999999', 86_400],
  ['retry-after: 0', 1],
  ['retry-after: soon', 60],
])('a script that says %j is asked again after %i s', async (line, seconds) => {
  const library = createFetcher('exit 0', { stage: sh(`echo "${line}" >&2; echo "too many requests" >&2; exit 106`) });
  expect(await errorOf(library.stage([FILE], quiet()))).toMatchObject({
    retryAfterSeconds: seconds,
    message: expect.stringContaining('too many requests'),
  });
});

test('a script that says nothing, or is ended by a signal, is told as that', async () => {
  expect(await errorOf(readDrive('exit 3'))).toMatchObject({
    message: 'read of "/a" at "V1", position 3: it said nothing (exit code 3)',
  });
  expect(await errorOf(readDrive('echo "going" >&2; kill -9 $$'))).toMatchObject({
    message: 'read of "/a" at "V1", position 3: going (ended by SIGKILL)',
  });
});

test('what comes before a failure is read, and then the failure is told', async () => {
  const library = createFetcher('printf half; exit 102');
  const chunks: Uint8Array[] = [];
  const read = async () => {
    for await (const chunk of library.read(FILE, 0n, quiet())) chunks.push(chunk);
  };
  expect(await errorOf(read())).toMatchObject({ errorClass: 'MEDIA' });
  expect(Buffer.concat(chunks).toString()).toBe('half');
});

test('a program that cannot be started is the library that is away, and no file', async () => {
  const plain = path.join(root, 'plain-file');
  writeFileSync(plain, 'no program');
  for (const program of ['/nowhere/script', plain, 'no-such-program-anywhere']) {
    const error = await errorOf(readStaged(createFetcher('', { fetch: [program] }), FILE));
    expect(error).toBeInstanceOf(LibraryError);
    expect(error).toMatchObject({ errorClass: 'POLICY', message: expect.stringContaining(program) });
    expect(isExhausted(error)).toBe(false);
  }
});

test('a script has the documented environment, what the settings add, and nothing of Tapegate', async () => {
  const names = (text: string) => text.split('\n').flatMap((line) => /^([A-Z_]+)=/.exec(line)?.[1] ?? []);
  const found = names(await readDrive('exec env')).filter((name) => !['PWD', 'SHLVL', '_', 'OLDPWD'].includes(name));
  expect(found.sort()).toEqual(['HOME', 'LANG', 'PATH', 'TAPEGATE_LIBRARY', 'TAPES', 'TZ']);
  expect(await readDrive('echo "$TAPEGATE_LIBRARY $LANG $(pwd)"')).toBe('scripts C.UTF-8 /\n');
});

test('arguments come as they are: no shell is between, and none is taken for an option', async () => {
  const print = (name: string) => [process.execPath, '-e', `console.log(JSON.stringify(process.argv.slice(1)))`, name];
  const odd = `-n $(exit 1) "two" 'three'\n*`;
  const volume = await createDrives({ read: print('read') }).mount(odd, 'drive-1', quiet());
  let text = '';
  for await (const chunk of volume.read({ path: `/${odd}`, position: 3n, size: 2n ** 60n }, quiet())) text += chunk;
  expect(JSON.parse(text)).toEqual(['read', '--', `/${odd}`, odd, '3', String(2n ** 60n), 'drive-1']);
  const staging = createFetcher('', { fetch: print('fetch') });
  const file = { path: `/${odd}`, volume: odd, position: null, size: 7n };
  text = '';
  for await (const chunk of staging.read(file, 5n, quiet())) text += chunk;
  expect(JSON.parse(text)).toEqual(['fetch', '--', `/${odd}`, '5', odd, '', '7']);
});

test('a script that says no end on standard error takes no memory, and its last line is told', async () => {
  const flood = `yes 'a line of the flood' | head -c 150000000 >&2; printf 'x%.0s' $(seq 5000) >&2; exit 102`;
  const before = process.memoryUsage().rss;
  const error = await errorOf(readDrive(flood));
  expect((error as TapeError).message.length).toBeLessThan(1200);
  expect((error as TapeError).message).toContain('xxxxx');
  expect(process.memoryUsage().rss - before).toBeLessThan(110_000_000);
});

test('a script waits for its reader: what nobody has read is not in memory', async () => {
  const log = path.join(root, 'written');
  const script = `for n in $(seq 1 64); do head -c 1048576 /dev/zero; echo "$n" >> '${log}'; done`;
  const reading = createFetcher(script).read(FILE, 0n, quiet())[Symbol.asyncIterator]();
  const first = await reading.next();
  let last = -1;
  const written = await waitFor('the script to stand still', async () => {
    const before = last;
    last = readLines(log).length;
    return last === before && { count: last };
  });
  expect(written.count).toBeLessThan(8);
  let total = first.value?.length ?? 0;
  for (let next = await reading.next(); !next.done; next = await reading.next()) total += next.value.length;
  expect(total).toBe(64 * 1024 * 1024);
});

test('a script that gives no byte is ended, however slowly those before came', async () => {
  const slow = 'for n in 1 2 3; do printf a; sleep 0.6; done; sleep 60';
  const chunks: string[] = [];
  const read = async () => {
    for await (const chunk of createFetcher(slow, {}, { silenceSeconds: 1 }).read(FILE, 0n, quiet()))
      chunks.push(String(chunk));
  };
  expect(await errorOf(read())).toMatchObject({
    errorClass: 'TRANSIENT',
    message: 'fetch of "/a" from byte 0: no byte came for 1 s',
  });
  expect(chunks.join('')).toBe('aaa');
  await waitForNoScript(`TAPES=${root}`);
});

test('a reader that takes its time is no silence of the script', async () => {
  const reading = createFetcher('printf a; sleep 0.7; printf b', {}, { silenceSeconds: 0.5 });
  const chunks: string[] = [];
  const began = Date.now();
  for await (const chunk of reading.read(FILE, 0n, quiet())) {
    chunks.push(String(chunk));
    if (chunks.length === 1) await waitFor('the second half', async () => Date.now() - began > 1000);
  }
  expect(chunks.join('')).toBe('ab');
});

test('a call that takes too long is ended', async () => {
  const script = sh('sleep 60');
  const staging = createFetcher('', { stage: script }, { callSeconds: 0.1 });
  expect(await errorOf(staging.stage([FILE], quiet()))).toMatchObject({
    constructor: LibraryError,
    message: 'stage: it took longer than 0.1 s',
  });
  const drives = createReader('', { mount: script }, { mountSeconds: 0.1 });
  expect(await errorOf(drives.mount('V1', 'drive-1', quiet()))).toMatchObject({
    constructor: TapeError,
    message: 'mount of "V1": it took longer than 0.1 s',
  });
  const reader = createReader('', { unmount: script }, { unmountSeconds: 0.1 });
  const volume = await reader.mount('V1', 'drive-1', quiet());
  expect(await errorOf(volume.unmount())).toMatchObject({ message: 'unmount of "V1": it took longer than 0.1 s' });
  await waitForNoScript(`TAPES=${root}`);
});

test('what is aborted ends with all its processes, those that do not listen to SIGTERM as well', async () => {
  const mark = path.join(root, 'deaf');
  const deaf = `trap '' TERM; sh -c "trap '' TERM; sleep 61; sleep 61" & echo "$$" > '${mark}'; sleep 61; sleep 61`;
  const abort = new AbortController();
  const reason = new Error('stop');
  const staging = createFetcher('', { stage: sh(deaf) }, { killSeconds: 0.2 });
  const calling = staging.stage([FILE], abort.signal);
  await waitFor('the script to be deaf', async () => readLines(mark).length === 1);
  expect(findScripts(`TAPES=${root}`).length).toBeGreaterThan(process.platform === 'linux' ? 1 : -1);
  abort.abort(reason);
  expect(await errorOf(calling)).toBe(reason);
  expect(findScripts(`TAPES=${root}`)).toEqual([]);
});

test('a script that is told to end may clean up', async () => {
  const mark = path.join(root, 'cleaned');
  const abort = new AbortController();
  const tidy = `trap 'echo cleaned > "${mark}"; exit 0' TERM; printf ready; while :; do sleep 0.05; done`;
  const reading = createFetcher(tidy).read(FILE, 0n, abort.signal)[Symbol.asyncIterator]();
  expect(String((await reading.next()).value)).toBe('ready');
  abort.abort(new Error('stop'));
  await errorOf(reading.next());
  expect(readFileSync(mark, 'utf8')).toBe('cleaned\n');
});

test('what a script leaves in its group ends with it, and what it sends away from there is not waited for', async () => {
  const mark = path.join(root, 'daemon');
  const daemon = `setsid sh -c 'echo $$ > "${mark}"; exec sleep 60' &`;
  const script = `sleep 62 & ${daemon} while [ ! -s '${mark}' ]; do sleep 0.01; done`;
  await createReader('', { mount: sh(script) }).mount('V1', 'drive-1', quiet());
  const pid = Number(readFileSync(mark, 'utf8'));
  await waitFor('the rest to end', async () => findScripts(`TAPES=${root}`).every((each) => each === pid));
  process.kill(pid, 'SIGKILL'); // fails when it did not live on
  await waitForNoScript(`TAPES=${root}`);
});

test('what a script has sent away may hold its output open, which is not waited for', async () => {
  const mark = path.join(root, 'holder');
  const daemon = `setsid sh -c 'echo $$ > "${mark}"; exec sleep 60' & while [ ! -s '${mark}' ]; do sleep 0.01; done`;
  const library = createFetcher(`${daemon}; printf 0123456789`, {
    stage: sh(`${daemon}; cat > /dev/null; echo '{"id":"one"}'`),
    callSeconds: 60,
  });
  const end = () => {
    process.kill(Number(readFileSync(mark, 'utf8')), 'SIGKILL'); // fails when it did not live on
    rmSync(mark);
  };
  expect((await library.stage([FILE], quiet())).id).toBe('one');
  end();
  expect((await readStaged(library, FILE)).toString()).toBe('0123456789');
  end();
  await waitForNoScript(`TAPES=${root}`);
});
