/** The library type `tar`: a volume is a tar file (ustar), in which a file is found by its path. */
import { type FileHandle, open, stat } from 'node:fs/promises';
import path from 'node:path';
import { BLOCK_BYTES, cutChunk, takeBlock } from '../../../src/core/blocks.js';
import { codeOf, messageOf, TapeError } from '../../../src/core/errors.js';
import { type DriveLibrary, type FileOnVolume, LibraryError, VolumeError } from '../../../src/tape/drive-library.js';
import { classifyFileError } from '../../../src/tape/file-chunks.js';
import { type DriveKind, file, settingsOf } from '../../../src/tape/kind.js';

export const tar: DriveKind<{ directory: string }> = {
  contract: 'drive',
  findsBy: 'path',
  settings: settingsOf({ directory: file().describe('the directory of the tar files') }),
  create: ({ directory }) => createTarLibrary(directory),
};

function createTarLibrary(directory: string): DriveLibrary {
  return {
    async mount(volume, _drive, signal) {
      signal.throwIfAborted();
      const archive = await openArchive(directory, volume);
      try {
        const members = await readMembers(archive, signal);
        return {
          read: (wanted, readSignal) => readMember(archive, members.get(wanted.path), wanted, readSignal),
          unmount: () => archive.close(),
        };
      } catch (error) {
        await archive.close();
        throw signal.aborted ? signal.reason : new VolumeError('MEDIA', `volume ${volume}: ${messageOf(error)}`);
      }
    },
  };
}

/** Rejects volume names that lead outside the directory: they come from the catalogue. */
async function openArchive(directory: string, volume: string): Promise<FileHandle> {
  if (!/^\w[\w.-]*$/.test(volume)) throw new TapeError('PERMANENT', `${JSON.stringify(volume)} cannot be a volume`);
  await stat(directory).catch((error: unknown) => {
    throw new LibraryError('TRANSIENT', `the library ${directory} is not available: ${messageOf(error)}`);
  });
  try {
    return await open(path.join(directory, `${volume}.tar`), 'r');
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw classifyFileError(error, `volume ${volume}`, '');
    throw new TapeError('MEDIA', `the library has no volume ${volume}`);
  }
}

interface Member {
  start: number;
  size: number;
}

const RECORD = 512;

/** Returns the plain files of an archive by their absolute paths. The last member with a path is the valid one. */
async function readMembers(archive: FileHandle, signal: AbortSignal): Promise<Map<string, Member>> {
  const members = new Map<string, Member>();
  const header = Buffer.alloc(RECORD);
  for (let at = 0; ; ) {
    signal.throwIfAborted();
    const { bytesRead } = await archive.read(header, 0, RECORD, at);
    if (bytesRead < RECORD || header[0] === 0) return members;
    const text = (start: number, length: number) =>
      header.toString('utf8', start, start + length).replace(/\0.*$/s, '');
    if (text(257, 5) !== 'ustar') throw new Error(`no ustar header at byte ${at}`);
    const size = Number.parseInt(text(124, 12), 8);
    const name = path.posix.join('/', text(345, 155), text(0, 100));
    if (/^0?$/.test(text(156, 1))) members.set(name, { start: at + RECORD, size });
    at += RECORD + Math.ceil(size / RECORD) * RECORD;
  }
}

async function* readMember(
  archive: FileHandle,
  member: Member | undefined,
  wanted: FileOnVolume,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  signal.throwIfAborted();
  if (!member) throw new TapeError('PERMANENT', `the volume has no file ${wanted.path}`);
  for (let done = 0; done < member.size; ) {
    const block = takeBlock();
    const length = Math.min(BLOCK_BYTES, member.size - done);
    const { bytesRead } = await archive.read(block, 0, length, member.start + done).catch((error: unknown) => {
      throw classifyFileError(error, wanted.path, '');
    });
    if (bytesRead === 0) throw new VolumeError('MEDIA', `the volume ends within ${wanted.path}`);
    done += bytesRead;
    yield cutChunk(block, 0, bytesRead);
    signal.throwIfAborted();
  }
}
