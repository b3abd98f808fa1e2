/** Settings of the library types `command` and `command-staging`, and the lines that their scripts read and write. */
import { afterAll, expect, test } from 'vitest';
import { SettingsError } from '../../src/core/errors.js';
import { command, commandStaging } from '../../src/tape/command/index.js';
import { LibraryError } from '../../src/tape/drive-library.js';
import { parseSettings } from '../../src/tape/kind.js';
import { createStaging, waitForNoScript } from '../support/command-bench.js';
import { expectFailure } from '../support/failure.js';
import { errorOf, staged } from '../support/staging-bench.js';
import { quiet } from '../support/tape-library.js';

const environment = [`TAPES=/nowhere/${process.pid}`];
afterAll(async () => await waitForNoScript(environment[0] ?? ''));

/** Creates a library that uses one shell script for all calls. */
function createScripted(text: string, ...args: string[]) {
  const script = ['sh', '-c', text, 'script', ...args];
  return createStaging({ stage: script, poll: script, fetch: script, release: script, environment });
}

const SAY = 'cat > /dev/null; n=$1; while [ "$n" -gt 0 ]; do shift; printf "%s\\n" "$1"; n=$((n - 1)); done;';

/** Creates a library whose scripts read their input and then write these lines. */
const createSaying = (lines: readonly string[], after = 'exit 0') =>
  createScripted(`${SAY} ${after}`, String(lines.length), ...lines);

const FILES = [staged('/a'), staged('/b "quoted"')];
const DEMAND = { id: 'seven', files: FILES };

test('a script reads files as lines of JSON with exact integers', async () => {
  const library = createScripted('cat >&2; exit 100');
  const file = { path: '/two\nlines é', volume: 'V 1', position: 2n ** 62n + 1n, size: 2n ** 60n + 1n };
  const line = '{"path":"/two\\nlines é","volume":"V 1","position":4611686018427387905,"size":1152921504606846977}';
  expect(await errorOf(library.stage([staged('/first'), file], quiet()))).toMatchObject({
    message: `stage: ${line} (exit code 100)`,
  });
});

test('later calls get the id that the stage script returned', async () => {
  const library = createSaying(['{"id":"seven of \\"nine\\""}']);
  expect(await library.stage(FILES, quiet())).toEqual({ id: 'seven of "nine"', known: [] });
  const shown = createScripted('echo "$#:$1:$2" >&2; exit 100');
  expect(await errorOf(shown.poll(DEMAND, quiet()))).toMatchObject({ message: 'poll: 2:--:seven (exit code 100)' });
  const release = shown.release({ ...DEMAND, id: null }, quiet());
  expect(await errorOf(release)).toMatchObject({ message: 'release: 1:--: (exit code 100)' });
});

test('the last line of each file counts; a file without one has no state', async () => {
  const library = createSaying([
    '{"path":"/a","state":"waiting"}',
    '',
    ' {"path":"/b \\"quoted\\"", "state":"failed", "class":"MEDIA", "message":"worn\\u0007 out", "more":[1]}',
    '{"path":"/a","state":"ready","until":"2030-01-31T12:00:00+02:00"}',
  ]);
  expect(await library.poll(DEMAND, quiet())).toEqual([
    { path: '/a', state: 'ready', until: new Date('2030-01-31T10:00:00Z') },
    {
      path: '/b "quoted"',
      state: 'failed',
      error: expect.objectContaining({ errorClass: 'MEDIA', message: 'worn  out' }),
    },
  ]);
  const [forgotten, waiting] = ['forgotten', 'waiting'].map((state) =>
    createSaying([`{"path":"/a","state":"${state}"}`]),
  );
  expect(await forgotten?.poll(DEMAND, quiet())).toEqual([{ path: '/a', state: 'forgotten' }]);
  expect(await waiting?.stage(FILES, quiet())).toEqual({ id: null, known: [] });
  const kept = createSaying(['{"path":"/a","state":"kept","until":null}']);
  expect(await kept.release(DEMAND, quiet())).toEqual([{ path: '/a', until: null }]);
});

test.each<[what: 'stage' | 'poll' | 'release', line: string, problem: string]>([
  ['poll', 'ready', 'a line is not a JSON object: "ready"'],
  ['poll', '["/a"]', 'a line is not a JSON object'],
  ['poll', '{"path":"/c","state":"ready"}', '"path" must be one of the requested paths, not "/c"'],
  ['poll', '{"path":7,"state":"ready"}', 'not 7'],
  ['poll', '{"state":"ready"}', '"path" must be one of the requested paths, not nothing'],
  ['poll', '{"path":"/a","state":"done"}', 'must be one of waiting, ready, failed, forgotten, not "done"'],
  ['stage', '{"path":"/a","state":"forgotten"}', 'must be one of waiting, ready, failed, not "forgotten"'],
  ['release', '{"path":"/a","state":"ready"}', 'must be one of kept, not "ready"'],
  ['poll', '{"path":"/a","state":"ready","until":"tomorrow"}', '"until" of "/a" must be a time'],
  ['poll', '{"path":"/a","state":"ready","until":1893456000}', 'not 1893456000'],
  ['poll', '{"path":"/a","state":"ready","until":"2030-13-31T12:00:00Z"}', 'not "2030-13-31T12:00:00Z"'],
  ['poll', '{"path":"/a","state":"failed"}', '"class" of "/a" must be one of TRANSIENT, PERMANENT'],
  ['stage', '{"id":""}', '"id" must be a string of 1 to 1000 characters, not ""'],
  ['stage', '{"id":"a\\u0000b"}', '"id" must be a string'],
  ['stage', '{"id":7}', 'not 7'],
])('%s fails the library with the line %s', async (what, line, problem) => {
  const library = createSaying([line, '{"path":"/a","state":"ready"}']);
  const call = what === 'stage' ? library.stage(FILES, quiet()) : library[what](DEMAND, quiet());
  const error = (await errorOf(call)) as LibraryError;
  expect(error).toMatchObject({ constructor: LibraryError, errorClass: 'TRANSIENT' });
  expect(error.message).toContain(problem);
  expect(error.message).toMatch(new RegExp(`^${what}: the output of the script violates the protocol: `));
});

test('the exit code of a script counts before its lines', async () => {
  const poll = createSaying(['usage: poll'], 'exit 105').poll(DEMAND, quiet());
  await expectFailure(poll, LibraryError, 'TRANSIENT', /^poll: no output \(exit code 105\)$/);
});

test('a script need not read its input', async () => {
  const files = Array.from({ length: 1000 }, (_, index) => staged(`/${'x'.repeat(1000)}/${index}`));
  const library = createScripted('exec 0<&-; exit 0');
  expect(await library.stage(files, quiet())).toEqual({ id: null, known: [] });
});

test('a very long answer fails the library, and is not kept in memory', async () => {
  const long = createScripted('yes xxxxxxxxxxxxxxxx | head -c 150000000');
  const before = process.memoryUsage().rss;
  await expectFailure(long.stage(FILES, quiet()), LibraryError, 'TRANSIENT', 'more than 33554432 bytes of output');
  expect(process.memoryUsage().rss - before).toBeLessThan(110_000_000);
});

const DRIVES = { read: ['cat'] };
const STAGING = { stage: ['s'], poll: ['p'], fetch: ['f'] };

test('missing settings have their defaults', () => {
  expect(parseSettings(command.settings, DRIVES)).toEqual({
    ...DRIVES,
    ...{ mountSeconds: 900, unmountSeconds: 900, silenceSeconds: 600, killSeconds: 10, environment: [] },
  });
  expect(parseSettings(commandStaging.settings, { ...STAGING, environment: ['TAPE_A=b=c', 'TAPED='] })).toEqual({
    ...{ ...STAGING, offsets: true },
    ...{ stageBatch: 1000, pollBatch: 1000, releaseBatch: 1000, pollLeastSeconds: 30, pollMostSeconds: 600 },
    ...{ callSeconds: 300, silenceSeconds: 600, killSeconds: 10 },
    environment: [
      ['TAPE_A', 'b=c'],
      ['TAPED', ''],
    ],
  });
});

test.each([
  [command, { read: undefined }, 'read'],
  [command, { read: 'cat' }, 'read'],
  [command, { read: ['bin/cat'] }, 'read'],
  [command, { read: [''] }, 'read'],
  [command, { mount: ['./mount'] }, 'mount'],
  [command, { mountSeconds: 0 }, 'mountSeconds'],
  [command, { silenceSeconds: 86_401 }, 'silenceSeconds'],
  [command, { stage: ['s'] }, 'stage'],
  [command, { environment: ['1A=b'] }, 'environment'],
  [command, { environment: ['TAPE_PASSWORD=b'] }, 'environment'],
  [commandStaging, { stageBatch: 10_001 }, 'stageBatch'],
  [commandStaging, { fetch: undefined }, 'fetch'],
  [commandStaging, { offsets: 'perhaps' }, 'offsets'],
])('the error of a wrong setting names it: %#', (kind, settings, setting) => {
  const parse = () => parseSettings<unknown>(kind.settings, { ...(kind === command ? DRIVES : STAGING), ...settings });
  expect(parse).toThrow(SettingsError);
  expect(parse).toThrow(expect.objectContaining({ setting }));
});

test.each(['/bin/cat', '..', '../cat', '.cat', 'a/cat', 'cat.hosts', '-cat'])(
  'the program %s is refused, because it is no plain name',
  (program) => {
    const parse = () => parseSettings(command.settings, { read: [program] });
    const message = `read must begin with the file name of a program in TAPEGATE_LIBRARY_DIR/programs, not "${program}"`;
    expect(parse).toThrow(expect.objectContaining({ setting: 'read', message }));
  },
);

test.each(['LD_PRELOAD', 'PATH', 'BASH_ENV', 'NODE_OPTIONS', 'TAPEGATE_LIBRARY'])(
  'the variable %s is refused, because it could run another program',
  (name) => {
    const parse = () => parseSettings(command.settings, { ...DRIVES, environment: [`${name}=/tmp/a`] });
    expect(parse).toThrow(`must have variables whose names begin with TAPE, such as TAPE_ROOT, not ${name}`);
  },
);

test('the error of a wrong variable does not contain its value, which may be a secret', () => {
  const parse = () => parseSettings(command.settings, { ...DRIVES, environment: ['API-TOKEN=hush'] });
  expect(parse).toThrow(SettingsError);
  expect(parse).not.toThrow(/hush/);
});
