/** The suite that every drive library passes: each sentence on reading of the contract in src/tape/backend.ts, tried out. */
import { randomBytes } from 'node:crypto';
import { readdirSync, readlinkSync } from 'node:fs';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { FileOnVolume, MountedVolume, TapeBackend, WritableBackend } from '../../src/tape/backend.js';
import './compare-bytes.js';

export const MB = 1024 * 1024;

/** Sizes at the borders of the chunks that back ends read and write in. */
const SIZES = [0, 1, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, MB - 1, MB, MB + 1, 2 * MB + 123];

/** A drive library with a hand on its volumes; it has the drives `drive-1` to `drive-4`. */
export interface DriveBench {
  backend: TapeBackend;
  /**
   * On tape from now on, on a volume that is made when it does not exist. Nothing is put on a volume that is mounted.
   * @param path logical; where the library goes by paths the file is found by it, else by the position
   */
  put(volume: string, position: bigint, bytes: Uint8Array, path: string): Promise<unknown>;
  /** Takes away what the test has made. */
  close?(): Promise<void> | void;
}

export type CreateBench = () => DriveBench | Promise<DriveBench>;

/** @param create makes an empty library */
export function describeBackend(name: string, create: CreateBench): void {
  const createBench = async () => {
    const bench = await create();
    onTestFinished(async () => await bench.close?.());
    return new Bench(bench);
  };
  describe(`the ${name} back end`, () => {
    describeBytes(createBench);
    describeRefusals(createBench);
    describeAborts(createBench);
    describeDrives(createBench);
  });
}

class Bench {
  readonly backend: TapeBackend;
  private readonly bench: DriveBench;

  constructor(bench: DriveBench) {
    this.bench = bench;
    this.backend = bench.backend;
  }

  async put(volume: string, position: bigint, bytes: Uint8Array): Promise<void> {
    await this.bench.put(volume, position, bytes, at(position).path);
  }

  async mount(volume: string, drive?: string): Promise<MountedVolume> {
    return await mount(this.backend, volume, drive);
  }
}

type Create = () => Promise<Bench>;

function describeBytes(create: Create): void {
  test('a file is read as it is on tape, whatever its size', async () => {
    const bench = await create();
    const contents = SIZES.map((size) => randomBytes(size));
    for (const [index, bytes] of contents.entries()) await bench.put('V1', BigInt(index), bytes);
    const volume = await bench.mount('V1');
    for (const [index, bytes] of contents.entries()) {
      expect((await readAll(volume, BigInt(index))).equals(bytes)).toBe(true);
    }
    await volume.unmount();
  });

  test('files are read in any order, and as often as wanted', async () => {
    const bench = await create();
    for (const position of [7n, 2n, 1_000_000_000_000n]) await bench.put('V1', position, text(position));
    const volume = await bench.mount('V1');
    for (const position of [1_000_000_000_000n, 2n, 7n, 2n, 2n]) {
      expect(await readAll(volume, position)).toEqual(text(position));
    }
    await volume.unmount();
    const again = await bench.mount('V1');
    expect(await readAll(again, 7n)).toEqual(text(7n));
    await again.unmount();
  });

  test('a chunk that was read belongs to the reader', async () => {
    const bench = await create();
    await bench.put('V1', 1n, Buffer.from('aaaaaaaaaabbbbbbbbbbcccccccccc'));
    const volume = await bench.mount('V1');
    const read: Uint8Array[] = [];
    for await (const chunk of volume.read(at(1n), quiet())) {
      read.push(Buffer.from(chunk));
      chunk.fill(0);
    }
    expect(Buffer.concat(read).toString()).toBe('aaaaaaaaaabbbbbbbbbbcccccccccc');
    expect((await readAll(volume, 1n)).toString()).toBe('aaaaaaaaaabbbbbbbbbbcccccccccc');
    await volume.unmount();
  });
}

function describeRefusals(create: Create): void {
  test('a volume that the library does not have is MEDIA at its mount', async () => {
    const bench = await create();
    // a back end may say of a library without any volume that it is not there
    await expect(bench.mount('V1')).rejects.toMatchObject({
      errorClass: expect.stringMatching(/^(MEDIA|TRANSIENT)$/),
      message: expect.stringContaining('V1'),
    });
    await bench.put('V1', 1n, text(1n));
    await expect(bench.mount('V2')).rejects.toMatchObject({
      errorClass: 'MEDIA',
      message: expect.stringContaining('V2'),
    });
  });

  test('a file that is not there is PERMANENT, and the volume goes on', async () => {
    const bench = await create();
    await bench.put('V1', 1n, text(1n));
    const volume = await bench.mount('V1');
    await expect(readAll(volume, 2n)).rejects.toMatchObject({
      errorClass: 'PERMANENT',
      message: expect.stringContaining('2'),
    });
    expect(await readAll(volume, 1n)).toEqual(text(1n));
    await volume.unmount();
  });
}

function describeAborts(create: Create): void {
  test('an aborted mount rejects with the reason, and the drive goes on', async () => {
    const bench = await create();
    await bench.put('V1', 1n, text(1n));
    const reason = new Error('stop');
    const aborted = AbortSignal.abort(reason);
    expect(await bench.backend.mount('V1', 'drive-1', aborted).catch((error: unknown) => error)).toBe(reason);
    const volume = await bench.mount('V1');
    expect(await readAll(volume, 1n)).toEqual(text(1n));
    await volume.unmount();
  });

  test('an aborted read rejects with the reason, and the volume goes on', async () => {
    const bench = await create();
    const bytes = randomBytes(5 * MB);
    await bench.put('V1', 1n, bytes);
    const volume = await bench.mount('V1');
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
    await volume.unmount();
  });

  test('reading that stops early, fails or is aborted lets go of the file', async () => {
    const bench = await create();
    await bench.put('V1', 1n, randomBytes(3 * MB));
    const volume = await bench.mount('V1');
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
    expect(openFiles().filter((file) => !before.includes(file))).toEqual([]);
  });
}

function describeDrives(create: Create): void {
  test('several drives read at once', async () => {
    const bench = await create();
    const contents = new Map(['V1', 'V2', 'V3', 'V4'].map((volume) => [volume, randomBytes(3 * MB)]));
    for (const [volume, bytes] of contents) await bench.put(volume, 1n, bytes);
    const working = [...contents].map(async ([name, bytes], index) => {
      const volume = await bench.mount(name, `drive-${index + 1}`);
      expect((await readAll(volume, 1n)).equals(bytes)).toBe(true);
      expect((await readAll(volume, 1n)).equals(bytes)).toBe(true);
      await volume.unmount();
    });
    await Promise.all(working);
  });

  test('a drive that is unmounted takes another volume, and another drive the first one', async () => {
    const bench = await create();
    await bench.put('V1', 1n, text(1n));
    await bench.put('V2', 1n, text(2n));
    const first = await bench.mount('V1', 'drive-1');
    await first.unmount();
    const [second, third] = await Promise.all([bench.mount('V2', 'drive-1'), bench.mount('V1', 'drive-2')]);
    expect([await readAll(second, 1n), await readAll(third, 1n)]).toEqual([text(2n), text(1n)]);
    await Promise.all([second.unmount(), third.unmount()]);
  });
}

/** A signal that never aborts. */
export function quiet(): AbortSignal {
  return new AbortController().signal;
}

export async function mount(backend: TapeBackend, volume: string, drive = 'drive-1'): Promise<MountedVolume> {
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

/** A file of the suite: by its position, or by its path, which tells its position. */
export function at(position: bigint): FileOnVolume {
  return { path: `/suite/${position}`, position, size: 0n };
}

export async function readAll(volume: MountedVolume, position: bigint): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of volume.read(at(position), quiet())) chunks.push(chunk);
  return Buffer.concat(chunks);
}

export function text(value: bigint): Buffer {
  return Buffer.from(`the file at ${value}`);
}

export async function* split(bytes: Uint8Array, size = 300_000): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < bytes.length; start += size) yield bytes.subarray(start, start + size);
}

/** The files that this process has open, where the system tells. */
export function openFiles(): string[] {
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
