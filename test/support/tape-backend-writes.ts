/** The suite that every drive library passes to which `archive` writes: each sentence on writing of src/tape/backend.ts, tried out. */
import { randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { WritableBackend } from '../../src/tape/backend.js';
import { describeBackend, MB, mount, openFiles, put, quiet, readAll, split, text } from './tape-backend.js';

/** Reading and writing. @param create makes an empty library */
export function describeWritableBackend(name: string, create: () => WritableBackend): void {
  describeBackend(name, () => {
    const backend = create();
    return { backend, put: (volume, position, bytes) => put(backend, volume, position, bytes) };
  });
  describe(`the ${name} back end, written to`, () => {
    describeWrites(create);
    describeRefusals(create);
    describeAborts(create);
    describeSync(create);
    describeDrives(create);
  });
}

function describeWrites(create: () => WritableBackend): void {
  test('a write tells how many bytes it has written', async () => {
    const backend = create();
    for (const size of [0, 1, MB + 1]) {
      expect(await put(backend, 'V1', BigInt(size), randomBytes(size))).toBe(BigInt(size));
    }
  });

  test('the borders of the chunks that are written leave no trace', async () => {
    const backend = create();
    const bytes = randomBytes(3 * MB);
    const borders = [0, 1, 1, 7, MB - 1, MB, MB + 1, bytes.length];
    const chunks = borders.map((start, index) => bytes.subarray(start, borders[index + 1] ?? bytes.length));
    expect(await backend.write('V1', 1n, from([bytes.subarray(0, 0), ...chunks]), quiet())).toBe(BigInt(bytes.length));
    expect((await readAll(await mount(backend, 'V1'), 1n)).equals(bytes)).toBe(true);
  });

  test('a chunk that is written belongs to the writer', async () => {
    const backend = create();
    const shared = Buffer.alloc(10);
    const reused = async function* () {
      for (const letter of ['a', 'b', 'c']) yield shared.fill(letter);
    };
    await backend.write('V1', 1n, reused(), quiet());
    expect((await readAll(await mount(backend, 'V1'), 1n)).toString()).toBe('aaaaaaaaaabbbbbbbbbbcccccccccc');
  });
}

function describeRefusals(create: () => WritableBackend): void {
  test('a position that is taken is refused as PERMANENT and keeps its file', async () => {
    const backend = create();
    await put(backend, 'V1', 1n, text(1n));
    await put(backend, 'V1', 2n, Buffer.alloc(0));
    await expect(put(backend, 'V1', 1n, text(99n))).rejects.toMatchObject({ errorClass: 'PERMANENT' });
    await expect(put(backend, 'V1', 2n, text(99n))).rejects.toMatchObject({ errorClass: 'PERMANENT' });
    const volume = await mount(backend, 'V1');
    expect(await readAll(volume, 1n)).toEqual(text(1n));
    expect(await readAll(volume, 2n)).toEqual(Buffer.alloc(0));
  });

  test('of two writers of one position one wins, whole', async () => {
    const backend = create();
    const contents = [randomBytes(2 * MB), randomBytes(2 * MB), randomBytes(2 * MB)];
    const results = await Promise.allSettled(contents.map((bytes) => backend.write('V1', 1n, split(bytes), quiet())));
    expect(results.map((result) => result.status).sort()).toEqual(['fulfilled', 'rejected', 'rejected']);
    const winner = contents[results.findIndex((result) => result.status === 'fulfilled')];
    expect(winner?.equals(await readAll(await mount(backend, 'V1'), 1n))).toBe(true);
  });

  test('a write whose bytes fail throws what they threw, and leaves nothing', async () => {
    const backend = create();
    await put(backend, 'V1', 1n, text(1n));
    const fault = Object.assign(new Error('the source broke'), { code: 'ENOENT' });
    const broken = async function* () {
      yield randomBytes(2 * MB);
      throw fault;
    };
    expect(await backend.write('V1', 2n, broken(), quiet()).catch((error: unknown) => error)).toBe(fault);
    await expectNothingAt(backend, 2n);
  });
}

function describeAborts(create: () => WritableBackend): void {
  test('an aborted write rejects with the reason and leaves nothing, at whatever moment', async () => {
    const backend = create();
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
      expect(await backend.write('V1', 2n, bytes(), abort.signal).catch((error: unknown) => error)).toBe(reason);
      await expectNothingAt(backend, 2n);
    }
    const aborted = AbortSignal.abort(reason);
    expect(await backend.write('V1', 2n, from([]), aborted).catch((error: unknown) => error)).toBe(reason);
    await expectNothingAt(backend, 2n);
  });

  test('a write lets go of its files, however it ends', async () => {
    const backend = create();
    const before = openFiles();
    await put(backend, 'V1', 1n, randomBytes(3 * MB));
    await expect(put(backend, 'V1', 1n, text(1n))).rejects.toThrow();
    await expect(backend.write('V1', 2n, split(randomBytes(MB)), AbortSignal.abort())).rejects.toThrow();
    expect(openFiles()).toEqual(before);
  });
}

function describeSync(create: () => WritableBackend): void {
  test('what was written is there after a sync, which may be called with nothing to sync', async () => {
    const backend = create();
    for (const position of [1n, 2n, 3n]) await put(backend, 'V1', position, text(position));
    await put(backend, 'V2', 1n, text(7n));
    const before = openFiles();
    for (let call = 0; call < 2; call++) await backend.sync?.('V1', quiet());
    await backend.sync?.('V3', quiet());
    expect(openFiles()).toEqual(before);
    const volume = await mount(backend, 'V1');
    for (const position of [1n, 2n, 3n]) expect(await readAll(volume, position)).toEqual(text(position));
    await volume.unmount();
    await backend.sync?.('V2', quiet());
    expect(await readAll(await mount(backend, 'V2'), 1n)).toEqual(text(7n));
  });

  test('a sync that is aborted, or that fails, says so', async () => {
    const backend = create();
    if (!backend.sync) return;
    await put(backend, 'V1', 1n, text(1n));
    const reason = new Error('enough');
    await expect(backend.sync('V1', AbortSignal.abort(reason))).rejects.toBe(reason);
  });
}

function describeDrives(create: () => WritableBackend): void {
  test('several drives read while others write', async () => {
    const backend = create();
    const bytes = randomBytes(3 * MB);
    await put(backend, 'V1', 1n, bytes);
    const volume = await mount(backend, 'V1');
    const written = ['V5', 'V6'].map((name) => put(backend, name, 1n, text(5n)));
    expect((await readAll(volume, 1n)).equals(bytes)).toBe(true);
    await Promise.all(written);
    await volume.unmount();
    expect(await readAll(await mount(backend, 'V6'), 1n)).toEqual(text(5n));
  });
}

async function expectNothingAt(backend: WritableBackend, position: bigint): Promise<void> {
  const volume = await mount(backend, 'V1');
  await expect(readAll(volume, position)).rejects.toMatchObject({ errorClass: 'PERMANENT' });
  await volume.unmount();
}

async function* from(chunks: Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks;
}
