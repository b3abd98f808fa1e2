/** The staging kinds that sites have, each before a system of its own: what engines of tests work with, with a hand on what is behind. */
import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import path from 'node:path';
import { type CommandBench, createCommandBench, readLines } from './command-bench.js';
import { createS3Bench, keyIn, type S3Bench } from './s3-bench.js';
import type { StagingBench } from './staging-library.js';
import { createWlcgBench, type WlcgBench } from './wlcg-bench.js';
import type { DialectName } from './wlcg-dialects.js';

/** What becomes of a read: it ends after so many bytes, gives as many other ones, or finds that the file is not on disk any more. */
export type ReadTrouble = { cut: number } | 'wrong' | 'gone';

export interface RealKind<Bench extends StagingBench = StagingBench> {
  kind: string;
  /** Of a library before the system, and the variables that they name. */
  settings: object;
  env: Record<string, string>;
  bench: Bench;
  /** What it was asked for so far: `stage`, `poll`; without reads. */
  calls(): string[];
  /** From which byte on each read of the file was begun. */
  readsOf(file: string): number[];
  /** Meets the next read. */
  spoilRead(how: ReadTrouble): void;
  /** Demands by a name that hold files, or wait for some. */
  countDemands(): number;
}

const MIB = 1024 * 1024;

/** It looks as often as it may: the time of tests is moved on. */
const WLCG = { pollLeastSeconds: 1, pollMostSeconds: 30 };

export async function openWlcg(dialect: DialectName, settings: object = {}): Promise<RealKind<WlcgBench>> {
  const bench = await createWlcgBench(dialect, { settings: { ...WLCG, ...settings } });
  const { server } = bench;
  const reads: { file: string; from: number }[] = [];
  let trouble: ReadTrouble | undefined;
  server.onBytes = (request, response, bytes) => {
    const file = decodeURIComponent(new URL(request.url ?? '', server.origin).pathname);
    const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
    reads.push({ file, from });
    const met = trouble;
    trouble = undefined;
    if (met !== undefined) giveBadly(bench, met, { file, from, bytes, response });
    return met !== undefined;
  };
  return {
    kind: 'wlcg',
    settings: bench.settings,
    env: {},
    bench,
    calls: () => server.calls.filter((call) => call !== 'bytes'),
    readsOf: (wanted) => reads.filter(({ file }) => file === wanted).map(({ from }) => from),
    spoilRead: (how) => {
      trouble = how;
    },
    countDemands: () =>
      [...server.storage.requests.values()].filter(({ files }) =>
        [...files.values()].some(({ state, isHeld }) => isHeld || state === 'SUBMITTED'),
      ).length,
  };
}

function giveBadly(
  { server }: WlcgBench,
  how: ReadTrouble,
  { file, from, bytes, response }: { file: string; from: number; bytes: Buffer; response: ServerResponse },
): void {
  if (how === 'gone') {
    server.storage.evict(file);
    response.writeHead(server.dialect.notOnDisk, { 'content-length': '0' }).end();
    return;
  }
  const left = bytes.length - from;
  const range = from === 0 ? {} : { 'content-range': `bytes ${from}-${bytes.length - 1}/${bytes.length}` };
  response.writeHead(from === 0 ? 200 : 206, { 'content-length': String(left), ...range });
  if (how === 'wrong') response.end(randomBytes(left));
  else response.write(bytes.subarray(from, from + how.cut), () => response.destroy());
}

export async function openS3(settings: object = {}): Promise<RealKind<S3Bench>> {
  const bench = await createS3Bench({ pollSeconds: 1, pollSecondsMost: 30, ...settings });
  const { server } = bench;
  const others = server.onRequest;
  let trouble: 'wrong' | 'gone' | undefined;
  let mend = () => {};
  server.onRequest = async (request) => {
    mend();
    const met = request.operation === 'GetObject' ? trouble : undefined;
    if (met !== undefined) trouble = undefined;
    if (met === 'gone') server.store.expire(request.key);
    if (met === 'wrong') {
      const object = server.store.find(request.key);
      const { bytes } = object;
      object.bytes = randomBytes(bytes.length);
      mend = () => {
        object.bytes = bytes;
      };
    }
    return await others(request);
  };
  return {
    kind: 's3',
    settings: bench.settings,
    env: bench.env,
    bench,
    calls: () =>
      server.asked.filter(({ operation }) => operation !== 'GetObject').map(({ operation }) => nameOf(operation)),
    readsOf: (file) =>
      server.asked
        .filter(({ operation, key }) => operation === 'GetObject' && key === keyIn(file))
        .map(({ headers }) => Number(/^bytes=(\d+)-/.exec(headers.range ?? '')?.[1] ?? 0)),
    spoilRead: (how) => {
      if (typeof how === 'object') server.broken = { after: how.cut % MIB, how: 'cut' };
      else trouble = how;
    },
    countDemands: () => 0,
  };
}

function nameOf(operation: string): string {
  return operation === 'RestoreObject' ? 'stage' : 'poll';
}

/** @param nameless its demands have no names, what it has on disk stays for an hour, and its scripts begin at no byte but the first */
export function openCommand({ nameless = false, until = 3600 } = {}, settings: object = {}): RealKind<CommandBench> {
  const changes = { pollLeastSeconds: 1, pollMostSeconds: 30, ...settings };
  const bench = nameless
    ? createCommandBench({ ...changes, release: null, offsets: false }, ['IDS=off', `UNTIL=${until}`])
    : createCommandBench(changes);
  const place = (name: string) => path.join(bench.root, name);
  return {
    kind: 'command-staging',
    settings: bench.settings,
    env: {},
    bench,
    calls: () => bench.calls().map((line) => line.split(' ')[0] ?? ''),
    readsOf: (file) =>
      readLines(place('fetches')).flatMap((line) => (line.endsWith(` ${file}`) ? [Number.parseInt(line, 10)] : [])),
    spoilRead: (how) => writeFileSync(place('on-fetch'), `${scriptOf(how)}\n`),
    countDemands: () => bench.demands().filter((demand) => JSON.parse(readFileSync(demand, 'utf8')).length > 0).length,
  };
}

/** In the words of a shell. */
function scriptOf(how: ReadTrouble): string {
  if (how === 'gone') return 'rm "$TAPES/disk$2"';
  if (how === 'wrong') return 'head -c "$(($6 - $3))" /dev/urandom; exit 0';
  return `tail -c "+$(($3 + 1))" "$TAPES/disk$2" | head -c ${how.cut}; echo "the line is cut" >&2; exit 100`;
}
