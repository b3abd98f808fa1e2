/** What the kind `wlcg` makes of the many forms in which servers answer. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { TapeError } from '../../src/errors.js';
import type { FileState } from '../../src/tape/staging.js';
import { errorOf, staged } from '../support/staging-bench.js';
import { quiet } from '../support/tape-backend.js';
import { createWlcgBench, type WlcgBench } from '../support/wlcg-bench.js';

let bench: WlcgBench;

beforeEach(async () => {
  bench = await createWlcgBench('eos', { settings: { diskLifetime: 'P1D' } });
});

afterEach(() => bench.close());

/** Of a state, what can be compared at a glance. */
function glance(state: FileState): string {
  if (state.state === 'failed') return `${state.path} ${state.error.errorClass}: ${state.error.message}`;
  const until = state.state === 'ready' && state.until ? ` until ${state.until.toISOString()}` : '';
  return `${state.path} ${state.state}${until}`;
}

/** What a poll makes of an answer, where files are as `localities` says. */
async function judge(answer: unknown, localities: unknown[] = [], paths = ['/a']): Promise<string[]> {
  bench.server.onCall = (kind) => {
    if (kind === 'poll') return { status: 200, body: answer };
    return kind === 'archiveinfo' ? { status: 200, body: localities } : undefined;
  };
  const states = await bench.library.poll({ id: 'one', files: paths.map((path) => staged(path, 7)) }, quiet());
  return states.map(glance);
}

const at = (locality: string) => [{ path: '/a', locality, error: null, checksum: 'new' }];

test.each<[string, object, string[]]>([
  ['onDisk true', { onDisk: true }, ['/a ready']],
  ['onDisk false', { onDisk: false }, ['/a waiting']],
  ['onDisk beside null fields', { onDisk: true, error: null, state: null, startedAt: null }, ['/a ready']],
  ['an empty error', { onDisk: true, error: '' }, ['/a ready']],
  ['SUBMITTED', { state: 'SUBMITTED' }, ['/a waiting']],
  ['STARTED', { state: 'STARTED', startedAt: 0 }, ['/a waiting']],
  ['a state of later versions', { state: 'REPLICATING' }, ['/a waiting']],
  ['no word at all', {}, ['/a waiting']],
  ['COMPLETED', { state: 'COMPLETED' }, ['/a ready']],
  ['completed in small letters', { state: 'completed', finishedAt: null }, ['/a ready']],
  ['a time in seconds', { state: 'COMPLETED', finishedAt: 1_800_000_000 }, ['/a ready until 2027-01-16T08:00:00.000Z']],
  [
    'a time in milliseconds',
    { state: 'COMPLETED', finishedAt: 1_800_000_000_000 },
    ['/a ready until 2027-01-16T08:00:00.000Z'],
  ],
  ['a time that is nought', { state: 'COMPLETED', finishedAt: 0 }, ['/a ready']],
  ['FAILED', { state: 'FAILED' }, ['/a TRANSIENT: "/a" could not be staged: the library does not say why']],
  ['CANCELLED', { state: 'CANCELLED' }, ['/a TRANSIENT: "/a" could not be staged: the library says CANCELLED']],
  ['CANCELED with one L', { state: 'CANCELED' }, ['/a TRANSIENT: "/a" could not be staged: the library says CANCELED']],
  ['SKIPPED', { state: 'SKIPPED' }, ['/a TRANSIENT: "/a" could not be staged: the library says SKIPPED']],
  [
    'an error beside onDisk',
    { onDisk: false, error: 'drive is down' },
    ['/a TRANSIENT: "/a" could not be staged: drive is down'],
  ],
  [
    'an error of the medium',
    { error: 'Input/output error' },
    ['/a MEDIA: "/a" could not be staged: Input/output error'],
  ],
  ['an error of rights', { error: 'Permission denied' }, ['/a POLICY: "/a" could not be staged: Permission denied']],
  [
    'a full quota',
    { error: 'the quota has no room for it' },
    ['/a SPACE: "/a" could not be staged: the quota has no room for it'],
  ],
  [
    'a full disk',
    { error: 'No space left on device' },
    ['/a SPACE: "/a" could not be staged: No space left on device'],
  ],
])('%s of a file that is on tape', async (_what, file, expected) => {
  expect(await judge({ id: 'one', createdAt: 1, files: [{ path: '/a', ...file }] }, at('TAPE'))).toEqual(expected);
});

test.each<[string, object[], string[]]>([
  ['DISK', at('DISK'), ['/a ready']],
  ['disk_and_tape in small letters', at('disk_and_tape'), ['/a ready']],
  ['LOST', at('LOST'), ['/a PERMANENT: "/a" is lost there: it broke']],
  ['UNAVAILABLE', at('UNAVAILABLE'), ['/a TRANSIENT: "/a" is not available for now: it broke']],
  ['NONE', at('NONE'), ['/a PERMANENT: "/a" has no bytes there, as a folder or an empty file: it broke']],
  [
    'no such file',
    [{ path: '/a', error: 'No such file or directory' }],
    ['/a PERMANENT: "/a" cannot be had: it broke; No such file or directory'],
  ],
  ['nothing', [], ['/a TRANSIENT: "/a" could not be staged: it broke']],
])('a file that has failed is asked for its locality: %s', async (_what, localities, expected) => {
  expect(await judge({ files: [{ path: '/a', state: 'FAILED', error: 'it broke' }] }, localities)).toEqual(expected);
});

test('a path that is missing from an answer is what its locality says, and else it is left out', async () => {
  const localities = [
    { path: '/on-disk', locality: 'DISK_AND_TAPE' },
    { path: '/on-tape', locality: 'TAPE' },
    { path: '/lost', locality: 'LOST' },
  ];
  const paths = ['/on-disk', '/on-tape', '/lost', '/untold'];
  const expected = ['/on-disk ready', '/lost PERMANENT: "/lost" is lost there'];
  expect(await judge({ files: [] }, localities, paths)).toEqual(expected);
  expect(await judge({ files: null }, localities, paths)).toEqual(expected);
});

test('paths are those that were given, whatever form the server gives them', async () => {
  const files = [
    { path: '//a//b/', onDisk: true },
    { path: '/c', onDisk: false },
    { path: 7, onDisk: true },
    null,
    { path: '/of-nobody', onDisk: true },
  ];
  expect(await judge({ files }, [], ['/a/b', '/a//b', '/c/'])).toEqual(['/a/b ready', '/a//b ready', '/c/ waiting']);
});

test('an answer that is no JSON, or has no end, fails the call and nothing else', async () => {
  const calls = (id: string) => bench.library.poll({ id, files: [staged('/a')] }, quiet());
  bench.server.onCall = () => ({ status: 200, headers: { 'content-encoding': 'identity' } });
  expect(await errorOf(calls('one'))).toMatchObject({
    errorClass: 'TRANSIENT',
    message: expect.stringMatching(/what is no JSON: ""$/),
  });
  bench.server.onCall = () => ({ status: 200, body: { files: 'x'.repeat(33 * 1024 * 1024) } });
  expect(await errorOf(calls('one'))).toMatchObject({ message: expect.stringMatching(/more than 33554432 bytes$/) });
  for (const body of [null, 7, 'text', [], { files: 7 }]) {
    expect(await judge(body)).toEqual([]);
  }
});

test.each<[number, object, object, string]>([
  [500, {}, { title: 'broken', detail: 'badly' }, 'answers 500: broken: badly'],
  [400, { title: 'Bad Request', detail: 'in headers' }, {}, 'answers 400: Bad Request: in headers'],
  [502, { 'content-type': 'text/html' }, { html: 1 }, 'answers 502: Bad Gateway'],
  [403, {}, { title: 'Forbidden', detail: 'Forbidden' }, 'answers 403: Forbidden'],
])('a refusal %i is told in the words of the server', async (status, headers, body, words) => {
  bench.server.onCall = () => ({ status, headers: headers as Record<string, string>, body });
  const error = await errorOf(
    bench.library.stage([staged('/a')], quiet()).then(({ known }) => Promise.reject(known.map(glance).join())),
  );
  expect(error instanceof TapeError ? error.message : error).toContain(words);
});

test.each([
  ['429', 429, { 'retry-after': '9' }, 9],
  ['429 that does not say when', 429, {}, 60],
  ['503 with a time', 503, { 'retry-after': new Date(Date.now() + 86_400_000).toUTCString() }, 3600],
])('%s says when to come again', async (_what, status, headers, seconds) => {
  bench.server.onCall = () => ({ status, headers });
  expect(await errorOf(bench.library.stage([staged('/a')], quiet()))).toMatchObject({ retryAfterSeconds: seconds });
});
