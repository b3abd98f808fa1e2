/** A tape back end whose calls are followed: a drive that hangs is found out. */
import type { MountedVolume, TapeBackend } from '../../tape/backend.js';
import { type Place, tapeSeconds } from '../calls.js';
import type { HeldLease } from './lease.js';

/** Follows one call, which may take as long as calls of its kind do. */
type Follow = <T>(what: 'mount' | 'read' | 'unmount', call: () => Promise<T>) => Promise<T>;

/** @param limit how long calls may take of which the back end does not say itself within what time they end */
export function watchBackend(
  backend: TapeBackend,
  { calls, driveName }: HeldLease,
  limit: { tapeTimeout: number },
): TapeBackend {
  return {
    mount: async (volume, drive, signal) => {
      const place: Place = { kind: 'tape', volume, drive: driveName };
      const follow: Follow = (what, call) => calls.follow(place, call, tapeSeconds(limit, backend.ownSeconds?.[what]));
      return watchVolume(await follow('mount', () => backend.mount(volume, drive, signal)), follow);
    },
  };
}

function watchVolume(volume: MountedVolume, follow: Follow): MountedVolume {
  return {
    read: (file, signal) => watchChunks(volume.read(file, signal), follow),
    unmount: () => follow('unmount', () => volume.unmount()),
  };
}

/** Each chunk by itself: the time that its reader takes is not the tape's. */
async function* watchChunks(chunks: AsyncIterable<Uint8Array>, follow: Follow): AsyncGenerator<Uint8Array> {
  const iterator = chunks[Symbol.asyncIterator]();
  let isOver = false;
  try {
    for (;;) {
      const { value, done } = await follow('read', () => iterator.next());
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
    if (!isOver) await follow('read', async () => await iterator.return?.());
  }
}
