/** What the parts of the suite of staging libraries share: files that are put on tape, asked for, and waited for. */
import type { Demand, FileState, StagedFile, StagingLibrary } from '../../src/tape/staging.js';
import type { StagingBench } from './staging-library.js';
import { quiet } from './tape-library.js';
import { waitFor } from './wait.js';

/** A file as a catalogue knows it that has been told nothing of tapes. */
export function staged(path: string, size = 0): StagedFile {
  return { path, volume: 'V1', position: null, size: BigInt(size) };
}

/** On tape: a path a file, with bytes that differ. */
export async function putFiles(bench: StagingBench, paths: readonly string[]): Promise<StagedFile[]> {
  for (const path of paths) await bench.put(path, bytesOf(path));
  return paths.map((path) => staged(path, bytesOf(path).length));
}

export function bytesOf(path: string): Buffer {
  return Buffer.from(`the bytes of ${path}`);
}

export interface Asked {
  demand: Demand;
  /** The latest that was said of each file. */
  states: Map<string, FileState>;
}

export async function ask(library: StagingLibrary, files: readonly StagedFile[]): Promise<Asked> {
  const { id, known } = await library.stage(files, quiet());
  return { demand: { id, files }, states: byPath(known) };
}

/** One poll of all files that are neither ready nor failed. */
export async function look(library: StagingLibrary, { demand, states }: Asked): Promise<void> {
  const open = demand.files.filter(({ path }) => !isSettled(states.get(path)));
  if (open.length === 0) return;
  for (const [path, state] of byPath(await library.poll({ ...demand, files: open }, quiet()))) states.set(path, state);
}

/** Polls until each of these is ready or has failed. */
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

/** Asks for files and has them come to disk. */
export async function makeReady(bench: StagingBench, files: readonly StagedFile[]): Promise<Asked> {
  const asked = await ask(bench.library, files);
  await bench.arrive(files.map(({ path }) => path));
  await settle(bench.library, asked);
  return asked;
}

function isSettled(state: FileState | undefined): boolean {
  return state?.state === 'ready' || state?.state === 'failed';
}

/** @throws when a path is in the answer twice */
export function byPath(states: readonly FileState[]): Map<string, FileState> {
  const found = new Map(states.map((state) => [state.path, state]));
  if (found.size !== states.length) throw new Error(`an answer says twice what one file is: ${JSON.stringify(states)}`);
  return found;
}

/** What was said of each, as words. */
export function wordsOf(states: ReadonlyMap<string, FileState>, paths: readonly string[]): string[] {
  return paths.map((path) => states.get(path)?.state ?? 'nothing');
}

export async function readStaged(library: StagingLibrary, file: StagedFile, from = 0n): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of library.read(file, from, quiet())) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** What a call was refused with; fails when it was not. */
export async function errorOf(call: Promise<unknown>): Promise<unknown> {
  const [result] = await Promise.allSettled([call]);
  if (result.status === 'fulfilled') throw new Error(`not refused, but ${JSON.stringify(result.value)}`);
  return result.reason;
}
