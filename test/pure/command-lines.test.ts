/** What scripts say of files, and what the settings of their libraries may be. */
import { afterAll, expect, test } from 'vitest';
import { SettingsError } from '../../src/errors.js';
import { LibraryError } from '../../src/tape/backend.js';
import { command, commandStaging } from '../../src/tape/command/index.js';
import { createStaging, waitForNoScript } from '../support/command-bench.js';
import { errorOf, staged } from '../support/staging-bench.js';
import { quiet } from '../support/tape-backend.js';

const mark = `TAPES=/nowhere/${process.pid}`;
afterAll(async () => await waitForNoScript(mark));

const SAY = 'cat > /dev/null; n=$1; while [ "$n" -gt 0 ]; do shift; printf "%s\\n" "$1"; n=$((n - 1)); done;';

/** A library each of whose scripts says these lines, after it has read all that it was told. */
function createSaying(lines: readonly string[], after = 'exit 0') {
  const say = ['/bin/sh', '-c', `${SAY} ${after}`, 'script', String(lines.length), ...lines];
  return createStaging({ stage: say, poll: say, fetch: say, release: say, environment: [mark] });
}

const FILES = [staged('/a'), staged('/b "quoted"')];
const DEMAND = { id: 'seven', files: FILES };

test('files are told as lines of JSON, with integers that are exact', async () => {
  const echo = ['/bin/sh', '-c', 'cat >&2; exit 100', 'script'];
  const library = createStaging({ stage: echo, poll: echo, fetch: echo, environment: [mark] });
  const file = { path: '/two\nlines é', volume: 'V 1', position: 2n ** 62n + 1n, size: 2n ** 60n + 1n };
  const error = await errorOf(library.stage([staged('/first'), file], quiet()));
  const line = '{"path":"/two\\nlines é","volume":"V 1","position":4611686018427387905,"size":1152921504606846977}';
  expect(error).toMatchObject({ message: `stage: ${line} (exit code 100)` });
});

test('a demand has the name that the script gave it, which later calls are given', async () => {
  const library = createSaying(['{"id":"seven of \\"nine\\""}']);
  expect(await library.stage(FILES, quiet())).toEqual({ id: 'seven of "nine"', known: [] });
  const show = ['/bin/sh', '-c', 'echo "$#:$1:$2" >&2; exit 100', 'script'];
  const shown = createStaging({ stage: show, poll: show, fetch: show, release: show, environment: [mark] });
  expect(await errorOf(shown.poll(DEMAND, quiet()))).toMatchObject({ message: 'poll: 2:--:seven (exit code 100)' });
  expect(await errorOf(shown.release({ ...DEMAND, id: null }, quiet()))).toMatchObject({
    message: 'release: 1:--: (exit code 100)',
  });
});

test('what is said of files is told as it is, the last of each, and nothing of those that were left out', async () => {
  const library = createSaying([
    '{"path":"/a","state":"waiting"}',
    '',
    ' {"path":"/b \\"quoted\\"", "state":"failed", "class":"MEDIA", "message":"worn\\u0007 out", "more":[1]}',
    '{"path":"/a","state":"ready","until":"2030-01-31T12:00:00+02:00"}',
  ]);
  const states = await library.poll(DEMAND, quiet());
  expect(states).toEqual([
    { path: '/a', state: 'ready', until: new Date('2030-01-31T10:00:00Z') },
    {
      path: '/b "quoted"',
      state: 'failed',
      error: expect.objectContaining({ errorClass: 'MEDIA', message: 'worn  out' }),
    },
  ]);
  expect(await createSaying(['{"path":"/a","state":"forgotten"}']).poll(DEMAND, quiet())).toEqual([
    { path: '/a', state: 'forgotten' },
  ]);
  expect(await createSaying(['{"path":"/a","state":"waiting"}']).stage(FILES, quiet())).toEqual({
    id: null,
    known: [],
  });
  expect(await createSaying(['{"path":"/a","state":"kept","until":null}']).release(DEMAND, quiet())).toEqual([
    { path: '/a', until: null },
  ]);
});

const BROKEN: [what: 'stage' | 'poll' | 'release', line: string, problem: string][] = [
  ['poll', 'ready', 'a line is not a JSON object: "ready"'],
  ['poll', '["/a"]', 'a line is not a JSON object'],
  ['poll', '{"path":"/c","state":"ready"}', '"path" must be one of those that were asked for, not "/c"'],
  ['poll', '{"path":7,"state":"ready"}', 'not 7'],
  ['poll', '{"state":"ready"}', '"path" must be one of those that were asked for, not nothing'],
  ['poll', '{"path":"/a","state":"done"}', 'must be one of waiting, ready, failed, forgotten, not "done"'],
  ['stage', '{"path":"/a","state":"forgotten"}', 'must be one of waiting, ready, failed, not "forgotten"'],
  ['release', '{"path":"/a","state":"ready"}', 'must be one of kept, not "ready"'],
  ['poll', '{"path":"/a","state":"ready","until":"tomorrow"}', '"until" of "/a" must be a time'],
  ['poll', '{"path":"/a","state":"ready","until":1893456000}', 'not 1893456000'],
  ['poll', '{"path":"/a","state":"ready","until":"2030-13-31T12:00:00Z"}', 'not "2030-13-31T12:00:00Z"'],
  ['poll', '{"path":"/a","state":"failed"}', '"class" of "/a" must be one of TRANSIENT, PERMANENT'],
  ['stage', '{"id":""}', '"id" must be a text of 1 to 1000 characters, not ""'],
  ['stage', '{"id":"a\\u0000b"}', '"id" must be a text'],
  ['stage', '{"id":7}', 'not 7'],
];

test.each(BROKEN)('%s refuses the line %s', async (what, line, problem) => {
  const library = createSaying([line, '{"path":"/a","state":"ready"}']);
  const error = await errorOf(what === 'stage' ? library.stage(FILES, quiet()) : library[what](DEMAND, quiet()));
  expect(error).toBeInstanceOf(LibraryError);
  expect(error).toMatchObject({ errorClass: 'TRANSIENT', message: expect.stringContaining(problem) });
  expect((error as LibraryError).message).toMatch(new RegExp(`^${what}: its answer breaks the protocol: `));
});

test('a script that fails is believed before the lines that it has said', async () => {
  expect(await errorOf(createSaying(['usage: poll'], 'exit 105').poll(DEMAND, quiet()))).toMatchObject({
    message: 'poll: it said nothing (exit code 105)',
  });
});

test('a script need not read what it is told', async () => {
  const deaf = ['/bin/sh', '-c', 'exec 0<&-; exit 0'];
  const library = createStaging({ stage: deaf, poll: deaf, fetch: deaf, environment: [mark] });
  const files = Array.from({ length: 1000 }, (_, index) => staged(`/${'x'.repeat(1000)}/${index}`));
  expect(await library.stage(files, quiet())).toEqual({ id: null, known: [] });
});

test('an answer without end, and a line without end, take no memory', async () => {
  const many = ['/bin/sh', '-c', `yes '{"path":"/a","state":"waiting","more":"${'x'.repeat(3000)}"}' | head -n 30000`];
  const long = ['/bin/sh', '-c', 'yes xxxxxxxxxxxxxxxx | head -c 150000000 | tr -d "\\n"'];
  const library = createStaging({ stage: long, poll: many, fetch: many, environment: [mark] });
  const before = process.memoryUsage().rss;
  expect(await library.poll(DEMAND, quiet())).toEqual([{ path: '/a', state: 'waiting' }]);
  expect(await errorOf(library.stage(FILES, quiet()))).toMatchObject({
    message: expect.stringContaining('a line is longer than 65536 bytes'),
  });
  expect(process.memoryUsage().rss - before).toBeLessThan(110_000_000);
});

const DRIVES = { read: ['/bin/cat'] };
const STAGING = { stage: ['/bin/s'], poll: ['/bin/p'], fetch: ['/bin/f'] };

test('settings that are not given have their defaults', () => {
  expect(command.parse(DRIVES)).toEqual({
    ...{ mount: null, read: ['/bin/cat'], unmount: null },
    ...{ mountSeconds: 900, unmountSeconds: 900, silenceSeconds: 600, killSeconds: 10, environment: {} },
  });
  expect(commandStaging.parse({ ...STAGING, environment: ['A=b=c', 'D='] })).toEqual({
    ...{ stage: ['/bin/s'], poll: ['/bin/p'], fetch: ['/bin/f'], release: null, offsets: true },
    ...{ stageBatch: 1000, pollBatch: 1000, releaseBatch: 1000, pollSeconds: { least: 30, most: 600 } },
    ...{ callSeconds: 300, silenceSeconds: 600, killSeconds: 10, environment: { A: 'b=c', D: '' } },
  });
  expect(commandStaging.parse({ ...STAGING, pollLeastSeconds: 900 }).pollSeconds).toEqual({ least: 900, most: 900 });
});

test.each([
  [command, {}, 'read'],
  [command, { read: '/bin/cat' }, 'read'],
  [command, { read: ['bin/cat'] }, 'read'],
  [command, { read: [''] }, 'read'],
  [command, { ...DRIVES, mount: ['./mount'] }, 'mount'],
  [command, { ...DRIVES, mountSeconds: 0 }, 'mountSeconds'],
  [command, { ...DRIVES, silenceSeconds: 86_401 }, 'silenceSeconds'],
  [command, { ...DRIVES, stage: ['/bin/s'] }, 'stage'],
  [command, { ...DRIVES, environment: ['1A=b'] }, 'environment'],
  [command, { ...DRIVES, environment: ['HSI_PASSWORD=b'] }, 'environment'],
  [commandStaging, { ...STAGING, stageBatch: 10_001 }, 'stageBatch'],
  [commandStaging, { ...STAGING, fetch: undefined }, 'fetch'],
  [commandStaging, { ...STAGING, offsets: 'perhaps' }, 'offsets'],
])('the settings of %# are refused by the name of the one that is wrong', (kind, settings, setting) => {
  const parse = () => kind.parse(settings);
  expect(parse).toThrow(SettingsError);
  expect(parse).toThrow(expect.objectContaining({ setting }));
});

test('what an environment has that is not as it should be is told to nobody: it may be a secret', () => {
  const parse = () => command.parse({ ...DRIVES, environment: ['API-TOKEN=hush'] });
  expect(parse).toThrow(SettingsError);
  expect(parse).not.toThrow(/hush/);
});
