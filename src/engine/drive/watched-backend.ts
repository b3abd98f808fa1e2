/** A tape back end whose calls are followed: a drive that hangs is found out. */
import type { MountedVolume, TapeBackend } from '../../tape/backend.js';
import type { Place } from '../calls.js';
import type { HeldLease } from './lease.js';

export function watchBackend(backend: TapeBackend, { calls, driveName }: HeldLease): TapeBackend {
  return {
    mount: async (volume, drive, signal) => {
      const place: Place = { kind: 'tape', volume, drive: driveName };
      const mounted = await calls.follow(place, () => backend.mount(volume, drive, signal));
      return watchVolume(mounted, (call) => calls.follow(place, call));
    },
  };
}

function watchVolume(volume: MountedVolume, follow: <T>(call: () => Promise<T>) => Promise<T>): MountedVolume {
  return {
    read: (file, signal) => watchChunks(volume.read(file, signal), follow),
    unmount: () => follow(() => volume.unmount()),
  };
}

/** Each chunk by itself: the time that its reader takes is not the tape's. */
async function* watchChunks(
  chunks: AsyncIterable<Uint8Array>,
  follow: <T>(call: () => Promise<T>) => Promise<T>,
): AsyncGenerator<Uint8Array> {
  const iterator = chunks[Symbol.asyncIterator]();
  let isOver = false;
  try {
    for (;;) {
      const { value, done } = await follow(() => iterator.next());
      if (done) {
        isOver = true;
        return;
      }
      yield value;
    }
  } catch (error) {
    isOver = true; // thrown by the back end itself, or it hangs
    throw error;
  } finally {
    if (!isOver) await follow(async () => await iterator.return?.());
  }
}
