/** A drive library whose mounts and reads fail at random, in every way that a library can fail. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type ErrorClass, TapeError } from '../../src/core/errors.js';
import type { FileOnVolume, MountedVolume, WritableLibrary } from '../../src/tape/drive-library.js';
import { pickWeighted, type Random, type Weighted } from './random.js';

/** Name of a file. While the file is in the data directory, nothing fails. */
export const CALM_FILE = 'calm';

/** Outcome of a read: success, an error of a class, or a failure that only the reader can notice. */
type Fate = 'succeeds' | ErrorClass | 'bug' | 'stalls' | 'ends early' | 'is too long' | 'has wrong bytes';

const READ_FATES: Weighted<Fate> = [
  [84, 'succeeds'],
  [3, 'TRANSIENT'],
  [2, 'MEDIA'],
  [2, 'SPACE'],
  [1, 'PERMANENT'],
  [1, 'POLICY'],
  [1, 'bug'],
  [2, 'stalls'],
  [2, 'ends early'],
  [1, 'is too long'],
  [1, 'has wrong bytes'],
];

const MOUNT_FATES: Weighted<Fate> = [
  [95, 'succeeds'],
  [2, 'TRANSIENT'],
  [2, 'MEDIA'],
  [1, 'stalls'],
];

const STALL_MS = { low: 500, high: 5000 };
/** Reads return small pieces with pauses, so that a kill often hits the middle of a file. */
const PIECE_BYTES = 64 * 1024;
const MAX_PAUSE_MS = 20;

export function createFaultyLibrary(inner: WritableLibrary, random: Random, isCalm: () => boolean): WritableLibrary {
  const fateOf = (fates: Weighted<Fate>) => (isCalm() ? 'succeeds' : pickWeighted(random, fates));
  return {
    mount: async (volume, drive, signal) => {
      await fail(random, fateOf(MOUNT_FATES), `volume ${volume}`, signal);
      const mounted = await inner.mount(volume, drive, signal);
      return {
        read: (file, readSignal) =>
          readBadly({ mounted, file, signal: readSignal }, { random, fate: fateOf(READ_FATES), isCalm }),
        unmount: () => mounted.unmount(),
      };
    },
    write: (volume, position, bytes, signal) => inner.write(volume, position, bytes, signal),
    sync: async (volume, signal) => await inner.sync?.(volume, signal),
  };
}

/** Throws an error or stalls, as `fate` says. Does nothing for other outcomes. */
async function fail(random: Random, fate: Fate, where: string, signal: AbortSignal): Promise<void> {
  if (fate === 'bug') throw new Error(`planned: an unexpected error at ${where}`);
  if (fate === 'stalls') await pause(random.integer(STALL_MS.low, STALL_MS.high), signal);
  else if (isErrorClass(fate)) throw new TapeError(fate, `planned: ${where} fails as ${fate}`);
}

function isErrorClass(fate: Fate): fate is ErrorClass {
  return ['TRANSIENT', 'PERMANENT', 'MEDIA', 'SPACE', 'POLICY'].includes(fate);
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch(() => signal.throwIfAborted());
}

async function* readBadly(
  read: { mounted: MountedVolume; file: FileOnVolume; signal: AbortSignal },
  chance: { random: Random; fate: Fate; isCalm: () => boolean },
): AsyncGenerator<Uint8Array> {
  const { mounted, file, signal } = read;
  const { random, fate } = chance;
  // the failure follows after this number of pieces
  let left = random.integer(0, 3);
  const where = `position ${file.position}`;
  for await (const piece of piecesOf(mounted.read(file, signal))) {
    if (!chance.isCalm()) await pause(random.integer(0, MAX_PAUSE_MS), signal);
    if (left-- === 0) {
      await fail(random, fate, where, signal);
      if (fate === 'ends early') return;
      if (fate === 'has wrong bytes') piece[0] = (piece[0] ?? 0) ^ 1;
    }
    yield piece;
  }
  if (left >= 0) await fail(random, fate, where, signal);
  if (fate === 'is too long') yield Uint8Array.of(1, 2, 3);
}

async function* piecesOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  for await (const chunk of chunks) {
    for (let start = 0; start < chunk.length; start += PIECE_BYTES) yield chunk.slice(start, start + PIECE_BYTES);
  }
}
