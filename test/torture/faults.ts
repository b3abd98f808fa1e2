/** A tape back end whose mounts and reads fail in every way that a library has, as often as chance says. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type ErrorClass, TapeError } from '../../src/errors.js';
import type { FileOnVolume, MountedVolume, WritableBackend } from '../../src/tape/backend.js';
import { pickWeighted, type Random } from './random.js';

/** In the data directory; while it is there, faults keep away. */
export const CALM_FILE = 'calm';

/** How a read goes: well, with an error of a class, or in a way that only the reader can notice. */
type Fate = 'well' | ErrorClass | 'bug' | 'stalls' | 'ends early' | 'goes on too long' | 'has wrong bytes';

/** Of a hundred reads. */
const FATES: readonly (readonly [number, Fate])[] = [
  [84, 'well'],
  [3, 'TRANSIENT'],
  [2, 'MEDIA'],
  [2, 'SPACE'],
  [1, 'PERMANENT'],
  [1, 'POLICY'],
  [1, 'bug'],
  [2, 'stalls'],
  [2, 'ends early'],
  [1, 'goes on too long'],
  [1, 'has wrong bytes'],
];

const MOUNT_FATES: readonly (readonly [number, Fate])[] = [
  [95, 'well'],
  [2, 'TRANSIENT'],
  [2, 'MEDIA'],
  [1, 'stalls'],
];

const STALL_MS = { low: 500, high: 5000 };
/** Small pieces, each with a pause, so that a kill often comes in the middle of a file. */
const PIECE_BYTES = 64 * 1024;
const MAX_PAUSE_MS = 20;

/** @param isCalm no fault happens while it says so */
export function createFaultyBackend(inner: WritableBackend, random: Random, isCalm: () => boolean): WritableBackend {
  const fateOf = (fates: readonly (readonly [number, Fate])[]) => (isCalm() ? 'well' : pickWeighted(random, fates));
  return {
    mount: async (volume, drive, signal) => {
      await suffer(random, fateOf(MOUNT_FATES), `volume ${volume}`, signal);
      const mounted = await inner.mount(volume, drive, signal);
      return {
        read: (file, readSignal) => {
          const fate = fateOf(FATES);
          return readBadly({ mounted, file, signal: readSignal }, { random, fate, isCalm });
        },
        unmount: () => mounted.unmount(),
      };
    },
    write: (volume, position, bytes, signal) => inner.write(volume, position, bytes, signal),
    sync: async (volume, signal) => await inner.sync?.(volume, signal),
  };
}

/** Throws or stalls, when that is the fate. */
async function suffer(random: Random, fate: Fate, where: string, signal: AbortSignal): Promise<void> {
  if (fate === 'bug') throw new Error(`planned: something no back end should throw, at ${where}`);
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
  // before the first piece or after some of them
  let left = random.integer(0, 3);
  const where = `position ${file.position}`;
  for await (const piece of piecesOf(mounted.read(file, signal))) {
    if (!chance.isCalm()) await pause(random.integer(0, MAX_PAUSE_MS), signal);
    if (left-- === 0) {
      await suffer(random, fate, where, signal);
      if (fate === 'ends early') return;
      if (fate === 'has wrong bytes') piece[0] = (piece[0] ?? 0) ^ 1;
    }
    yield piece;
  }
  if (left >= 0) await suffer(random, fate, where, signal);
  if (fate === 'goes on too long') yield Uint8Array.of(1, 2, 3);
}

async function* piecesOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  for await (const chunk of chunks) {
    for (let start = 0; start < chunk.length; start += PIECE_BYTES) yield chunk.slice(start, start + PIECE_BYTES);
  }
}
