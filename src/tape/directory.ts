/**
 * A tape library as a folder: a folder for each volume, in it a file for each position, named by its number.
 * Real bytes on an ordinary disk; the errors of the file system are sorted into the classes of a tape.
 */
import { constants } from 'node:fs';
import { type FileHandle, link, mkdir, open, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, type ErrorClass, messageOf, TapeError } from '../errors.js';
import type { TapeBackend } from './backend.js';

const CHUNK_BYTES = 1024 * 1024;

/** @param root the library's folder; made on the first write */
export function createDirectoryBackend(root: string): TapeBackend {
  return {
    async mount(volume) {
      const folder = folderOf(root, volume);
      const isThere = await stat(folder).then(
        (stats) => stats.isDirectory(),
        () => false,
      );
      if (!isThere) throw new TapeError('MEDIA', `the library has no volume ${volume} (looked for ${folder})`);
      return {
        read: (position, signal) => readFile(path.join(folder, nameOf(position)), signal),
        unmount: async () => {},
      };
    },

    async write(volume, position, bytes, signal) {
      const folder = folderOf(root, volume);
      try {
        await mkdir(folder, { recursive: true });
        return await writeFile(folder, position, bytes, signal);
      } catch (error) {
        throw classify(error, `volume ${volume}, position ${position}`);
      }
    },
  };
}

/** A volume's name comes from the catalogue and must not lead out of the library. */
function folderOf(root: string, volume: string): string {
  if (volume.includes('/') || volume.includes('\0') || volume.startsWith('.') || volume === '') {
    throw new TapeError('PERMANENT', `${JSON.stringify(volume)} cannot be a volume of a directory library`);
  }
  return path.join(root, volume);
}

function nameOf(position: bigint): string {
  return String(position).padStart(8, '0');
}

async function* readFile(file: string, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  let handle: FileHandle | undefined;
  try {
    handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW);
    let left = Math.max((await handle.stat()).size, 1);
    for (;;) {
      signal.throwIfAborted();
      const { bytesRead, buffer } = await handle.read(Buffer.allocUnsafe(Math.min(left, CHUNK_BYTES)));
      if (bytesRead === 0) return;
      left = Math.max(left - bytesRead, 1);
      yield buffer.subarray(0, bytesRead);
    }
  } catch (error) {
    throw signal.aborted ? error : classify(error, file);
  } finally {
    await handle?.close();
  }
}

async function writeFile(
  folder: string,
  position: bigint,
  bytes: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): Promise<bigint> {
  const file = path.join(folder, nameOf(position));
  const partial = path.join(folder, `.${nameOf(position)}.${process.pid}.part`);
  const handle = await open(partial, 'wx');
  let written = 0n;
  try {
    for await (const chunk of bytes) {
      signal.throwIfAborted();
      await handle.writeFile(chunk);
      written += BigInt(chunk.length);
    }
    await handle.sync();
    await link(partial, file); // unlike a rename it never overwrites
  } finally {
    await handle.close();
    await rm(partial, { force: true });
  }
  await syncFolder(folder);
  return written;
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, constants.O_RDONLY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

const CLASSES: Record<string, ErrorClass> = {
  ENOENT: 'PERMANENT',
  EEXIST: 'PERMANENT',
  EISDIR: 'PERMANENT',
  ENOTDIR: 'PERMANENT',
  ELOOP: 'PERMANENT',
  EACCES: 'POLICY',
  EPERM: 'POLICY',
  EIO: 'MEDIA',
  ENOSPC: 'SPACE',
  EDQUOT: 'SPACE',
};

function classify(error: unknown, where: string): unknown {
  const code = codeOf(error);
  if (error instanceof TapeError || code === undefined || !/^E[A-Z]+$/.test(code)) return error;
  const what = code === 'ENOENT' ? 'there is no file at this position' : messageOf(error);
  return new TapeError(CLASSES[code] ?? 'TRANSIENT', `${where}: ${what}`, { cause: error });
}
