/** How the library types `command` and `command-staging` run scripts: exit codes, output, time limits and signals. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, expect, test, vi } from 'vitest';
import { isExhausted, TapeError } from '../../src/core/errors.js';
import { startScript } from '../../src/tape/command/script.js';
import { LibraryError } from '../../src/tape/drive-library.js';
import { createDrives, createStaging, findScripts, readLines, waitForNoScript } from '../support/command-bench.js';
import { expectFailure } from '../support/failure.js';
import { addProgram } from '../support/library-dir.js';
import { errorOf, readStaged, staged } from '../support/staging-bench.js';
import { quiet } from '../support/tape-library.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';

const root = makeTempDir('scripts');
const environment = [`TAPES=${root}`];
afterEach(async () => {
  vi.useRealTimers();
  await waitForNoScript(`TAPES=${root}`);
});
afterAll(() => rmSync(root, { recursive: true }));

/** Returns a setting that runs shell code. The code's arguments begin after the `--` that Tapegate adds. */
const sh = (text: string) => ['sh', '-c', `shift; ${text}`, 'script'];

function createFetcher(text: string, settings: Record<string, unknown> = {}, limits: Record<string, number> = {}) {
  const none = sh('exit 0');
  return createStaging({ stage: none, poll: none, fetch: sh(text), environment, ...settings }, limits);
}

function createReader(text: string, settings: Record<string, unknown> = {}, limits: Record<string, number> = {}) {
  return createDrives({ read: sh(text), environment, ...settings }, limits);
}

async function readDrive(text: string): Promise<string> {
  const volume = await createReader(text).mount('V1', 'drive-1', quiet());
  const chunks: Uint8Array[] = [];
  for await (const chunk of volume.read({ path: '/a', position: 3n, size: 10n }, quiet())) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

const FILE = staged('/a', 10);
const same = (name: string) => [name, name, name, name] as const;

test.each<[code: number, mount: string, read: string, stage: string, fetch: string]>([
  ...(
    [
      [100, 'TRANSIENT'],
      [101, 'PERMANENT'],
      [102, 'MEDIA'],
      [103, 'SPACE'],
      [104, 'POLICY'],
      [1, 'TRANSIENT'],
      [255, 'TRANSIENT'],
    ] as const
  ).map(([code, is]): [number, string, string, string, string] => [
    code,
    `TapeError ${is}`,
    `TapeError ${is}`,
    `LibraryError ${is}`,
    `TapeError ${is}`,
  ]),
  [105, ...same('LibraryError TRANSIENT')],
  [106, ...same('RetryLaterError TRANSIENT')],
  [107, 'TapeError TRANSIENT', 'TapeError TRANSIENT', 'LibraryError TRANSIENT', 'NotReadyError TRANSIENT'],
  [108, 'TapeError MEDIA', 'VolumeError MEDIA', 'LibraryError MEDIA', 'TapeError MEDIA'],
  [109, 'DriveError TRANSIENT', 'DriveError TRANSIENT', 'LibraryError TRANSIENT', 'TapeError TRANSIENT'],
])(
  'exit code %i decides the type of the error, and the last line of stderr is its message',
  async (code, ...expected) => {
    const script = `echo "first" >&2; printf 'the robot\\033is stuck\\n\\n' >&2; exit ${code}`;
    const staging = createFetcher(script, { stage: sh(script) });
    const errors = [
      await errorOf(createDrives({ mount: sh(script), read: sh(script), environment }).mount('V1', 'drive-1', quiet())),
      await errorOf(readDrive(script)),
      await errorOf(staging.stage([FILE], quiet())),
      await errorOf(readStaged(staging, FILE)),
    ] as TapeError[];
    expect(errors.map((error) => `${error.constructor.name} ${error.errorClass}`)).toEqual(expected);
    for (const { message } of errors) {
      expect(message).toMatch(new RegExp(`: the robot is stuck \\(exit code ${code}\\)$`));
    }
  },
);

test.each([
  ['retry-after: 42', 42],
  ['Retry-After: 999999', 3600],
  ['retry-after: 0', 1],
  ['retry-after: soon', 60],
])('exit code 106 with the line %j asks for a retry after %i s', async (line, seconds) => {
  const library = createFetcher('exit 0', { stage: sh(`echo "${line}" >&2; echo "too many requests" >&2; exit 106`) });
  expect(await errorOf(library.stage([FILE], quiet()))).toMatchObject({
    retryAfterSeconds: seconds,
    message: expect.stringContaining('too many requests'),
  });
});

test.each([
  ['exit 3', 'no output (exit code 3)'],
  ['echo "going" >&2; kill -9 $$', 'going (ended by SIGKILL)'],
])('the error of `%s` is "%s"', async (script, says) => {
  expect(await errorOf(readDrive(script))).toMatchObject({
    message: `read of "/a" from volume "V1", position 3: ${says}`,
  });
});

test('the bytes before a failure are read', async () => {
  const chunks: Uint8Array[] = [];
  const read = async () => {
    for await (const chunk of createFetcher('printf half; exit 102').read(FILE, 0n, quiet())) chunks.push(chunk);
  };
  expect(await errorOf(read())).toMatchObject({ errorClass: 'MEDIA' });
  expect(Buffer.concat(chunks).toString()).toBe('half');
});

test('a program that cannot be started fails the library and no file', async () => {
  const plain = path.join(root, 'plain-file');
  writeFileSync(plain, 'no program');
  for (const program of [addProgram('nowhere', '/nowhere/script'), addProgram('plain', plain), 'no-such-program']) {
    const error = await errorOf(readStaged(createFetcher('', { fetch: [program] }), FILE));
    expect(error).toMatchObject({ constructor: LibraryError, errorClass: 'POLICY' });
    expect((error as Error).message).toContain(program);
    expect(isExhausted(error)).toBe(false);
  }
});

test('a script gets the documented environment and that of the settings, and nothing else', async () => {
  const names = (text: string) => text.split('\n').flatMap((line) => /^([A-Z_]+)=/.exec(line)?.[1] ?? []);
  const found = names(await readDrive('exec env')).filter((name) => !['PWD', 'SHLVL', '_', 'OLDPWD'].includes(name));
  expect(found.sort()).toEqual(['HOME', 'LANG', 'PATH', 'TAPEGATE_LIBRARY', 'TAPES', 'TZ']);
  expect(await readDrive('echo "$TAPEGATE_LIBRARY $LANG $(pwd)"')).toBe('scripts C.UTF-8 /\n');
});

test('arguments are passed without a shell, and never as options', async () => {
  const print = (name: string) => ['node', '-e', `console.log(JSON.stringify(process.argv.slice(1)))`, name];
  const odd = `-n $(exit 1) "two" 'three'\n*`;
  const volume = await createDrives({ read: print('read') }).mount(odd, 'drive-1', quiet());
  let text = '';
  for await (const chunk of volume.read({ path: `/${odd}`, position: 3n, size: 2n ** 60n }, quiet())) text += chunk;
  expect(JSON.parse(text)).toEqual(['read', '--', `/${odd}`, odd, '3', String(2n ** 60n), 'drive-1']);
  const file = { path: `/${odd}`, volume: odd, position: null, size: 7n };
  const fetched = await readStaged(createFetcher('', { fetch: print('fetch') }), file, 5n);
  expect(JSON.parse(String(fetched))).toEqual(['fetch', '--', `/${odd}`, '5', odd, '', '7']);
});

test('endless output on stderr is not kept in memory; the message is its last line', async () => {
  const flood = `yes 'a line of the flood' | head -c 150000000 >&2; printf 'x%.0s' $(seq 5000) >&2; exit 102`;
  const before = process.memoryUsage().rss;
  const { message } = (await errorOf(readDrive(flood))) as TapeError;
  expect(message.length).toBeLessThan(1200);
  expect(message).toContain('xxxxx');
  expect(process.memoryUsage().rss - before).toBeLessThan(110_000_000);
});

test('a script waits for its reader', async () => {
  const log = path.join(root, 'written');
  const script = `for n in $(seq 1 64); do head -c 1048576 /dev/zero; echo "$n" >> '${log}'; done`;
  const reading = createFetcher(script).read(FILE, 0n, quiet())[Symbol.asyncIterator]();
  const first = await reading.next();
  let last = -1;
  const written = await waitFor('the script to wait', async () => {
    const before = last;
    last = readLines(log).length;
    return last === before && { count: last };
  });
  expect(written.count).toBeLessThan(8);
  let total = first.value?.length ?? 0;
  for (let next = await reading.next(); !next.done; next = await reading.next()) total += next.value.length;
  expect(total).toBe(64 * 1024 * 1024);
});

test('the output of a script that has ended is still there for its reader', async () => {
  const script = startScript({ command: ['/bin/echo', 'some bytes'], environment: {}, isRead: true, killMs: 1000 });
  await script.finish();
  const chunks: Uint8Array[] = [];
  for await (const chunk of script.output()) chunks.push(chunk);
  expect(Buffer.concat(chunks).toString()).toBe('some bytes\n');
});

test('a script is ended after silenceSeconds without a byte', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const mark = path.join(root, 'silent');
  const slow = `for n in 1 2 3; do until [ -e '${mark}'$n ]; do sleep 0.01; done; printf a; done; sleep 60`;
  const reading = createFetcher(slow, {}, { silenceSeconds: 60 }).read(FILE, 0n, quiet())[Symbol.asyncIterator]();
  for (const n of [1, 2, 3]) {
    const next = reading.next();
    await vi.advanceTimersByTimeAsync(40_000); // the pauses together exceed the limit
    writeFileSync(mark + n, '');
    expect(String((await next).value)).toBe('a');
  }
  const last = reading.next();
  const failure = expectFailure(last, TapeError, 'TRANSIENT', /^fetch of "\/a" from byte 0: no output for 60 s$/);
  await vi.advanceTimersByTimeAsync(60_000);
  await failure;
});

test('a slow reader does not use up silenceSeconds', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const mark = path.join(root, 'half');
  const script = `printf a; until [ -e '${mark}' ]; do sleep 0.01; done; printf b`;
  const chunks: string[] = [];
  for await (const chunk of createFetcher(script, {}, { silenceSeconds: 60 }).read(FILE, 0n, quiet())) {
    chunks.push(String(chunk));
    await vi.advanceTimersByTimeAsync(100_000);
    writeFileSync(mark, '');
  }
  expect(chunks.join('')).toBe('ab');
});

test('a call that takes longer than its limit is ended', async () => {
  const script = sh('sleep 60');
  const staging = createFetcher('', { stage: script }, { callSeconds: 0.1 });
  const staged = staging.stage([FILE], quiet());
  await expectFailure(staged, LibraryError, 'TRANSIENT', /^stage: the script did not finish within 0.1 s$/);
  const mounted = createReader('', { mount: script }, { mountSeconds: 0.1 }).mount('V1', 'drive-1', quiet());
  await expectFailure(mounted, TapeError, 'TRANSIENT', /^mount of "V1": the script did not finish within 0.1 s$/);
  const volume = await createReader('', { unmount: script }, { unmountSeconds: 0.1 }).mount('V1', 'drive-1', quiet());
  expect(await errorOf(volume.unmount())).toMatchObject({
    message: 'unmount of "V1": the script did not finish within 0.1 s',
  });
});

test('an aborted script ends with all its processes, also those that ignore SIGTERM', async () => {
  const mark = path.join(root, 'deaf');
  const deaf = `trap '' TERM; sh -c "trap '' TERM; sleep 61; sleep 61" & echo "$$" > '${mark}'; sleep 61; sleep 61`;
  const abort = new AbortController();
  const reason = new Error('stop');
  const calling = createFetcher('', { stage: sh(deaf) }, { killSeconds: 0.2 }).stage([FILE], abort.signal);
  await waitFor('the script to ignore SIGTERM', async () => readLines(mark).length === 1);
  expect(findScripts(`TAPES=${root}`).length).toBeGreaterThan(process.platform === 'linux' ? 1 : -1);
  abort.abort(reason);
  expect(await errorOf(calling)).toBe(reason);
  expect(findScripts(`TAPES=${root}`)).toEqual([]);
});

test('a script may clean up after SIGTERM', async () => {
  const mark = path.join(root, 'cleaned');
  const abort = new AbortController();
  const tidy = `trap 'echo cleaned > "${mark}"; exit 0' TERM; printf ready; while :; do sleep 0.05; done`;
  const reading = createFetcher(tidy).read(FILE, 0n, abort.signal)[Symbol.asyncIterator]();
  expect(String((await reading.next()).value)).toBe('ready');
  abort.abort(new Error('stop'));
  await errorOf(reading.next());
  expect(readFileSync(mark, 'utf8')).toBe('cleaned\n');
});

/**
 * Returns shell code that starts a process in a new session and writes its id to `mark`.
 * The process inherits the script's output.
 */
const daemon = (mark: string) =>
  `setsid sh -c 'echo $$ > "${mark}"; exec sleep 60' & while [ ! -s '${mark}' ]; do sleep 0.01; done`;

test('processes in the group of a script end with it, and those in another session do not', async () => {
  const mark = path.join(root, 'daemon');
  await createReader('', { mount: sh(`sleep 62 & ${daemon(mark)}`) }).mount('V1', 'drive-1', quiet());
  const pid = Number(readFileSync(mark, 'utf8'));
  await waitFor('the rest to end', async () => findScripts(`TAPES=${root}`).every((each) => each === pid));
  process.kill(pid, 'SIGKILL'); // kill throws if the process has ended
});

test('a call does not wait for a process in another session that holds its output open', async () => {
  const mark = path.join(root, 'holder');
  const stage = sh(`${daemon(mark)}; cat > /dev/null; echo '{"id":"one"}'`);
  const library = createFetcher(`${daemon(mark)}; printf 0123456789`, { stage, callSeconds: 60 });
  const end = () => {
    process.kill(Number(readFileSync(mark, 'utf8')), 'SIGKILL'); // kill throws if the process has ended
    rmSync(mark);
  };
  expect((await library.stage([FILE], quiet())).id).toBe('one');
  end();
  expect((await readStaged(library, FILE)).toString()).toBe('0123456789');
  end();
});
