/** Contract suite of writable drive libraries: tests each sentence on writing in src/tape/drive-library.ts. */
import { randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { WritableLibrary } from '../../src/tape/drive-library.js';
import { describeLibrary, MB, mount, openFiles, put, quiet, readAll, split, text } from './tape-library.js';

type LibraryTest = (name: string, run: (library: WritableLibrary) => Promise<void>) => void;

/** Defines the tests of reading and writing. @param create makes an empty library */
export function describeWritableLibrary(name: string, create: () => WritableLibrary): void {
  describeLibrary(name, () => {
    const library = create();
    return { library, put: (volume, position, bytes) => put(library, volume, position, bytes) };
  });
  const libraryTest: LibraryTest = (what, run) => test(what, () => run(create()));
  describe(`the ${name} library, written to`, () => {
    describeWrites(libraryTest);
    describeRefusals(libraryTest);
    describeAborts(libraryTest);
    describeSync(libraryTest);
  });
}

function describeWrites(libraryTest: LibraryTest): void {
  libraryTest('a write returns the number of bytes', async (library) => {
    for (const size of [0, 1, MB + 1]) {
      expect(await put(library, 'V1', BigInt(size), randomBytes(size))).toBe(BigInt(size));
    }
  });

  libraryTest('chunks of any size are written exactly', async (library) => {
    const bytes = randomBytes(3 * MB);
    const borders = [0, 1, 1, 7, MB - 1, MB, MB + 1, bytes.length];
    const chunks = borders.map((start, index) => bytes.subarray(start, borders[index + 1] ?? bytes.length));
    expect(await library.write('V1', 1n, from([bytes.subarray(0, 0), ...chunks]), quiet())).toBe(BigInt(bytes.length));
    expect(await readAll(await mount(library, 'V1'), 1n)).toEqual(bytes);
  });

  libraryTest('a writer may reuse its chunks', async (library) => {
    const shared = Buffer.alloc(10);
    const reused = async function* () {
      for (const letter of ['a', 'b', 'c']) yield shared.fill(letter);
    };
    await library.write('V1', 1n, reused(), quiet());
    expect((await readAll(await mount(library, 'V1'), 1n)).toString()).toBe('aaaaaaaaaabbbbbbbbbbcccccccccc');
  });

  libraryTest('drives read while others write', async (library) => {
    const bytes = randomBytes(3 * MB);
    await put(library, 'V1', 1n, bytes);
    const volume = await mount(library, 'V1');
    const written = ['V5', 'V6'].map((name) => put(library, name, 1n, text(5n)));
    expect(await readAll(volume, 1n)).toEqual(bytes);
    await Promise.all(written);
    await volume.unmount();
    expect(await readAll(await mount(library, 'V6'), 1n)).toEqual(text(5n));
  });
}

function describeRefusals(libraryTest: LibraryTest): void {
  libraryTest('a write to an occupied position is PERMANENT, and the file stays', async (library) => {
    await put(library, 'V1', 1n, text(1n));
    await put(library, 'V1', 2n, Buffer.alloc(0));
    for (const position of [1n, 2n]) {
      await expect(put(library, 'V1', position, text(99n))).rejects.toMatchObject({ errorClass: 'PERMANENT' });
    }
    const volume = await mount(library, 'V1');
    expect([await readAll(volume, 1n), await readAll(volume, 2n)]).toEqual([text(1n), Buffer.alloc(0)]);
  });

  libraryTest('of several writers of one position, one succeeds', async (library) => {
    const contents = [randomBytes(2 * MB), randomBytes(2 * MB), randomBytes(2 * MB)];
    const results = await Promise.allSettled(contents.map((bytes) => put(library, 'V1', 1n, bytes)));
    expect(results.map((result) => result.status).sort()).toEqual(['fulfilled', 'rejected', 'rejected']);
    const written = contents[results.findIndex((result) => result.status === 'fulfilled')];
    expect(await readAll(await mount(library, 'V1'), 1n)).toEqual(written);
  });

  libraryTest('a write whose source fails throws that error, and leaves no file', async (library) => {
    await put(library, 'V1', 1n, text(1n));
    const fault = Object.assign(new Error('the source broke'), { code: 'ENOENT' });
    const broken = async function* () {
      yield randomBytes(2 * MB);
      throw fault;
    };
    await expect(library.write('V1', 2n, broken(), quiet())).rejects.toBe(fault);
    await expectNoFile(library, 2n);
  });
}

function describeAborts(libraryTest: LibraryTest): void {
  libraryTest('an aborted write rejects with the reason and leaves no file, at any time', async (library) => {
    await put(library, 'V1', 1n, text(1n));
    const reason = new Error('stop');
    for (const chunksBefore of [0, 1, 2]) {
      const abort = new AbortController();
      const bytes = async function* () {
        for (let chunk = 0; chunk < 2; chunk++) {
          if (chunk === chunksBefore) abort.abort(reason);
          yield randomBytes(MB);
        }
        abort.abort(reason);
      };
      await expect(library.write('V1', 2n, bytes(), abort.signal)).rejects.toBe(reason);
      await expectNoFile(library, 2n);
    }
    await expect(library.write('V1', 2n, from([]), AbortSignal.abort(reason))).rejects.toBe(reason);
    await expectNoFile(library, 2n);
  });

  libraryTest('a write closes its files, also when it fails or is aborted', async (library) => {
    const before = openFiles();
    await put(library, 'V1', 1n, randomBytes(3 * MB));
    await expect(put(library, 'V1', 1n, text(1n))).rejects.toThrow();
    await expect(library.write('V1', 2n, split(randomBytes(MB)), AbortSignal.abort())).rejects.toThrow();
    expect(openFiles()).toEqual(before);
  });
}

function describeSync(libraryTest: LibraryTest): void {
  libraryTest('files are there after a sync, which may be repeated', async (library) => {
    for (const position of [1n, 2n, 3n]) await put(library, 'V1', position, text(position));
    await put(library, 'V2', 1n, text(7n));
    const before = openFiles();
    for (const volume of ['V1', 'V1', 'V3']) await library.sync?.(volume, quiet());
    expect(openFiles()).toEqual(before);
    const volume = await mount(library, 'V1');
    for (const position of [1n, 2n, 3n]) expect(await readAll(volume, position)).toEqual(text(position));
    await volume.unmount();
    await library.sync?.('V2', quiet());
    expect(await readAll(await mount(library, 'V2'), 1n)).toEqual(text(7n));
  });

  libraryTest('an aborted sync rejects with the reason', async (library) => {
    if (!library.sync) return;
    await put(library, 'V1', 1n, text(1n));
    const reason = new Error('enough');
    await expect(library.sync('V1', AbortSignal.abort(reason))).rejects.toBe(reason);
  });
}

async function expectNoFile(library: WritableLibrary, position: bigint): Promise<void> {
  const volume = await mount(library, 'V1');
  await expect(readAll(volume, position)).rejects.toMatchObject({ errorClass: 'PERMANENT' });
  await volume.unmount();
}

async function* from(chunks: Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks;
}
