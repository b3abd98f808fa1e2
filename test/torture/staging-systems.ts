/**
 * Two staging libraries and their simulated tape systems. The systems run in the test's own process, and outlive
 * engines.
 * The systems lose responses, forget demands, remove copies early, interrupt reads, and send wrong bytes.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../../src/domain/context.js';
import { importRows } from '../../src/domain/import/import.js';
import { addLibrary } from '../../src/domain/libraries/changes.js';
import type { FileState } from '../../src/tape/staging.js';
import { buildRow } from '../support/factories.js';
import { createMemoryStaging, MemoryTapeSystem } from '../support/memory-staging.js';
import { type SentResponse, type SentState, TORTURE_TYPE } from './library-type.js';
import { pickWeighted, type Random, randomFile, type Source, type Weighted } from './random.js';

const LATE_MS = { low: 500, high: 5000 }; // a late call may exceed an engine's lease
const MAX_BYTES = 500_000;
const TICK_MS = 150;
/** Time that a copy stays on the system without releases. */
const LIFETIME_MS = 20_000;
/** Lifetime of copies after the failures, so long that the checker still sees the copies. */
const CALM_LIFETIME_MS = 3_600_000;
/** Time after the failures in which late calls of dead engines may still take effect. */
const LAST_LATE_MS = 15_000;

const CALLS = ['stage', 'poll', 'release'] as const;
type Call = (typeof CALLS)[number];

/** What happens to a call. A late request and a request with a lost response still take effect. */
const CALL_FATES = [
  [50, 'succeeds'],
  [3, 'requests lost'],
  [2, 'requests late'],
  [6, 'responses lost'],
  [2, 'responses cut'],
  [2, 'responses late'],
  [2, 'busy'],
  [3, 'errors'],
] as const;

const READ_FATES = [
  [80, 'succeeds'],
  [7, 'interrupted'],
  [3, 'wrong bytes'],
  [2, 'too short'],
  [2, 'too long'],
  [3, 'gone'],
  [3, 'errors'],
] as const;

type ReadFate = (typeof READ_FATES)[number][1];

/** Probabilities for each tick of what the tapes and disks of a system do. */
const ARRIVES = 0.2;
const FORGETS_ONE = 0.03;
const FORGETS_ALL = 0.0005; // the system also forgets demands whose ids engines have lost
const LEAVES_EARLY = 0.03;
const FAILS = 0.01;
const RECOVERS = 0.01;

export const STAGED_PREFIX = '/remote';

export const isStaged = (path: string): boolean => path.startsWith(`${STAGED_PREFIX}/`);

export interface StagingSystem {
  /** Name of the library that uses the system. */
  name: string;
  system: MemoryTapeSystem;
  url: string;
}

export interface StagingSystems {
  systems: StagingSystem[];
  /** Number of failures, by kind. */
  troubles: ReadonlyMap<string, number>;
  /** Ends all failures. */
  calmDown(): void;
  end(): Promise<void>;
}

/** Chooses failures at random, and counts them. */
class Troubles {
  readonly counts = new Map<string, number>();
  calmSince: number | undefined;
  readonly random: Random;

  constructor(random: Random) {
    this.random = random;
  }

  record(what: string, times = 1): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + times);
  }

  choose<T extends string>(what: string, fates: Weighted<T>, normal: T): T {
    const fate = this.calmSince === undefined ? pickWeighted(this.random, fates) : normal;
    if (fate !== normal) this.record(`${what}: ${fate}`);
    return fate;
  }
}

/**
 * Adds two staging libraries. Each library has a file for every five files of the archive.
 * @param sources receives the new files
 */
export async function addStagingLibraries(
  ctx: Context,
  random: Random,
  { sources, files, maxBytes }: { sources: Map<string, Source>; files: number; maxBytes: number },
): Promise<StagingSystems> {
  await ctx.db.pool.query(WATCH_DEMANDS);
  const started = await startSystems(random.fork());
  for (const { name, url, system } of started.systems) {
    await addLibrary(ctx, { name, kind: TORTURE_TYPE, settings: { url }, drives: 2, depthFiles: 20 });
    const rows = Array.from({ length: Math.ceil(files / 5) }, (_, n) => {
      const { bytes, sha256, size } = randomFile(random, Math.min(maxBytes, MAX_BYTES));
      const path = `${STAGED_PREFIX}/${name}/g${n % 4}/f${n}.nc`;
      system.put(path, bytes);
      sources.set(path, { size, sha256 });
      const checksum = `sha256:${sha256}`;
      return buildRow({ line: n + 1, path, size, volume: name, library: name, position: null, checksum });
    });
    await importRows(ctx, rows);
  }
  return started;
}

async function startSystems(random: Random): Promise<StagingSystems> {
  const behind = {
    silo: new MemoryTapeSystem(),
    ice: new MemoryTapeSystem({ ids: false, releases: false, lifetimeMs: LIFETIME_MS }),
  };
  const troubles = new Troubles(random);
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? '/', 'http://localhost');
    const [, name, what] = url.pathname.split('/');
    const system = systems.find((each) => each.name === name)?.system;
    const call = CALLS.find((each) => each === what);
    if (!system || (!call && what !== 'bytes')) return void response.writeHead(404).end();
    const fate = () => troubles.choose('reads', READ_FATES, 'succeeds');
    const done = call
      ? respond(system, call, { request, response, troubles })
      : sendBytes(system, url, response, fate());
    done.catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const systems = Object.entries(behind).map(([name, system]) => ({
    name,
    system,
    url: `http://127.0.0.1:${port}/${name}`,
  }));
  const working = setInterval(() => {
    for (const { system } of systems) tick(system, troubles);
  }, TICK_MS);
  return {
    systems,
    troubles: troubles.counts,
    calmDown: () => {
      troubles.calmSince = performance.now();
    },
    end: async () => {
      clearInterval(working);
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

interface Exchange {
  request: IncomingMessage;
  response: ServerResponse;
  troubles: Troubles;
}

async function respond(system: MemoryTapeSystem, call: Call, { request, response, troubles }: Exchange): Promise<void> {
  const body = JSON.parse(await text(request)) as { id?: string | null; paths: string[] };
  const fate = troubles.choose(call, CALL_FATES, 'succeeds');
  if (fate === 'requests lost') return void response.destroy();
  if (fate === 'busy') return void response.writeHead(503, { 'retry-after': '1' }).end();
  if (fate === 'errors') return void response.writeHead(500).end();
  const lateMs = troubles.random.integer(LATE_MS.low, LATE_MS.high);
  if (fate === 'requests late') await sleep(lateMs);
  const sent = JSON.stringify(await makeCall(system, call, body));
  if (fate === 'responses lost') return void response.destroy();
  if (fate === 'responses late') await sleep(lateMs);
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(sent) });
  if (fate === 'responses cut') interrupt(response, Buffer.from(sent));
  else response.end(sent);
}

/** Performs a call. The call takes effect even if its caller has died. */
async function makeCall(
  system: MemoryTapeSystem,
  call: Call,
  { id = null, paths }: { id?: string | null; paths: string[] },
): Promise<SentResponse> {
  const library = createMemoryStaging(system);
  const { signal } = new AbortController();
  const files = paths.map((path) => ({ path, volume: '', position: null, size: 0n }));
  if (call === 'stage') {
    const staged = await library.stage(files, signal);
    return { id: staged.id, states: staged.known.map(toSent) };
  }
  if (call === 'poll') return { states: (await library.poll({ id, files }, signal)).map(toSent) };
  const kept = await library.release({ id, files }, signal);
  return { kept: kept.map(({ path, until }) => ({ path, until: until?.toISOString() ?? null })) };
}

function toSent(state: FileState): SentState {
  if (state.state === 'ready') return { ...state, until: state.until?.toISOString() ?? null };
  if (state.state !== 'failed') return state;
  const { errorClass, message } = state.error;
  return { path: state.path, state: 'failed', errorClass, error: message };
}

async function sendBytes(system: MemoryTapeSystem, url: URL, response: ServerResponse, fate: ReadFate): Promise<void> {
  const path = url.searchParams.get('path') ?? '';
  const stored = system.tape.get(path);
  if (!stored) return void response.writeHead(404).end();
  if (fate === 'gone') system.disk.delete(path);
  if (!system.isStaged(path)) return void response.writeHead(409).end();
  if (fate === 'errors') return void response.writeHead(500).end();
  let bytes = Buffer.from(stored.subarray(Number(url.searchParams.get('from'))));
  if (fate === 'wrong bytes' && bytes.length > 0) bytes[0] = (bytes[0] ?? 0) ^ 1;
  if (fate === 'too short') bytes = bytes.subarray(0, bytes.length / 2);
  if (fate === 'too long') bytes = Buffer.concat([bytes, Buffer.of(1, 2, 3)]);
  response.writeHead(200, { 'content-length': bytes.length });
  if (fate === 'interrupted') interrupt(response, bytes);
  else response.end(bytes);
}

function interrupt(response: ServerResponse, bytes: Buffer): void {
  response.write(bytes.subarray(0, bytes.length / 2));
  setTimeout(() => response.destroy(), 20);
}

/** Performs a system's own actions: files arrive on disk, expire, leave early, or become unreadable for a while. */
function tick(system: MemoryTapeSystem, troubles: Troubles): void {
  const { random, calmSince } = troubles;
  const isCalm = calmSince !== undefined;
  for (const path of [...system.disk.keys()]) if (!system.isStaged(path)) troubles.record('lifetimes over');
  if (isCalm) system.spoiled.clear();
  else makeTrouble(system, troubles);
  const wanted = [...system.demands.values()].flatMap((paths) => [...paths]).filter((path) => !system.isStaged(path));
  const arriving = wanted.filter(() => isCalm || random.chance(ARRIVES));
  system.arrive(arriving);
  system.log.length = 0;
  if (!isCalm || performance.now() - calmSince < LAST_LATE_MS) return;
  const until = new Date(Date.now() + CALM_LIFETIME_MS);
  for (const path of arriving) if (system.disk.get(path)) system.disk.set(path, until);
}

function makeTrouble(system: MemoryTapeSystem, troubles: Troubles): void {
  const { random } = troubles;
  if (system.ids) forgetDemands(system, troubles);
  const wanted = [...system.disk.keys()].filter((path) => system.isWanted(path));
  if (wanted.length > 0 && random.chance(LEAVES_EARLY)) {
    troubles.record('copies gone early');
    const path = random.pick(wanted);
    // if demands have ids, the demand often remains and brings the file back
    if (system.ids && random.chance(0.8)) system.disk.delete(path);
    else system.evict(path);
  }
  if (random.chance(FAILS)) {
    const how = random.chance(0.3) ? 'lost' : 'unavailable';
    troubles.record(`files ${how} for a while`);
    system.spoil(random.pick([...system.tape.keys()]), how);
  }
  const spoiled = [...system.spoiled.keys()];
  if (spoiled.length > 0 && random.chance(RECOVERS * spoiled.length)) system.spoiled.delete(random.pick(spoiled));
}

function forgetDemands(system: MemoryTapeSystem, troubles: Troubles): void {
  const { random } = troubles;
  const held = [...system.demands].flatMap(([id, paths]) => (paths.size > 0 ? [id] : []));
  if (held.length > 0 && random.chance(FORGETS_ONE)) {
    system.demands.delete(random.pick(held));
    troubles.record('demands forgotten');
  }
  if (!random.chance(FORGETS_ALL)) return;
  troubles.record('demands forgotten', held.length);
  system.forget();
  if (random.chance(0.5)) for (const path of random.sample([...system.disk.keys()], 5)) system.disk.delete(path);
}

/**
 * Trigger that records the ids of committed demands. A demand may outlive its database row.
 * A demand's id that was lost with a response is not recorded, and Tapegate cannot release the demand.
 */
export const WATCH_DEMANDS = `
  CREATE TABLE torture_noted_demand (library text NOT NULL, name text NOT NULL, path text NOT NULL);
  CREATE FUNCTION torture_note_demand() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO torture_noted_demand SELECT b.name, NEW.remote_id, f.path FROM library b, tape_file f
      WHERE b.id = NEW.library_id AND f.id = NEW.file_id;
    RETURN NEW;
  END $$;
  CREATE TRIGGER torture_demand AFTER INSERT OR UPDATE OF remote_id ON staging FOR EACH ROW
    WHEN (NEW.remote_id IS NOT NULL) EXECUTE FUNCTION torture_note_demand();`;

export const READ_DEMANDS = 'SELECT DISTINCT library, name, path FROM torture_noted_demand';

export interface Demand {
  library: string;
  name: string;
  path: string;
}

/** A file that a system holds on disk for Tapegate, or will hold. */
export interface StagedFile {
  library: string;
  path: string;
  why: string;
  /** Time at which the system removes the file (ISO 8601); null if the file must be released. */
  until: string | null;
}

/** @returns files that the system holds. `unnamed` counts files of demands whose id was lost, which only expire. */
export function findStaged(
  { name: library, system }: StagingSystem,
  demands: readonly Demand[],
): { files: StagedFile[]; unnamed: number } {
  const known = new Set(demands.filter((each) => each.library === library).map(({ name, path }) => `${name} ${path}`));
  const wanted = [...system.demands].flatMap(([name, paths]) => [...paths].map((path) => ({ name, path })));
  const named = wanted.filter(({ name, path }) => !system.ids || known.has(`${name} ${path}`));
  const kept = [...system.disk].flatMap(([path, until]) =>
    until && system.isStaged(path) ? [{ library, path, why: 'on disk', until: until.toISOString() }] : [],
  );
  const held = named.map(({ name, path }) => ({ library, path, why: `wanted by ${name}`, until: null }));
  return { files: [...held, ...kept], unnamed: wanted.length - named.length };
}
