/**
 * Errors of the tape library, with one drive: which errors are retried, when a file fails, and when a volume is
 * suspended.
 */
import { createHash, randomBytes } from 'node:crypto';
import { deflateSync } from 'node:zlib';
import { afterAll, afterEach, expect, test } from 'vitest';
import { type ErrorClass, TapeError } from '../../src/core/errors.js';
import { addSeconds } from '../../src/core/time.js';
import { isWithin } from '../support/clock.js';
import { listTree, readDisks, readRestored, ring, ringUntilSeen } from '../support/engine-watch.js';
import { addFiles, addTaped, checksumOf } from '../support/factories.js';
import { useMemorySite } from '../support/memory-site.js';
import { runCli } from '../support/process.js';
import {
  type RequestView,
  viewRequest,
  waitForState,
  waitForView,
  waitThroughPauses,
} from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { readSuspensions, readTries, resume, suspend } from '../support/suspend.js';
import { createGate, waitFor } from '../support/wait.js';

const { app, library, clock, ask, query } = useMemorySite({ drives: 1 });
const hooks = { onMount: library.onMount, onRead: library.onRead };

// a recall that one test leaves to the drive would change the next test
afterEach(async () => {
  expect(await query('SELECT file_id FROM recall')).toEqual([]);
});

afterAll(async () => {
  expect(listTree(app.restoreDir).filter((name) => name.includes('.part'))).toEqual([]);
  expect((await readDisks(app)).reserved).toBe(0n);
});

const requestBelow = (prefix: string) =>
  makeRequest(app, { quota: 'alice', patterns: prefix, retention: '2099-01-01' });

/** Puts files on a volume: `/<volume>/1` at position 1, and so on. */
async function fillVolume(volume: string, count: number, size = (_position: number) => 1000): Promise<void> {
  const positions = Array.from({ length: count }, (_, n) => n + 1);
  const fileAt = (n: number) => ({ path: `/${volume}/${n}`, volume, position: BigInt(n), size: size(n) });
  await addTaped(app.ctx, library, positions.map(fileAt));
}

async function requestVolume(volume: string, count: number): Promise<number> {
  await fillVolume(volume, count);
  return await requestBelow(`/${volume}/`);
}

/** Makes reads at these positions fail on all volumes. */
function spoil(isBad: (position: bigint) => boolean): void {
  library.onRead = async (_volume, position) => {
    if (isBad(position)) throw new TapeError('MEDIA', `no block at ${position}`);
  };
}

function outcomes(view: RequestView) {
  return Object.fromEntries(view.files.map(({ path, state, errorClass, error }) => [path, [state, errorClass, error]]));
}

const countReads = (position?: bigint) =>
  library.log.filter((entry) => entry.what === 'read' && (position ?? entry.position) === entry.position).length;

const endOf = (id: number, state: string) => waitThroughPauses(app, clock, id, state);

const waitForHold = (name: string) =>
  waitFor(`${name} to be suspended`, async () => (await readSuspensions(app)).find((held) => held.name === name));

/** Waits until the drive has unmounted its volume, and the database contains no running recall. */
const waitForFreeDrive = () =>
  waitFor('a free drive', async () => {
    const busy = `SELECT FROM drive WHERE volume_id IS NOT NULL UNION ALL SELECT FROM recall WHERE state = 'RUNNING'`;
    return library.log.at(-1)?.what === 'unmount' && (await query(busy)).length === 0;
  });

test('wrong, short and long tape copies fail with the values found, and the rest of the request is restored', async () => {
  const right = await addTaped(app.ctx, library, [
    { path: '/bad/1-wrong', volume: 'BAD', position: 1n, size: 200_000 },
    { path: '/bad/2-short', volume: 'BAD', position: 2n, size: 200_000 },
    { path: '/bad/3-good', volume: 'BAD', position: 3n, size: 200_000 },
    { path: '/bad/4-empty', volume: 'BAD', position: 4n, size: 10 },
    { path: '/bad/5-long', volume: 'BAD', position: 5n, size: 200_000 },
    { path: '/bad/6-nothing', volume: 'BAD', position: 6n, size: 0 },
  ]);
  const wrong = randomBytes(200_000);
  library.onRead = async (_volume, position, bytes) => {
    if (position === 1n) return wrong;
    if (position === 2n) return bytes.subarray(0, 199_999);
    if (position === 4n) return bytes.subarray(0, 0);
    if (position === 5n) return Buffer.concat([bytes, Buffer.from('x')]);
    return bytes;
  };
  const says = `but the catalogue says`;
  const end = '; given up after 3 tries';
  expect(outcomes(await endOf(await requestBelow('/bad/'), 'PARTIAL'))).toEqual({
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
])(
  'a file fails after an error of class %s at %i reads, and its request ends as PARTIAL',
  async (errorClass, tries) => {
    const volume = `CLASS-${errorClass}`;
    await fillVolume(volume, 2);
    library.onRead = async (_volume, position) => {
      if (position === 2n) throw new TapeError(errorClass, `the drive says ${errorClass}`);
    };
    const view = await endOf(await requestBelow(`/${volume}/`), 'PARTIAL');
    const error = `the drive says ${errorClass}${tries === 1 ? '' : `; given up after ${tries} tries`}`;
    expect(view).toMatchObject({
      ...{
        filesTotal: 2,
        filesOnDisk: 1,
        filesFailed: 1,
        bytesOnDisk: '1000',
        recallsEndedAt: expect.any(String),
      },
      files: [
        { path: `/${volume}/1`, stage: 'RESTORED', state: 'ON_DISK', errorClass: null, error: null },
        { path: `/${volume}/2`, stage: 'ONTAPE', state: 'FAILED', errorClass, error },
      ],
    });
    expect([countReads(1n), countReads(2n)]).toEqual([1, tries]);
  },
);

const tooManyFiles = () => Object.assign(new Error('EMFILE: too many open files'), { code: 'EMFILE' });

test.each([
  ['thrown by the engine', tooManyFiles],
  ['reported by the library', () => new TapeError('TRANSIENT', 'it cannot be read', { cause: tooManyFiles() })],
])('"too many open files", %s, counts as a try neither of a file nor of its volume', async (by, error) => {
  const more = 9; // more failures than a file's tries and a volume's mounts allow
  let [mounts, reads] = [0, 0];
  library.onMount = async () => {
    if (mounts++ < more) throw error();
  };
  library.onRead = async () => {
    if (reads++ < more) throw error();
  };
  expect(await endOf(await requestVolume(`OPEN-${by.length}`, 1), 'COMPLETED')).toMatchObject({ filesOnDisk: 1 });
  expect([mounts > more, reads]).toEqual([true, more + 1]);
  expect(await readSuspensions(app)).toEqual([]);
});

test('an error that passes delays its own file and nothing else', async () => {
  let isBroken = true;
  library.onRead = async (_volume, position) => {
    // an error without a class counts as transient
    if (position === 2n && isBroken) throw new Error('the robot stumbled');
  };
  const id = await requestVolume('PASSES', 3);
  const view = await waitForView(app, id, 'to have the other files', ({ filesOnDisk }) => filesOnDisk === 2);
  expect(view).toMatchObject({ state: 'RESTORING', filesFailed: 0 });
  const tries = await waitFor('the recall to wait again', async () => {
    const now = (await readTries(app, id))['/PASSES/2'];
    return now?.recallState === 'WAITING' && now.nextTryAt !== null && now;
  });
  expect(tries).toMatchObject({ lastErrorClass: 'TRANSIENT', lastError: 'the robot stumbled', attempts: 1 });
  expect(isWithin(tries.nextTryAt, [addSeconds(clock.now(), -60), addSeconds(clock.now(), 1)])).toBe(true);
  isBroken = false;
  await endOf(id, 'COMPLETED');
  expect([1n, 2n, 3n].map(countReads)).toEqual([1, 2, 1]);
});

test('a volume that cannot be mounted three times is suspended: its files wait, and none of them fails', async () => {
  await addTaped(app.ctx, library, [
    { path: '/mounts/fine', volume: 'FINE' },
    { path: '/mounts/gone-1', volume: 'GONE' },
    { path: '/mounts/gone-2', volume: 'GONE' },
  ]);
  library.onMount = async (volume) => {
    if (volume === 'GONE') throw new TapeError('MEDIA', 'no signal\n\u0000from the leader');
  };
  const id = await requestBelow('/mounts/');
  const held = await waitFor('the volume to be suspended', async () => {
    clock.advance(600);
    await ring(app, 'recall');
    return (await readSuspensions(app)).find(({ name }) => name === 'GONE');
  });
  expect(held).toMatchObject({
    kind: 'VOLUME',
    mode: 'IMMEDIATE',
    reason: 'mounting failed 3 times: no signal from the leader',
  });
  const view = await waitForView(app, id, 'to have the other file', ({ filesOnDisk }) => filesOnDisk === 1);
  expect(outcomes(view)).toEqual({
    '/mounts/fine': ['ON_DISK', null, null],
    '/mounts/gone-1': ['WAITING', null, null],
    '/mounts/gone-2': ['WAITING', null, null],
  });
  const { stdout } = await runCli(['show', String(id)], { env: { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token } });
  expect(stdout).toMatch(
    /^\/mounts\/gone-1 .* volume GONE is suspended: mounting failed 3 times: no signal from the leader$/m,
  );
  const calls = library.log.filter((entry) => entry.volume === 'GONE').map((entry) => entry.what);
  expect(calls).toEqual(['mount', 'mount', 'mount']);
  Object.assign(library, hooks);
  await resume(app, 'VOLUME', 'GONE');
  await endOf(id, 'COMPLETED');
});

test('a file without a position on tape fails at once and delays no other', async () => {
  await addTaped(app.ctx, library, [{ path: '/place/good', volume: 'PLACE' }]);
  await addFiles(app.ctx, [
    { path: '/place/no-volume', volume: null, position: 7n },
    { path: '/place/no-position', volume: 'PLACE', position: null },
  ]);
  const error = 'the catalogue does not contain the volume and position of the file';
  expect(outcomes(await waitForState(app, await requestBelow('/place/'), 'PARTIAL'))).toEqual({
    '/place/good': ['ON_DISK', null, null],
    '/place/no-position': ['FAILED', 'PERMANENT', error],
    '/place/no-volume': ['FAILED', 'PERMANENT', error],
  });
});

test('checksums of each algorithm are compared, and a file without one is restored as it is', async () => {
  const bytes = randomBytes(300_000).fill(0xff, 0, 200_000);
  const sums = new Map<string, string | null>([
    ['sha256', checksumOf(bytes)],
    ['md5', `md5:${createHash('md5').update(bytes).digest('hex')}`],
    // a zlib stream ends with the Adler-32 checksum
    ['adler32', `adler32:${deflateSync(bytes).subarray(-4).toString('hex')}`],
    ['none', null],
  ]);
  const wrong = (checksum: string) => checksum.replace(/.$/, (last) => (last === '0' ? '1' : '0'));
  const files = [...sums].flatMap(([algorithm, checksum]) => [
    { path: `/checksums/${algorithm}`, checksum },
    ...(checksum === null ? [] : [{ path: `/checksums/${algorithm}-wrong`, checksum: wrong(checksum) }]),
  ]);
  library.volumes.set('SUMS', new Map(files.map((_, index) => [BigInt(index + 1), bytes])));
  await addFiles(
    app.ctx,
    files.map((file) => ({ ...file, volume: 'SUMS', size: BigInt(bytes.length) })),
  );
  const expected = [...sums].flatMap(([algorithm, right]) => {
    const path = `/checksums/${algorithm}`;
    const good = [path, ['ON_DISK', null, null]];
    if (right === null) return [good];
    const error = `the tape copy has checksum ${right}, but the catalogue says ${wrong(right)}: ${path}-wrong; given up after 3 tries`;
    return [good, [`${path}-wrong`, ['FAILED', 'MEDIA', error]]];
  });
  const view = await endOf(await requestBelow('/checksums/'), 'PARTIAL');
  expect(outcomes(view)).toEqual(Object.fromEntries(expected));
  expect(readRestored(app, '/checksums/none')?.equals(bytes)).toBe(true);
});

test('a volume is suspended after three bad files in a row: its files wait, and other volumes are read', async () => {
  await addTaped(app.ctx, library, [{ path: '/well/0', volume: 'WELL', position: 9n }]);
  library.onRead = async (_volume, position, bytes) => {
    if (position === 9n) return bytes;
    if (position === 2n) return bytes.map((byte) => byte ^ 1); // wrong bytes count like an unreadable file
    throw new TapeError('MEDIA', `no block at ${position}`);
  };
  const id = await requestVolume('WORN', 6);
  const reason =
    /^3 consecutive files could not be read from this volume, the last of them \/WORN\/\d: no block at \d$/;
  expect(await waitForHold('WORN')).toMatchObject({
    kind: 'VOLUME',
    mode: 'IMMEDIATE',
    reason: expect.stringMatching(reason),
  });
  await waitForFreeDrive();
  const before = countReads();
  await endOf(await ask('/well/0'), 'COMPLETED');
  expect(countReads()).toBe(before + 1);
  const tries = Object.values(await readTries(app, id));
  expect(tries.map(({ state, recallState }) => `${state} ${recallState}`)).toEqual(Array(6).fill('WAITING WAITING'));
  const tried = tries.filter(({ attempts, lastErrorClass }) => attempts === 1 && lastErrorClass === 'MEDIA');
  expect(tried.length).toBeGreaterThan(2);
  expect(await viewRequest(app, id)).toMatchObject({ state: 'RESTORING', filesFailed: 0 });
  Object.assign(library, hooks);
  await resume(app, 'VOLUME', 'WORN');
  await endOf(id, 'COMPLETED');
});

test('bad files among good ones fail, and suspend neither their volume nor their request', async () => {
  // good files are large, so that the next bad file fails before a good file is in place
  await fillVolume('SOME', 12, (position) => (position % 2 === 1 ? 500_000 : 10));
  spoil((position) => position % 2n === 0n);
  const id = await requestBelow('/SOME/');
  expect(await endOf(id, 'PARTIAL')).toMatchObject({ filesOnDisk: 6, filesFailed: 6 });
  expect((await readTries(app, id))['/SOME/2']).toEqual({
    state: 'FAILED',
    recallState: null,
    attempts: null,
    lastErrorClass: 'MEDIA',
    lastError: 'no block at 2; given up after 3 tries',
    nextTryAt: null,
  });
  expect(await readSuspensions(app)).toEqual([]);
});

/** Resumes the volume whenever it is suspended, until the request ends. @returns the number of resumptions */
async function resumeUntilOver(volume: string, id: number): Promise<number> {
  for (let times = 0; ; times++) {
    const isOver = await waitFor(`request ${id} to be over, or its volume to be suspended`, async () => {
      clock.advance(600);
      await ring(app, 'recall');
      if ((await viewRequest(app, id)).state === 'PARTIAL') return 'over';
      return (await readSuspensions(app)).some(({ name }) => name === volume) && 'suspended';
    });
    if (isOver === 'over') return times;
    await waitForFreeDrive();
    await resume(app, 'VOLUME', volume);
  }
}

test('a bad volume that is resumed unmended is suspended again, and none of its files fails', async () => {
  spoil(() => true);
  const id = await requestVolume('HASTY', 6);
  for (let round = 0; round < 2; round++) {
    await waitForHold('HASTY');
    await waitForFreeDrive();
    expect(await viewRequest(app, id)).toMatchObject({ state: 'RESTORING', filesFailed: 0 });
    await resume(app, 'VOLUME', 'HASTY');
  }
  await waitForHold('HASTY');
  await waitForFreeDrive();
  Object.assign(library, hooks);
  await resume(app, 'VOLUME', 'HASTY');
  await endOf(id, 'COMPLETED');
});

test('files that failed before their volume was mended are read, also behind files that stay bad', async () => {
  spoil(() => true);
  const id = await requestVolume('MENDED', 6);
  await waitForHold('MENDED');
  await waitForFreeDrive();
  spoil((position) => position <= 3n);
  await resume(app, 'VOLUME', 'MENDED');
  expect(await resumeUntilOver('MENDED', id)).toBeLessThan(3);
  expect(await viewRequest(app, id)).toMatchObject({ filesOnDisk: 3, filesFailed: 3 });
  expect(await readSuspensions(app)).toEqual([]);
});

test('the engine does not suspend a volume that an operator drains', async () => {
  const gate = createGate();
  library.onRead = async () => {
    await gate.opened;
    throw new TapeError('MEDIA', 'no block');
  };
  const id = await requestVolume('DRAINED', 4);
  await waitFor('a read', async () => countReads() > 0);
  await suspend(app, { kind: 'VOLUME', name: 'DRAINED', mode: 'DRAINING', reason: 'it leaves the library' });
  gate.open();
  await waitForFreeDrive();
  expect(Object.values(await readTries(app, id)).map((tries) => tries.attempts)).toEqual([1, 1, 1, 1]);
  expect(await readSuspensions(app)).toMatchObject([{ mode: 'DRAINING', reason: 'it leaves the library' }]);
  Object.assign(library, hooks);
  await resume(app, 'VOLUME', 'DRAINED');
  await endOf(id, 'COMPLETED');
});

test('after a failed mount the whole queue of the volume pauses with the reason, until an operator resumes it', async () => {
  // waits until the drives have seen the end of all pauses of the previous test
  await ringUntilSeen(app, 'recall', 'drives');
  let isStuck = true;
  library.onMount = async () => {
    if (isStuck) throw new TapeError('TRANSIENT', 'the arm is stuck');
  };
  clock.freeze();
  const count = 200; // more files than a drive starts at once
  const id = await requestVolume('ARM', count);
  const tries = await waitFor('the pause', async () => {
    const all = Object.values(await readTries(app, id));
    return all.every((one) => one.nextTryAt !== null) && all;
  });
  const seen = tries.map((one) => `${one.lastErrorClass} ${one.lastError} ${one.attempts}`);
  // a failed mount does not count as a try of a file
  expect(seen).toEqual(Array(count).fill('TRANSIENT the arm is stuck 0'));
  await addTaped(app.ctx, library, [{ path: '/arm/late', volume: 'ARM', position: BigInt(count + 1) }]);
  const late = await ask('/arm/late');
  await ringUntilSeen(app, 'recall', 'drives');
  expect((await viewRequest(app, late)).filesOnDisk).toBe(0);
  expect(library.log.map((entry) => entry.what)).toEqual(['mount']);
  isStuck = false;
  await suspend(app, { kind: 'VOLUME', name: 'ARM', mode: 'IMMEDIATE' });
  await resume(app, 'VOLUME', 'ARM');
  for (const request of [id, late]) await waitForState(app, request, 'COMPLETED'); // although the clock is frozen
  clock.goOn();
});

test('a library that is resumed is tried at once, and other errors keep their pauses', async () => {
  library.onRead = async (_volume, position) => {
    throw new TapeError(position === 1n ? 'TRANSIENT' : 'SPACE', 'not now');
  };
  clock.freeze();
  const id = await requestVolume('BACK', 2);
  await waitFor('the pauses', async () => Object.values(await readTries(app, id)).every((tries) => tries.nextTryAt));
  Object.assign(library, hooks);
  await suspend(app, { kind: 'LIBRARY', name: 'directory', mode: 'DRAINING' });
  await resume(app, 'LIBRARY', 'directory');
  await waitFor('the first file', async () => (await readTries(app, id))['/BACK/1']?.state === 'ON_DISK');
  // waiting for room does not count as a try
  const waits = { attempts: 0, lastErrorClass: 'SPACE', nextTryAt: expect.any(String) };
  expect((await readTries(app, id))['/BACK/2']).toMatchObject(waits);
  clock.goOn();
  await endOf(id, 'COMPLETED');
});

test('a library that fails for a while does not get its volumes suspended', async () => {
  library.onMount = async () => {
    if (library.log.length <= 7) throw new TapeError('TRANSIENT', 'the robot does not answer');
  };
  await endOf(await requestVolume('ROBOT', 1), 'COMPLETED');
  expect(library.log.filter((entry) => entry.what === 'mount')).toHaveLength(8);
  expect(await readSuspensions(app)).toEqual([]);
});
