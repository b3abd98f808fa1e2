/** The contract suite of drive libraries to which `archive` writes: one test for each sentence on writing in src/tape/backend.ts. */
import { randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { WritableBackend } from '../../src/tape/backend.js';
import { describeBackend, MB, mount, openFiles, put, quiet, readAll, split, text } from './tape-backend.js';

type BackendTest = (name: string, run: (backend: WritableBackend) => Promise<void>) => void;

/** Reading and writing. @param create makes an empty library */
export function describeWritableBackend(name: string, create: () => WritableBackend): void {
  describeBackend(name, () => {
    const backend = create();
    return { backend, put: (volume, position, bytes) => put(backend, volume, position, bytes) };
  });
  const backendTest: BackendTest = (what, run) => test(what, () => run(create()));
  describe(`the ${name} library, written to`, () => {
    describeWrites(backendTest);
    describeRefusals(backendTest);
    describeAborts(backendTest);
    describeSync(backendTest);
  });
}

function describeWrites(backendTest: BackendTest): void {
  backendTest('a write returns the number of bytes', async (backend) => {
    for (const size of [0, 1, MB + 1]) {
      expect(await put(backend, 'V1', BigInt(size), randomBytes(size))).toBe(BigInt(size));
    }
  });

  backendTest('chunks of any size are written exactly', async (backend) => {
    const bytes = randomBytes(3 * MB);
    const borders = [0, 1, 1, 7, MB - 1, MB, MB + 1, bytes.length];
    const chunks = borders.map((start, index) => bytes.subarray(start, borders[index + 1] ?? bytes.length));
    expect(await backend.write('V1', 1n, from([bytes.subarray(0, 0), ...chunks]), quiet())).toBe(BigInt(bytes.length));
    expect(await readAll(await mount(backend, 'V1'), 1n)).toEqual(bytes);
  });

  backendTest('a writer may reuse its chunks', async (backend) => {
    const shared = Buffer.alloc(10);
    const reused = async function* () {
      for (const letter of ['a', 'b', 'c']) yield shared.fill(letter);
    };
    await backend.write('V1', 1n, reused(), quiet());
    expect((await readAll(await mount(backend, 'V1'), 1n)).toString()).toBe('aaaaaaaaaabbbbbbbbbbcccccccccc');
  });

  backendTest('drives read while others write', async (backend) => {
    const bytes = randomBytes(3 * MB);
    await put(backend, 'V1', 1n, bytes);
    const volume = await mount(backend, 'V1');
    const written = ['V5', 'V6'].map((name) => put(backend, name, 1n, text(5n)));
    expect(await readAll(volume, 1n)).toEqual(bytes);
    await Promise.all(written);
    await volume.unmount();
    expect(await readAll(await mount(backend, 'V6'), 1n)).toEqual(text(5n));
  });
}

function describeRefusals(backendTest: BackendTest): void {
  backendTest('a write to an occupied position is PERMANENT, and the file stays', async (backend) => {
    await put(backend, 'V1', 1n, text(1n));
    await put(backend, 'V1', 2n, Buffer.alloc(0));
    for (const position of [1n, 2n]) {
      await expect(put(backend, 'V1', position, text(99n))).rejects.toMatchObject({ errorClass: 'PERMANENT' });
    }
    const volume = await mount(backend, 'V1');
    expect([await readAll(volume, 1n), await readAll(volume, 2n)]).toEqual([text(1n), Buffer.alloc(0)]);
  });

  backendTest('of several writers of one position, one succeeds', async (backend) => {
    const contents = [randomBytes(2 * MB), randomBytes(2 * MB), randomBytes(2 * MB)];
    const results = await Promise.allSettled(contents.map((bytes) => put(backend, 'V1', 1n, bytes)));
    expect(results.map((result) => result.status).sort()).toEqual(['fulfilled', 'rejected', 'rejected']);
    const written = contents[results.findIndex((result) => result.status === 'fulfilled')];
    expect(await readAll(await mount(backend, 'V1'), 1n)).toEqual(written);
  });

  backendTest('a write whose source fails throws that error, and leaves no file', async (backend) => {
    await put(backend, 'V1', 1n, text(1n));
    const fault = Object.assign(new Error('the source broke'), { code: 'ENOENT' });
    const broken = async function* () {
      yield randomBytes(2 * MB);
      throw fault;
    };
    await expect(backend.write('V1', 2n, broken(), quiet())).rejects.toBe(fault);
    await expectNoFile(backend, 2n);
  });
}

function describeAborts(backendTest: BackendTest): void {
  backendTest('an aborted write rejects with the reason and leaves no file, at any time', async (backend) => {
    await put(backend, 'V1', 1n, text(1n));
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
      await expect(backend.write('V1', 2n, bytes(), abort.signal)).rejects.toBe(reason);
      await expectNoFile(backend, 2n);
    }
    await expect(backend.write('V1', 2n, from([]), AbortSignal.abort(reason))).rejects.toBe(reason);
    await expectNoFile(backend, 2n);
  });

  backendTest('a write closes its files, also when it fails or is aborted', async (backend) => {
    const before = openFiles();
    await put(backend, 'V1', 1n, randomBytes(3 * MB));
    await expect(put(backend, 'V1', 1n, text(1n))).rejects.toThrow();
    await expect(backend.write('V1', 2n, split(randomBytes(MB)), AbortSignal.abort())).rejects.toThrow();
    expect(openFiles()).toEqual(before);
  });
}

function describeSync(backendTest: BackendTest): void {
  backendTest('files are there after a sync, which may be repeated', async (backend) => {
    for (const position of [1n, 2n, 3n]) await put(backend, 'V1', position, text(position));
    await put(backend, 'V2', 1n, text(7n));
    const before = openFiles();
    for (const volume of ['V1', 'V1', 'V3']) await backend.sync?.(volume, quiet());
    expect(openFiles()).toEqual(before);
    const volume = await mount(backend, 'V1');
    for (const position of [1n, 2n, 3n]) expect(await readAll(volume, position)).toEqual(text(position));
    await volume.unmount();
    await backend.sync?.('V2', quiet());
    expect(await readAll(await mount(backend, 'V2'), 1n)).toEqual(text(7n));
  });

  backendTest('an aborted sync rejects with the reason', async (backend) => {
    if (!backend.sync) return;
    await put(backend, 'V1', 1n, text(1n));
    const reason = new Error('enough');
    await expect(backend.sync('V1', AbortSignal.abort(reason))).rejects.toBe(reason);
  });
}

async function expectNoFile(backend: WritableBackend, position: bigint): Promise<void> {
  const volume = await mount(backend, 'V1');
  await expect(readAll(volume, position)).rejects.toMatchObject({ errorClass: 'PERMANENT' });
  await volume.unmount();
}

async function* from(chunks: Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks;
}
