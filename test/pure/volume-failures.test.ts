/** When failed reads suspend a volume. */
import { expect, test } from 'vitest';
import { VolumeFailures } from '../../src/engine/drive/drive-failures.js';
import type { RecallOutcome } from '../../src/operations/recalls/ends.js';
import type { RunningRecall } from '../../src/operations/recalls/starts.js';

function buildRecall(fileId: bigint, more: Partial<RunningRecall> = {}): RunningRecall {
  const attributes = { mode: null, mtime: null, uid: null, gid: null };
  const names = { logicalPath: `/${fileId}`, tapePath: `/${fileId}` };
  const place = { position: fileId, checksum: null, isChecksumTaken: false, diskId: 1, mountpoint: '/mnt/a' };
  const tries = { attempts: 0, earlierTries: 0, doubtedSince: null };
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

test('a file that was read before the failures does not clear the doubt about a volume', () => {
  const failures = new VolumeFailures();
  const before = failures.followReads('V', [buildRecall(1n)]);
  const batch = failures.followReads(
    'V',
    [2n, 3n, 4n, 5n].map((id) => buildRecall(id)),
  );
  expect(batch([bad(2n), bad(3n), bad(4n)])).toEqual({
    holdReason: '3 files one after another could not be read from it, the last of them /4: no block',
    isDoubtful: true,
  });
  expect(before([restored(1n)])).toEqual({ holdReason: undefined, isDoubtful: undefined });
  expect(batch([restored(5n)])).toEqual({ holdReason: undefined, isDoubtful: false });
});

test('files that have failed before count once per doubt, until a file is restored', () => {
  const failures = new VolumeFailures();
  const read = (doubtedSince: string | null, outcomes: RecallOutcome[]) => {
    const recalls = outcomes.map(({ fileId }) => buildRecall(fileId, { earlierTries: 1, doubtedSince }));
    return failures.followReads('V', recalls)(outcomes).holdReason !== undefined;
  };
  const all = [bad(1n), bad(2n), bad(3n)];
  expect(read(null, all)).toBe(false);
  expect(read('2030-01-01T00:00:00', all)).toBe(true);
  expect(read('2030-01-02T00:00:00', [restored(4n), ...all])).toBe(false);
  expect(read('2030-01-02T00:00:00', all)).toBe(false);
  expect(read('2030-01-03T00:00:00', all)).toBe(true);
});

/** Reads files of a volume, each batch in a mount of its own. @returns whether the volume was to be suspended, per batch */
function readBatches(failures: VolumeFailures, batches: readonly RecallOutcome[][], more: Partial<RunningRecall> = {}) {
  return batches.map((outcomes) => {
    const recalls = outcomes.map(({ fileId }) => buildRecall(fileId, more));
    return failures.followReads('V', recalls)(outcomes).holdReason !== undefined;
  });
}

test.each<[string, RecallOutcome[][], boolean[]]>([
  ['across mounts', [[bad(1n)], [bad(2n)], [bad(3n)]], [false, false, true]],
  ['anew after a good file', [[bad(1n)], [bad(2n)], [restored(3n)], [bad(4n)], [bad(5n)]], Array(5).fill(false)],
  ['once for each file', [[bad(1n)], [bad(1n)], [bad(1n)], [bad(1n)]], Array(4).fill(false)],
])('bad files are counted %s', (_, batches, expected) => {
  expect(readBatches(new VolumeFailures(), batches)).toEqual(expected);
});

test('files that stay bad after many suspensions suspend their volume no more', () => {
  const suspended = (earlierTries: number) =>
    readBatches(new VolumeFailures(), [[bad(1n), bad(2n), bad(3n)]], {
      earlierTries,
      doubtedSince: '2030-01-01T00:00:00',
    });
  expect([9, 10].map(suspended)).toEqual([[true], [false]]);
});
