/**
 * Shared steps of the contract suite of staging libraries: writing files to tape, staging files, and waiting for files.
 */
import type { Demand, FileState, StagedFile, StagingLibrary } from '../../src/tape/staging.js';
import type { StagingBench } from './staging-library.js';
import { quiet } from './tape-library.js';
import { waitFor } from './wait.js';

/** Returns a file of volume V1 without a position, as in a catalogue that does not know positions on tape. */
export function staged(path: string, size = 0): StagedFile {
  return { path, volume: 'V1', position: null, size: BigInt(size) };
}

/** Writes a file with different bytes to tape for each path. */
export async function putFiles(bench: StagingBench, paths: readonly string[]): Promise<StagedFile[]> {
  for (const path of paths) await bench.put(path, bytesOf(path));
  return paths.map((path) => staged(path, bytesOf(path).length));
}

export function bytesOf(path: string): Buffer {
  return Buffer.from(`the bytes of ${path}`);
}

export interface Asked {
  demand: Demand;
  /** Latest state that the library reported for each file. */
  states: Map<string, FileState>;
}

export async function ask(library: StagingLibrary, files: readonly StagedFile[]): Promise<Asked> {
  const { id, known } = await library.stage(files, quiet());
  return { demand: { id, files }, states: byPath(known) };
}

/** Polls once for all files that are neither ready nor failed. */
export async function look(library: StagingLibrary, { demand, states }: Asked): Promise<void> {
  const open = demand.files.filter(({ path }) => !isSettled(states.get(path)));
  if (open.length === 0) return;
  for (const [path, state] of byPath(await library.poll({ ...demand, files: open }, quiet()))) states.set(path, state);
}

/** Polls until each of these files is ready or has failed. */
export async function settle(
  library: StagingLibrary,
  asked: Asked,
  paths = asked.demand.files.map(({ path }) => path),
): Promise<Map<string, FileState>> {
  await waitFor(`${paths.length} files to be ready or to fail`, async () => {
    await look(library, asked);
    return paths.every((path) => isSettled(asked.states.get(path)));
  });
  return asked.states;
}

/** Stages files, and waits until they are on disk. */
export async function makeReady(bench: StagingBench, files: readonly StagedFile[]): Promise<Asked> {
  const asked = await ask(bench.library, files);
  await bench.arrive(files.map(({ path }) => path));
  await settle(bench.library, asked);
  return asked;
}

function isSettled(state: FileState | undefined): boolean {
  return state?.state === 'ready' || state?.state === 'failed';
}

/** Returns states by path. @throws Error if a path occurs twice in the answer */
export function byPath(states: readonly FileState[]): Map<string, FileState> {
  const found = new Map(states.map((state) => [state.path, state]));
  if (found.size !== states.length) throw new Error(`an answer says twice what one file is: ${JSON.stringify(states)}`);
  return found;
}

/** Returns the reported state of each file as a word. */
export function wordsOf(states: ReadonlyMap<string, FileState>, paths: readonly string[]): string[] {
  return paths.map((path) => states.get(path)?.state ?? 'nothing');
}

export async function readStaged(library: StagingLibrary, file: StagedFile, from = 0n): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of library.read(file, from, quiet())) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Returns the error of a call. Throws an error if the call succeeds. */
export async function errorOf(call: Promise<unknown>): Promise<unknown> {
  const [result] = await Promise.allSettled([call]);
  if (result.status === 'fulfilled') throw new Error(`not refused, but ${JSON.stringify(result.value)}`);
  return result.reason;
}
