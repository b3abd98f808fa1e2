/** The suite that every tape back end passes: each sentence of the contract in src/tape/backend.ts, tried out. */
import { randomBytes } from 'node:crypto';
import { readdirSync, readlinkSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import type { FileOnVolume, MountedVolume, WritableBackend } from '../../src/tape/backend.js';

const MB = 1024 * 1024;

/** Sizes at the borders of the chunks that back ends read and write in. */
const SIZES = [0, 1, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, MB - 1, MB, MB + 1, 5 * MB + 123];

/** @param create makes an empty library */
export function describeBackend(name: string, create: () => WritableBackend): void {
  describe(`the ${name} back end`, () => {
    describeBytes(create);
    describeRefusals(create);
    describeAborts(create);
    describeSync(create);
    describeDrives(create);
  });
}

function describeBytes(create: () => WritableBackend): void {
  test('a file is read back as it was written, whatever its size', async () => {
    const backend = create();
    const contents = SIZES.map((size) => randomBytes(size));
    for (const [index, bytes] of contents.entries()) {
      expect(await put(backend, 'V1', BigInt(index), bytes)).toBe(BigInt(bytes.length));
    }
    const volume = await mount(backend, 'V1');
    for (const [index, bytes] of contents.entries()) {
      expect((await readAll(volume, BigInt(index))).equals(bytes)).toBe(true);
    }
    await volume.unmount();
  });

  test('the borders of the chunks that are written leave no trace', async () => {
    const backend = create();
    const bytes = randomBytes(3 * MB);
    const borders = [0, 1, 1, 7, MB - 1, MB, MB + 1, bytes.length];
    const chunks = borders.map((start, index) => bytes.subarray(start, borders[index + 1] ?? bytes.length));
    expect(await backend.write('V1', 1n, from([bytes.subarray(0, 0), ...chunks]), quiet())).toBe(BigInt(bytes.length));
    expect((await readAll(await mount(backend, 'V1'), 1n)).equals(bytes)).toBe(true);
  });

  test('files are read in any order, and as often as wanted', async () => {
    const backend = create();
    for (const position of [7n, 2n, 1_000_000_000_000n]) await put(backend, 'V1', position, text(position));
    const volume = await mount(backend, 'V1');
    for (const position of [1_000_000_000_000n, 2n, 7n, 2n, 2n]) {
      expect(await readAll(volume, position)).toEqual(text(position));
    }
    await volume.unmount();
    const again = await mount(backend, 'V1');
    expect(await readAll(again, 7n)).toEqual(text(7n));
    await again.unmount();
  });

  test('a chunk that was read belongs to the reader, and one that is written to the writer', async () => {
    const backend = create();
    const shared = Buffer.alloc(10);
    const reused = async function* () {
      for (const letter of ['a', 'b', 'c']) yield shared.fill(letter);
    };
    await backend.write('V1', 1n, reused(), quiet());
    const volume = await mount(backend, 'V1');
    const read: Uint8Array[] = [];
    for await (const chunk of volume.read(at(1n), quiet())) {
      read.push(Buffer.from(chunk));
      chunk.fill(0);
    }
    expect(Buffer.concat(read).toString()).toBe('aaaaaaaaaabbbbbbbbbbcccccccccc');
    expect((await readAll(volume, 1n)).toString()).toBe('aaaaaaaaaabbbbbbbbbbcccccccccc');
  });
}

function describeRefusals(create: () => WritableBackend): void {
  test('a volume that the library does not have is MEDIA at its mount', async () => {
    const backend = create();
    // a back end may say of a library without any volume that it is not there
    await expect(mount(backend, 'V1')).rejects.toMatchObject({
      errorClass: expect.stringMatching(/^(MEDIA|TRANSIENT)$/),
      message: expect.stringContaining('V1'),
    });
    await put(backend, 'V1', 1n, text(1n));
    await expect(mount(backend, 'V2')).rejects.toMatchObject({
      errorClass: 'MEDIA',
      message: expect.stringContaining('V2'),
    });
  });

  test('a position without a file is PERMANENT, and the volume goes on', async () => {
    const backend = create();
    await put(backend, 'V1', 1n, text(1n));
    const volume = await mount(backend, 'V1');
    await expect(readAll(volume, 2n)).rejects.toMatchObject({
      errorClass: 'PERMANENT',
      message: expect.stringContaining('2'),
    });
    expect(await readAll(volume, 1n)).toEqual(text(1n));
    await volume.unmount();
  });

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
  test('an aborted mount rejects with the reason', async () => {
    const backend = create();
    await put(backend, 'V1', 1n, text(1n));
    const reason = new Error('stop');
    const aborted = AbortSignal.abort(reason);
    expect(await backend.mount('V1', 'drive-1', aborted).catch((error: unknown) => error)).toBe(reason);
  });

  test('an aborted read rejects with the reason, and the volume goes on', async () => {
    const backend = create();
    const bytes = randomBytes(5 * MB);
    await put(backend, 'V1', 1n, bytes);
    const volume = await mount(backend, 'V1');
    const abort = new AbortController();
    const reason = new Error('stop');
    let chunks = 0;
    const read = async () => {
      for await (const _chunk of volume.read(at(1n), abort.signal)) {
        chunks++;
        abort.abort(reason);
      }
    };
    expect(await read().catch((error: unknown) => error)).toBe(reason);
    expect(chunks).toBe(1);
    const late = volume.read(at(1n), AbortSignal.abort(reason))[Symbol.asyncIterator]();
    expect(await late.next().catch((error: unknown) => error)).toBe(reason);
    expect((await readAll(volume, 1n)).equals(bytes)).toBe(true);
  });

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

  test('reading that stops early, fails or is aborted lets go of the file', async () => {
    const backend = create();
    await put(backend, 'V1', 1n, randomBytes(3 * MB));
    const volume = await mount(backend, 'V1');
    const before = openFiles();
    for await (const _chunk of volume.read(at(1n), quiet())) break;
    const stopped = async () => {
      for await (const _chunk of volume.read(at(1n), quiet())) throw new Error('the reader failed');
    };
    await expect(stopped()).rejects.toThrow('the reader failed');
    await expect(readAll(volume, 2n)).rejects.toThrow();
    const abort = new AbortController();
    const aborted = async () => {
      for await (const _chunk of volume.read(at(1n), abort.signal)) abort.abort();
    };
    await expect(aborted()).rejects.toThrow();
    await readAll(volume, 1n);
    expect(openFiles()).toEqual(before);
    await volume.unmount();
    expect(openFiles()).toEqual(before);
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
  test('several drives read and write at once', async () => {
    const backend = create();
    const contents = new Map(['V1', 'V2', 'V3', 'V4'].map((volume) => [volume, randomBytes(3 * MB)]));
    for (const [volume, bytes] of contents) await put(backend, volume, 1n, bytes);
    const working = [...contents].map(async ([name, bytes], index) => {
      const volume = await mount(backend, name, `drive-${index + 1}`);
      expect((await readAll(volume, 1n)).equals(bytes)).toBe(true);
      expect((await readAll(volume, 1n)).equals(bytes)).toBe(true);
      await volume.unmount();
    });
    const written = ['V5', 'V6'].map((name) => put(backend, name, 1n, text(5n)));
    await Promise.all([...working, ...written]);
    expect(await readAll(await mount(backend, 'V6'), 1n)).toEqual(text(5n));
  });

  test('a drive that is unmounted takes another volume, and another drive the first one', async () => {
    const backend = create();
    await put(backend, 'V1', 1n, text(1n));
    await put(backend, 'V2', 1n, text(2n));
    const first = await mount(backend, 'V1', 'drive-1');
    await first.unmount();
    const [second, third] = await Promise.all([mount(backend, 'V2', 'drive-1'), mount(backend, 'V1', 'drive-2')]);
    expect([await readAll(second, 1n), await readAll(third, 1n)]).toEqual([text(2n), text(1n)]);
    await Promise.all([second.unmount(), third.unmount()]);
  });
}

async function expectNothingAt(backend: WritableBackend, position: bigint): Promise<void> {
  const volume = await mount(backend, 'V1');
  await expect(readAll(volume, position)).rejects.toMatchObject({ errorClass: 'PERMANENT' });
  await volume.unmount();
}

/** A signal that never aborts. */
export function quiet(): AbortSignal {
  return new AbortController().signal;
}

export async function mount(backend: WritableBackend, volume: string, drive = 'drive-1'): Promise<MountedVolume> {
  return await backend.mount(volume, drive, quiet());
}

export async function put(
  backend: WritableBackend,
  volume: string,
  position: bigint,
  bytes: Uint8Array,
): Promise<bigint> {
  return await backend.write(volume, position, split(bytes), quiet());
}

/** A file by its position; what the catalogue knows beside that is nothing to a back end that goes by it. */
export function at(position: bigint): FileOnVolume {
  return { path: `/suite/${position}`, position, size: 0n };
}

export async function readAll(volume: MountedVolume, position: bigint): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of volume.read(at(position), quiet())) chunks.push(chunk);
  return Buffer.concat(chunks);
}

function text(value: bigint): Buffer {
  return Buffer.from(`the file at ${value}`);
}

async function* from(chunks: Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks;
}

async function* split(bytes: Uint8Array, size = 300_000): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < bytes.length; start += size) yield bytes.subarray(start, start + size);
}

/** The files that this process has open, where the system tells. */
function openFiles(): string[] {
  if (process.platform !== 'linux') return [];
  const names = readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return ''; // the descriptor of this very look
    }
  });
  return names.filter((name) => name.includes('tapegate-test')).sort();
}
