import { createHash, randomBytes } from 'node:crypto';
import { deflateSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { type ErrorClass, TapeError } from '../../src/errors.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { secondsBetween } from '../../src/time.js';
import { startApp, type TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { findIllegalMoves, listTree, readDisks, readRestored, ring } from '../support/engine-watch.js';
import { addFiles, addQuota, addTaped, checksumOf } from '../support/factories.js';
import { type RequestView, viewRequest, waitForState, waitThroughPauses } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { readSuspensions } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();
const hooks = { onMount: backend.onMount, onRead: backend.onRead };
const clock = createClock();
const alice = { quota: 'alice', retention: '2099-01-01' };

beforeAll(async () => {
  app = await startApp({ backend, now: clock.now });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(() => {
  Object.assign(backend, hooks);
  backend.log.length = 0;
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  expect(listTree(app.restoreDir).filter((name) => name.includes('.part'))).toEqual([]);
  expect((await readDisks(app)).reserved).toBe(0n);
  await app.close();
});

function outcomes(view: RequestView) {
  return Object.fromEntries(view.holds.map(({ path, state, errorClass, error }) => [path, [state, errorClass, error]]));
}

const countReads = (volume: string, position: bigint) =>
  backend.log.filter((entry) => entry.volume === volume && entry.position === position).length;

test('wrong, short and long tape copies fail with what was found, and the rest of the request arrives', async () => {
  const right = await addTaped(app.ctx, backend, [
    { path: '/bad/1-wrong', volume: 'BAD', position: 1n, size: 200_000 },
    { path: '/bad/2-short', volume: 'BAD', position: 2n, size: 200_000 },
    { path: '/bad/3-good', volume: 'BAD', position: 3n, size: 200_000 },
    { path: '/bad/4-empty', volume: 'BAD', position: 4n, size: 10 },
    { path: '/bad/5-long', volume: 'BAD', position: 5n, size: 200_000 },
    { path: '/bad/6-nothing', volume: 'BAD', position: 6n, size: 0 },
  ]);
  const wrong = randomBytes(200_000);
  backend.onRead = async (_volume, position, bytes) => {
    if (position === 1n) return wrong;
    if (position === 2n) return bytes.subarray(0, 199_999);
    if (position === 4n) return bytes.subarray(0, 0);
    if (position === 5n) return Buffer.concat([bytes, Buffer.from('x')]);
    return bytes;
  };
  const id = await makeRequest(app, { ...alice, patterns: '/bad/' });
  const says = `and the catalogue says`;
  const end = '; given up after 3 tries';
  expect(outcomes(await waitThroughPauses(app, clock, id, 'PARTIAL'))).toEqual({
    '/bad/1-wrong': [
      'FAILED',
      'MEDIA',
      `the tape copy has checksum ${checksumOf(wrong)}, ${says} ${checksumOf(right.get('/bad/1-wrong') ?? wrong)}: /bad/1-wrong${end}`,
    ],
    '/bad/2-short': ['FAILED', 'MEDIA', `the tape copy has 199999 bytes, ${says} 200000: /bad/2-short${end}`],
    '/bad/3-good': ['ON_DISK', null, null],
    '/bad/4-empty': ['FAILED', 'MEDIA', `the tape copy has 0 bytes, ${says} 10: /bad/4-empty${end}`],
    '/bad/5-long': ['FAILED', 'MEDIA', `the tape copy has more bytes, ${says} 200000: /bad/5-long${end}`],
    '/bad/6-nothing': ['ON_DISK', null, null],
  });
  expect(listTree(`${app.restoreDir}/bad`)).toEqual(['3-good', '6-nothing']);
  expect(readRestored(app, '/bad/3-good')).toEqual(right.get('/bad/3-good'));
  expect(readRestored(app, '/bad/6-nothing')).toEqual(Buffer.alloc(0));
});

test.each<[ErrorClass, number]>([
  ['TRANSIENT', 8],
  ['MEDIA', 3],
  ['POLICY', 1],
  ['PERMANENT', 1],
])('an error of class %s is tried %i times in all before the file has failed for good', async (errorClass, tries) => {
  const volume = `CLASS-${errorClass}`;
  await addTaped(app.ctx, backend, [
    { path: `/${volume}/good`, volume, position: 1n },
    { path: `/${volume}/bad`, volume, position: 2n },
  ]);
  backend.onRead = async (_volume, position, bytes) => {
    if (position === 2n) throw new TapeError(errorClass, `the drive says ${errorClass}`);
    return bytes;
  };
  const id = await makeRequest(app, { ...alice, patterns: `/${volume}/` });
  const end = tries === 1 ? '' : `; given up after ${tries} tries`;
  expect(outcomes(await waitThroughPauses(app, clock, id, 'PARTIAL'))).toEqual({
    [`/${volume}/good`]: ['ON_DISK', null, null],
    [`/${volume}/bad`]: ['FAILED', errorClass, `the drive says ${errorClass}${end}`],
  });
  expect(countReads(volume, 2n)).toBe(tries);
  expect(countReads(volume, 1n)).toBe(1);
});

const tooManyFiles = () => Object.assign(new Error('EMFILE: too many open files'), { code: 'EMFILE' });

test.each([
  ['by itself', tooManyFiles],
  ['as the back end tells it', () => new TapeError('TRANSIENT', 'it cannot be read', { cause: tooManyFiles() })],
])('that too many files are open is no try of a file, nor of its volume: %s', async (name, error) => {
  const volume = `OPEN-${name.length}`;
  await addTaped(app.ctx, backend, [{ path: `/${volume}/1`, volume, position: 1n }]);
  // more often than a file is tried, and a volume is mounted
  let [mounts, reads] = [0, 0];
  backend.onMount = async () => {
    if (mounts++ < 12) throw error();
  };
  backend.onRead = async (_volume, _position, bytes) => {
    if (reads++ < 12) throw error();
    return bytes;
  };
  const id = await makeRequest(app, { ...alice, patterns: `/${volume}/` });
  expect(outcomes(await waitThroughPauses(app, clock, id, 'COMPLETED'))).toEqual({
    [`/${volume}/1`]: ['ON_DISK', null, null],
  });
  expect([mounts >= 13, reads]).toEqual([true, 13]);
  const { rows } = await app.ctx.db.pool.query('SELECT reason FROM suspension WHERE name = $1', [volume]);
  expect(rows).toEqual([]);
});

test('an error that passes delays its own file and nothing else', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/passes/1', volume: 'PASSES', position: 1n },
    { path: '/passes/2', volume: 'PASSES', position: 2n },
    { path: '/passes/3', volume: 'PASSES', position: 3n },
  ]);
  let isBroken = true;
  backend.onRead = async (_volume, position, bytes) => {
    // no TapeError: what a back end does not sort counts as passing
    if (position === 2n && isBroken) throw new Error('the robot stumbled');
    return bytes;
  };
  const id = await makeRequest(app, { ...alice, patterns: '/passes/' });
  const view = await waitFor('the other files', async () => {
    const now = await viewRequest(app, id);
    return now.filesOnDisk === 2 && now;
  });
  expect(view).toMatchObject({ state: 'RESTORING', filesFailed: 0 });
  const recall = await waitFor('the recall to wait again', async () => {
    const { rows } = await app.ctx.db.pool.query(
      `SELECT c.state, c.error_class, c.error, c.attempts, c.not_before, f.stage
       FROM recall c JOIN tape_file f ON f.id = c.file_id WHERE f.path = '/passes/2' AND c.state = 'WAITING'`,
    );
    return rows[0];
  });
  expect(recall).toMatchObject({ error_class: 'TRANSIENT', error: 'the robot stumbled', attempts: 1, stage: 'ONTAPE' });
  expect(secondsBetween(clock.now(), recall.not_before)).toBeLessThanOrEqual(1);
  isBroken = false;
  await waitThroughPauses(app, clock, id, 'COMPLETED');
  expect([1n, 2n, 3n].map((position) => countReads('PASSES', position))).toEqual([1, 2, 1]);
});

test('a volume that cannot be mounted holds up its own files only, and fails none of them', async () => {
  await addTaped(app.ctx, backend, [{ path: '/mounts/fine', volume: 'FINE' }]);
  await addFiles(app.ctx, [
    { path: '/mounts/gone-1', volume: 'GONE' },
    { path: '/mounts/gone-2', volume: 'GONE' },
  ]);
  const id = await makeRequest(app, { ...alice, patterns: '/mounts/' });
  const held = await waitFor('the volume to be held', async () => {
    clock.advance(600);
    await ring(app, 'recall');
    return (await readSuspensions(app)).find(({ name }) => name === 'GONE');
  });
  expect(held.reason).toBe('it could not be mounted 3 times: the library has no volume GONE');
  await waitFor('the other file', async () => (await viewRequest(app, id)).filesOnDisk === 1);
  expect(outcomes(await viewRequest(app, id))).toEqual({
    '/mounts/fine': ['ON_DISK', null, null],
    '/mounts/gone-1': ['WAITING', null, null],
    '/mounts/gone-2': ['WAITING', null, null],
  });
  expect(backend.log.filter((entry) => entry.volume === 'GONE').map((entry) => entry.what)).toEqual(
    Array(3).fill('mount'),
  );
});

test('a mount that fails once is tried again', async () => {
  await addTaped(app.ctx, backend, [{ path: '/remount/a', volume: 'REMOUNT' }]);
  backend.onMount = async (volume) => {
    if (backend.log.filter((entry) => entry.volume === volume).length === 1) throw new Error('the arm is busy');
  };
  const id = await makeRequest(app, { ...alice, patterns: '/remount/' });
  await waitThroughPauses(app, clock, id, 'COMPLETED');
  expect(backend.log.map((entry) => entry.what)).toEqual(['mount', 'mount', 'read', 'unmount']);
});

test('a file without a place on tape fails at once and holds up nothing', async () => {
  await addTaped(app.ctx, backend, [{ path: '/place/good', volume: 'PLACE' }]);
  await addFiles(app.ctx, [
    { path: '/place/no-volume', volume: null, position: 7n },
    { path: '/place/no-position', volume: 'PLACE', position: null },
  ]);
  const id = await makeRequest(app, { ...alice, patterns: '/place/' });
  const error = 'the catalogue has no volume and position for this file';
  expect(outcomes(await waitForState(app, id, 'PARTIAL'))).toEqual({
    '/place/good': ['ON_DISK', null, null],
    '/place/no-position': ['FAILED', 'PERMANENT', error],
    '/place/no-volume': ['FAILED', 'PERMANENT', error],
  });
});

test('checksums of every kind are checked, and a file without one is taken as it is', async () => {
  const bytes = randomBytes(300_000).fill(0xff, 0, 200_000);
  const kinds = new Map<string, string | null>([
    ['sha256', checksumOf(bytes)],
    ['md5', `md5:${createHash('md5').update(bytes).digest('hex')}`],
    ['adler32', `adler32:${deflateSync(bytes).subarray(-4).toString('hex')}`], // a zlib stream ends with it
    ['none', null],
  ]);
  const wrong = (checksum: string) => checksum.replace(/.$/, (last) => (last === '0' ? '1' : '0'));
  const files = [...kinds].flatMap(([kind, checksum]) => [
    { path: `/checksums/${kind}`, checksum },
    ...(checksum === null ? [] : [{ path: `/checksums/${kind}-wrong`, checksum: wrong(checksum) }]),
  ]);
  backend.volumes.set('SUMS', new Map(files.map((_, index) => [BigInt(index + 1), bytes])));
  await addFiles(
    app.ctx,
    files.map((file) => ({ ...file, volume: 'SUMS', size: BigInt(bytes.length) })),
  );
  const id = await makeRequest(app, { ...alice, patterns: '/checksums/' });
  const says = (kind: string) => {
    const right = kinds.get(kind) ?? '';
    return `the tape copy has checksum ${right}, and the catalogue says ${wrong(right)}: /checksums/${kind}-wrong; given up after 3 tries`;
  };
  expect(outcomes(await waitThroughPauses(app, clock, id, 'PARTIAL'))).toEqual({
    '/checksums/adler32': ['ON_DISK', null, null],
    '/checksums/adler32-wrong': ['FAILED', 'MEDIA', says('adler32')],
    '/checksums/md5': ['ON_DISK', null, null],
    '/checksums/md5-wrong': ['FAILED', 'MEDIA', says('md5')],
    '/checksums/none': ['ON_DISK', null, null],
    '/checksums/sha256': ['ON_DISK', null, null],
    '/checksums/sha256-wrong': ['FAILED', 'MEDIA', says('sha256')],
  });
  expect(readRestored(app, '/checksums/none')?.equals(bytes)).toBe(true);
});
