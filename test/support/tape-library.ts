/** Contract suite of drive libraries: tests each sentence on reading in src/tape/drive-library.ts. */
import { randomBytes } from 'node:crypto';
import { readdirSync, readlinkSync } from 'node:fs';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { DriveLibrary, FileOnVolume, MountedVolume, WritableLibrary } from '../../src/tape/drive-library.js';
import './compare-bytes.js';

export const MB = 1024 * 1024;

/** File sizes around the sizes of the chunks that libraries read and write. */
const SIZES = [0, 1, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, MB - 1, MB, MB + 1, 2 * MB + 123];

/** A drive library with the drives `drive-1` to `drive-4`, and a function that writes to its volumes. */
export interface DriveBench {
  library: DriveLibrary;
  /**
   * Writes a file to a volume that is not mounted. Creates the volume if necessary.
   * @param path of the file, for libraries that find files by path
   */
  put(volume: string, position: bigint, bytes: Uint8Array, path: string): Promise<unknown>;
  close?(): Promise<void> | void;
}

interface Bench {
  library: DriveLibrary;
  put(volume: string, position: bigint, bytes: Uint8Array): Promise<unknown>;
  mount(volume: string, drive?: string): Promise<MountedVolume>;
}

type BenchTest = (name: string, run: (bench: Bench) => Promise<void>) => void;

/** @param create makes an empty library */
export function describeLibrary(name: string, create: () => DriveBench | Promise<DriveBench>): void {
  const benchTest: BenchTest = (what, run) =>
    test(what, async () => {
      const bench = await create();
      onTestFinished(async () => await bench.close?.());
      await run({
        library: bench.library,
        put: (volume, position, bytes) => bench.put(volume, position, bytes, at(position).path),
        mount: (volume, drive) => mount(bench.library, volume, drive),
      });
    });
  describe(`the ${name} library`, () => {
    describeBytes(benchTest);
    describeRefusals(benchTest);
    describeAborts(benchTest);
    describeDrives(benchTest);
  });
}

function describeBytes(benchTest: BenchTest): void {
  benchTest('a file of any size is read exactly', async (bench) => {
    const contents = SIZES.map((size) => randomBytes(size));
    for (const [index, bytes] of contents.entries()) await bench.put('V1', BigInt(index), bytes);
    const volume = await bench.mount('V1');
    for (const [index, bytes] of contents.entries()) expect(await readAll(volume, BigInt(index))).toEqual(bytes);
    await volume.unmount();
  });

  benchTest('files are read in any order, and repeatedly', async (bench) => {
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

  benchTest('a reader may change the chunks that it gets', async (bench) => {
    const bytes = Buffer.from('aaaaaaaaaabbbbbbbbbbcccccccccc');
    await bench.put('V1', 1n, Buffer.from(bytes));
    const volume = await bench.mount('V1');
    const read: Uint8Array[] = [];
    for await (const chunk of volume.read(at(1n), quiet())) {
      read.push(Buffer.from(chunk));
      chunk.fill(0);
    }
    expect([Buffer.concat(read), await readAll(volume, 1n)]).toEqual([bytes, bytes]);
    await volume.unmount();
  });
}

function describeRefusals(benchTest: BenchTest): void {
  benchTest('an unknown volume is MEDIA when it is mounted', async (bench) => {
    // a library without volumes may report that it is unavailable
    await expect(bench.mount('V1')).rejects.toMatchObject({
      errorClass: expect.stringMatching(/^(MEDIA|TRANSIENT)$/),
      message: expect.stringContaining('V1'),
    });
    await bench.put('V1', 1n, text(1n));
    const message = expect.stringContaining('V2');
    await expect(bench.mount('V2')).rejects.toMatchObject({ errorClass: 'MEDIA', message });
  });

  benchTest('an unknown file is PERMANENT, and other files can be read', async (bench) => {
    await bench.put('V1', 1n, text(1n));
    const volume = await bench.mount('V1');
    const message = expect.stringContaining('2');
    await expect(readAll(volume, 2n)).rejects.toMatchObject({ errorClass: 'PERMANENT', message });
    expect(await readAll(volume, 1n)).toEqual(text(1n));
    await volume.unmount();
  });
}

function describeAborts(benchTest: BenchTest): void {
  const reason = new Error('stop');

  benchTest('an aborted mount rejects with the reason, and the drive can be used', async (bench) => {
    await bench.put('V1', 1n, text(1n));
    await expect(bench.library.mount('V1', 'drive-1', AbortSignal.abort(reason))).rejects.toBe(reason);
    const volume = await bench.mount('V1');
    expect(await readAll(volume, 1n)).toEqual(text(1n));
    await volume.unmount();
  });

  benchTest('an aborted read rejects with the reason, and the volume can be read', async (bench) => {
    const bytes = randomBytes(5 * MB);
    await bench.put('V1', 1n, bytes);
    const volume = await bench.mount('V1');
    const abort = new AbortController();
    let chunks = 0;
    const read = async () => {
      for await (const _chunk of volume.read(at(1n), abort.signal)) {
        chunks++;
        abort.abort(reason);
      }
    };
    await expect(read()).rejects.toBe(reason);
    expect(chunks).toBe(1);
    await expect(volume.read(at(1n), AbortSignal.abort(reason))[Symbol.asyncIterator]().next()).rejects.toBe(reason);
    expect(await readAll(volume, 1n)).toEqual(bytes);
    await volume.unmount();
  });

  benchTest('a read closes its file when it stops early, fails or is aborted', async (bench) => {
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

function describeDrives(benchTest: BenchTest): void {
  benchTest('several drives read at once', async (bench) => {
    const contents = new Map(['V1', 'V2', 'V3', 'V4'].map((volume) => [volume, randomBytes(3 * MB)]));
    for (const [volume, bytes] of contents) await bench.put(volume, 1n, bytes);
    const working = [...contents].map(async ([name, bytes], index) => {
      const volume = await bench.mount(name, `drive-${index + 1}`);
      for (let time = 0; time < 2; time++) expect(await readAll(volume, 1n)).toEqual(bytes);
      await volume.unmount();
    });
    await Promise.all(working);
  });

  benchTest('after an unmount, another drive can mount the volume', async (bench) => {
    await bench.put('V1', 1n, text(1n));
    await bench.put('V2', 1n, text(2n));
    const first = await bench.mount('V1', 'drive-1');
    await first.unmount();
    const [second, third] = await Promise.all([bench.mount('V2', 'drive-1'), bench.mount('V1', 'drive-2')]);
    expect([await readAll(second, 1n), await readAll(third, 1n)]).toEqual([text(2n), text(1n)]);
    await Promise.all([second.unmount(), third.unmount()]);
  });
}

/** Returns a signal that never aborts. */
export function quiet(): AbortSignal {
  return new AbortController().signal;
}

export async function mount(library: DriveLibrary, volume: string, drive = 'drive-1'): Promise<MountedVolume> {
  return await library.mount(volume, drive, quiet());
}

export const put = (library: WritableLibrary, volume: string, position: bigint, bytes: Uint8Array): Promise<bigint> =>
  library.write(volume, position, split(bytes), quiet());

/** Returns a file of the suite. The path contains the file's position. */
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

/** Returns the paths of this process' open files, on Linux. */
export function openFiles(): string[] {
  if (process.platform !== 'linux') return [];
  const names = readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return ''; // the descriptor of /proc/self/fd itself
    }
  });
  return names.filter((name) => name.includes('tapegate-test')).sort();
}
