/** When failed reads suspend a volume. */
import { expect, test } from 'vitest';
import type { RecallOutcome } from '../../src/domain/recalls/ends.js';
import type { RunningRecall } from '../../src/domain/recalls/starts.js';
import { VolumeFailures } from '../../src/engine/drive/drive-failures.js';

function buildRecall(fileId: bigint, more: Partial<RunningRecall> = {}): RunningRecall {
  const attributes = { mode: null, mtime: null, uid: null, gid: null };
  const names = { logicalPath: `/${fileId}`, tapePath: `/${fileId}` };
  const place = {
    position: fileId,
    checksum: null,
    isChecksumTaken: false,
    hasAdler32: false,
    diskId: 1,
    mountpoint: '/mnt/a',
  };
  const tries = { attempts: 0, earlierTries: 0 };
  return { fileId, path: `/${fileId}`, size: 1n, ...attributes, ...names, ...place, ...tries, ...more };
}

const restored = (fileId: bigint) => ({ fileId, kind: 'restored' }) as RecallOutcome;
const bad = (fileId: bigint): RecallOutcome => ({
  fileId,
  kind: 'retry',
  errorClass: 'MEDIA',
  error: 'no block',
  notBefore: '',
});

test('outcomes are judged in read order', () => {
  const judge = new VolumeFailures().followReads(
    'V',
    [1n, 2n, 3n, 4n, 5n].map((id) => buildRecall(id)),
  );
  expect(judge([bad(1n), bad(2n), bad(4n)])).toBeUndefined();
  expect(judge([restored(3n)])).toBeUndefined();
  expect(judge([bad(5n)])).toBeUndefined();
});

test('the third bad file in a row suspends its volume with the reason', () => {
  const judge = new VolumeFailures().followReads(
    'V',
    [1n, 2n, 3n].map((id) => buildRecall(id)),
  );
  const reason = '3 consecutive files could not be read from this volume, the last of them /3: no block';
  expect(judge([bad(1n), bad(2n), bad(3n)])).toBe(reason);
});

/**
 * Reads files of a volume, with one mount for each batch. @returns for each batch, whether the volume should be
 * suspended
 */
function readBatches(failures: VolumeFailures, batches: readonly RecallOutcome[][], more: Partial<RunningRecall> = {}) {
  return batches.map((outcomes) => {
    const recalls = outcomes.map(({ fileId }) => buildRecall(fileId, more));
    return failures.followReads('V', recalls)(outcomes) !== undefined;
  });
}

test.each<[string, RecallOutcome[][], boolean[]]>([
  ['across mounts', [[bad(1n)], [bad(2n)], [bad(3n)]], [false, false, true]],
  ['anew after a good file', [[bad(1n)], [bad(2n)], [restored(3n)], [bad(4n)], [bad(5n)]], Array(5).fill(false)],
  ['once for each file', [[bad(1n)], [bad(1n)], [bad(1n)], [bad(1n)]], Array(4).fill(false)],
])('bad files are counted %s', (_, batches, expected) => {
  expect(readBatches(new VolumeFailures(), batches)).toEqual(expected);
});

test.each<[string, Partial<RunningRecall>, boolean]>([
  ['at its first try', {}, true],
  ['at its first try after two resumes', { earlierTries: 2 }, true],
  ['not after three tries before', { earlierTries: 3 }, false],
  ['not at a later try', { attempts: 1 }, false],
])('a bad file counts against its volume %s', (_, tries, expected) => {
  expect(readBatches(new VolumeFailures(), [[bad(1n), bad(2n), bad(3n)]], tries)).toEqual([expected]);
});
