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
