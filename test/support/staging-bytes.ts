/** Contract suite of staging libraries: tests that read the bytes of files. */
import { randomBytes } from 'node:crypto';
import { expect } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { LibraryError } from '../../src/tape/drive-library.js';
import { NotReadyError } from '../../src/tape/staging.js';
import { ask, bytesOf, errorOf, makeReady, putFiles, readStaged, staged, wordsOf } from './staging-bench.js';
import type { BenchTest, StagingBench } from './staging-library.js';
import { quiet } from './tape-library.js';
import { waitFor } from './wait.js';

const MB = 1024 * 1024;

/** File sizes around the sizes of the chunks that libraries read. */
const SIZES = [0, 1, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, MB - 1, MB, MB + 1, 2 * MB + 123];

/** Offsets at which to start reading a file of this size. */
const offsetsIn = (size: number) =>
  [...new Set([0, 1, 64 * 1024, MB - 1, MB, size - 1, size])].filter((from) => from >= 0 && from <= size);

export function describeStagedBytes(benchTest: BenchTest): void {
  benchTest('a file is read as it is, whatever its size and from any byte on', async (bench) => {
    const files = SIZES.map((size) => staged(`/suite/of-${size}`, size));
    const contents = SIZES.map((size) => randomBytes(size));
    for (const [index, { path }] of files.entries()) await bench.put(path, contents[index] ?? Buffer.alloc(0));
    const { states } = await makeReady(bench, files);
    const paths = files.map(({ path }) => path);
    expect(wordsOf(states, paths)).toEqual(paths.map(() => 'ready'));
    for (const [index, file] of files.entries()) {
      const bytes = contents[index] ?? Buffer.alloc(0);
      for (const from of offsetsIn(bytes.length)) {
        const read = await readStaged(bench.library, file, BigInt(from));
        expect([file.path, from, read.equals(bytes.subarray(from))]).toEqual([file.path, from, true]);
      }
    }
  });

  benchTest('a chunk that was read belongs to the reader', async (bench) => {
    const [file, bytes] = await putLarge(bench);
    const read: Uint8Array[] = [];
    for await (const chunk of bench.library.read(file, 0n, quiet())) {
      read.push(Buffer.from(chunk));
      chunk.fill(0);
    }
    expect(Buffer.concat(read).equals(bytes)).toBe(true);
    expect((await readStaged(bench.library, file)).equals(bytes)).toBe(true);
  });

  benchTest('files are read side by side, one of them twice', async (bench) => {
    const [file, bytes] = await putLarge(bench);
    const others = await putFiles(bench, ['/suite/a', '/suite/b']);
    await makeReady(bench, others);
    const reads = [file, file, ...others].map((each) => readStaged(bench.library, each));
    const [first, second, a, b] = await Promise.all(reads);
    expect([first?.equals(bytes), second?.equals(bytes)]).toEqual([true, true]);
    expect([a, b]).toEqual([bytesOf('/suite/a'), bytesOf('/suite/b')]);
  });

  benchTest('a read that stops early, fails or is aborted is let go, and the next one is whole', async (bench) => {
    const [file, bytes] = await putLarge(bench);
    for await (const _chunk of bench.library.read(file, 0n, quiet())) break;
    const failing = async () => {
      for await (const _chunk of bench.library.read(file, 0n, quiet())) throw new Error('the reader failed');
    };
    await expect(failing()).rejects.toThrow('the reader failed');
    const abort = new AbortController();
    const reason = new Error('stop');
    const aborted = async () => {
      for await (const _chunk of bench.library.read(file, 1n, abort.signal)) abort.abort(reason);
    };
    expect(await errorOf(aborted())).toBe(reason);
    const late = bench.library.read(file, 0n, AbortSignal.abort(reason))[Symbol.asyncIterator]();
    expect(await errorOf(late.next())).toBe(reason);
    await waitFor('the reads to end', async () => ((await bench.countReads?.()) ?? 0) === 0);
    expect((await readStaged(bench.library, file)).equals(bytes)).toBe(true);
  });

  benchTest('a file that is not there is PERMANENT', async (bench) => {
    const error = await errorOf(readStaged(bench.library, staged('/suite/missing', 7)));
    expect(error).toBeInstanceOf(TapeError);
    expect(error).not.toBeInstanceOf(LibraryError);
    expect(error).toMatchObject({ errorClass: 'PERMANENT', message: expect.stringContaining('/suite/missing') });
  });

  benchTest('a file that is on tape alone is not ready, whether it was asked for or not', async (bench) => {
    const [file = staged('')] = await putFiles(bench, ['/suite/a']);
    expect(await errorOf(readStaged(bench.library, file))).toBeInstanceOf(NotReadyError);
    await ask(bench.library, [file]);
    expect(await errorOf(readStaged(bench.library, file))).toBeInstanceOf(NotReadyError);
  });

  benchTest('a file that has left the disk is not ready, until it was asked for again', async (bench) => {
    const files = await putFiles(bench, ['/suite/a', '/suite/b']);
    const { demand } = await makeReady(bench, files);
    await bench.evict('/suite/a');
    expect(await bench.isStaged('/suite/a')).toBe(false);
    expect(await errorOf(readStaged(bench.library, staged('/suite/a', 7)))).toBeInstanceOf(NotReadyError);
    expect(await readStaged(bench.library, staged('/suite/b'))).toEqual(bytesOf('/suite/b'));
    const polled = await bench.library.poll(demand, quiet());
    expect(polled.filter(({ state }) => state === 'failed')).toEqual([]);
    await makeReady(bench, files);
    expect(await readStaged(bench.library, staged('/suite/a'))).toEqual(bytesOf('/suite/a'));
  });
}

/** Stages a file that is larger than all buffers between the library and the test. */
async function putLarge(bench: StagingBench) {
  const bytes = randomBytes(8 * MB);
  const file = staged('/suite/large', bytes.length);
  await bench.put(file.path, bytes);
  await makeReady(bench, [file]);
  return [file, bytes] as const;
}
