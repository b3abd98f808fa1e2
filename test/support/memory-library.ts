/** A drive library in memory with delays, errors and wrong bytes on demand, and a log of calls. */
import { setTimeout as sleep } from 'node:timers/promises';
import { TapeError } from '../../src/core/errors.js';
import type { WritableLibrary } from '../../src/tape/drive-library.js';
import { untilAborted } from '../../src/tape/until-aborted.js';

export interface MemoryLibrary extends WritableLibrary {
  /** Bytes of files, by volume and position. */
  volumes: Map<string, Map<bigint, Uint8Array>>;
  /** Calls in the order of their start. */
  log: { what: 'mount' | 'read' | 'unmount'; volume: string; drive: string; position?: bigint }[];
  /** Hook that runs before each mount. The hook may wait or throw an error. */
  onMount: (volume: string) => Promise<void>;
  /** Hook that runs before each read. The hook may wait, throw an error, or return other bytes. */
  // biome-ignore lint/suspicious/noConfusingVoidType: most hooks only wait or throw
  onRead: (volume: string, position: bigint, bytes: Uint8Array) => Promise<Uint8Array | void>;
}

const CHUNK_BYTES = 64 * 1024;

/** @param delayMs duration of a mount, and of each chunk of a read */
export function createMemoryLibrary({ delayMs = 0 } = {}): MemoryLibrary {
  const pause = async (signal: AbortSignal) => {
    signal.throwIfAborted();
    if (delayMs > 0) await sleep(delayMs, undefined, { signal }).catch(() => signal.throwIfAborted());
  };
  const library: MemoryLibrary = {
    volumes: new Map(),
    log: [],
    onMount: async () => {},
    onRead: async () => undefined,

    async mount(volume, drive, signal) {
      library.log.push({ what: 'mount', volume, drive });
      await untilAborted(library.onMount(volume), signal);
      await pause(signal);
      const files = library.volumes.get(volume);
      if (!files) throw new TapeError('MEDIA', `the library has no volume ${volume}`);
      return {
        async *read({ position }, readSignal) {
          if (position === null) throw new TapeError('PERMANENT', `volume ${volume} has no file without a position`);
          library.log.push({ what: 'read', volume, drive, position });
          const stored = files.get(position);
          if (!stored) throw new TapeError('PERMANENT', `volume ${volume} has no file at position ${position}`);
          const changed = await untilAborted(library.onRead(volume, position, stored), readSignal);
          const bytes = changed instanceof Uint8Array ? changed : stored;
          for (let start = 0; start < bytes.length; start += CHUNK_BYTES) {
            await pause(readSignal);
            yield Uint8Array.prototype.slice.call(bytes, start, start + CHUNK_BYTES); // Buffer.slice would share memory
          }
        },
        unmount: async () => {
          library.log.push({ what: 'unmount', volume, drive });
        },
      };
    },

    async write(volume, position, bytes, signal) {
      const chunks: Uint8Array[] = [];
      for await (const chunk of bytes) {
        await pause(signal);
        chunks.push(Buffer.from(chunk));
      }
      signal.throwIfAborted();
      const files = library.volumes.get(volume) ?? new Map<bigint, Uint8Array>();
      if (files.has(position)) {
        throw new TapeError('PERMANENT', `volume ${volume} has a file at position ${position} already`);
      }
      library.volumes.set(volume, files.set(position, Buffer.concat(chunks)));
      return BigInt(files.get(position)?.length ?? 0);
    },
  };
  return library;
}
