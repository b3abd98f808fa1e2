/** Staging libraries of real library types, each with a simulated tape system. */
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { TestApp } from './app.js';
import { type CommandBench, createCommandBench } from './command-bench.js';
import { addFiles, checksumOf } from './factories.js';
import { LIBRARY_ENV } from './library-dir.js';
import { mutate } from './payloads.js';
import { createS3Bench, type S3Bench } from './s3-bench.js';
import type { StagingBench } from './staging-library.js';
import { createWlcgBench, type WlcgBench } from './wlcg-bench.js';
import type { DialectName } from './wlcg-dialects.js';

export interface RealKind<Bench extends StagingBench = StagingBench> {
  /** The library type, as in GraphQL. */
  kind: string;
  settings: object;
  /** Environment variables to which the settings refer. */
  env: Record<string, string>;
  bench: Bench;
  /** Whether the tape system removes released files from its disk. */
  releases: boolean;
  /** Kinds of all calls so far except reads: `stage`, `poll`, … */
  calls(): string[];
  /** Counts demands that hold files on disk or wait for files. */
  countDemands(): number;
}

/** Shortest poll intervals that settings allow, because tests advance the clock. */
const POLLS = { pollLeastSeconds: 1, pollMostSeconds: 30 };

export async function openWlcg(dialect: DialectName, settings: object = {}): Promise<RealKind<WlcgBench>> {
  const bench = await createWlcgBench(dialect, { settings: { ...POLLS, ...settings } });
  const { server } = bench;
  const isOpen = ({ state, isHeld }: { state: string; isHeld: boolean }) => isHeld || state === 'SUBMITTED';
  return {
    ...{ kind: 'WLCG', settings: bench.settings, env: LIBRARY_ENV, bench, releases: server.dialect.releases },
    calls: () => server.calls.filter((call) => call !== 'bytes'),
    countDemands: () =>
      [...server.storage.requests.values()].filter(({ files }) => [...files.values()].some(isOpen)).length,
  };
}

export async function openS3(): Promise<RealKind<S3Bench>> {
  const bench = await createS3Bench({ pollSeconds: 1, pollSecondsMost: 30 });
  const { server, settings, env } = bench;
  return {
    ...{ kind: 'S3', settings, env, bench, releases: false },
    calls: () => server.asked.flatMap(({ operation }) => (operation === 'GetObject' ? [] : operation)),
    countDemands: () => 0,
  };
}

/** @param options.nameless demands have no ids, and each answer keeps a file on disk for `until` more seconds */
export function openCommand({ nameless = false, until = 3600 } = {}): RealKind<CommandBench> {
  const bench = nameless
    ? createCommandBench({ ...POLLS, release: null, offsets: false }, ['TAPE_IDS=off', `TAPE_UNTIL=${until}`])
    : createCommandBench(POLLS);
  return {
    ...{ kind: 'COMMAND_STAGING', settings: bench.settings, env: LIBRARY_ENV, bench, releases: !nameless },
    calls: () => bench.calls().map((line) => line.split(' ')[0] ?? ''),
    countDemands: () => bench.demands().filter((demand) => JSON.parse(readFileSync(demand, 'utf8')).length > 0).length,
  };
}

/** Adds a library for the tape system, as an operator does. */
export async function addKind(app: TestApp, name: string, kind: RealKind): Promise<void> {
  const settings = Object.entries(kind.settings).map(([name, value]) => ({
    name,
    value: value === null || typeof value === 'string' ? value : JSON.stringify(value),
  }));
  const input = { name, type: kind.kind, settings, driveCount: 1 };
  const { message } = await mutate<{ message?: string }>(app, 'addLibrary', input, 'library { name }');
  if (message !== undefined) throw new Error(`the library is not added: ${message}`);
}

/**
 * Writes files to the tapes of a library's tape system, and adds the files to the catalogue. @returns the bytes by path
 */
export async function putFiles(
  app: TestApp,
  library: string,
  { bench }: RealKind,
  files: readonly { path: string; size?: number; checksum?: null }[],
): Promise<Map<string, Buffer>> {
  const contents = new Map(files.map(({ path, size = 1000 }) => [path, randomBytes(size)]));
  for (const [path, bytes] of contents) await bench.put(path, bytes);
  const rows = files.map(({ path, checksum }) => {
    const bytes = contents.get(path) ?? Buffer.alloc(0);
    const sum = checksum === null ? null : checksumOf(bytes);
    return { path, size: BigInt(bytes.length), checksum: sum, volume: library, library, position: null };
  });
  await addFiles(app.ctx, rows);
  return contents;
}
