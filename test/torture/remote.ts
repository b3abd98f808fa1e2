/**
 * The systems behind the staging libraries of the torture, in its own process, so that they outlive all engines. They lose answers, forget
 * demands, drop copies early, break reads off and give wrong bytes.
 */
import { createHash, randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import type { FileState } from '../../src/tape/staging.js';
import { createMemoryStaging, MemoryTapeSystem } from '../../src/tape/staging-memory.js';
import { pickWeighted, type Random } from './random.js';
import type { Sent, SentState } from './remote-kind.js';
import type { Source } from './tree.js';

export interface Remote {
  /** Of the library. */
  name: string;
  system: MemoryTapeSystem;
  url: string;
  /** Names of demands that an engine has come back to: no other one is anybody's to release. */
  known: Set<string>;
}

export interface RemoteSystems {
  systems: Remote[];
  /** From now on nothing goes wrong. */
  calmDown(): void;
  end(): Promise<void>;
}

/** Of a hundred calls, and of a hundred reads. */
type Fate = 'well' | 'is lost before' | 'is lost after' | 'is busy' | 'fails';
const CALL_FATES: readonly (readonly [number, Fate])[] = [
  [80, 'well'],
  [6, 'is lost before'],
  [6, 'is lost after'],
  [4, 'is busy'],
  [4, 'fails'],
];
type ReadFate = 'well' | 'breaks off' | 'has wrong bytes' | 'is gone' | 'fails';
const READ_FATES: readonly (readonly [number, ReadFate])[] = [
  [84, 'well'],
  [7, 'breaks off'],
  [3, 'has wrong bytes'],
  [3, 'is gone'],
  [3, 'fails'],
];
const ARRIVE_MS = 150;
const FORGETS = 0.004;
/** Of a copy on the disk of the system that releases nothing. */
const LIFETIME_MS = 20_000;
const MIN_BYTES = 1000;

/** Two of them, each with files of its own: one that knows demands by their names, one that releases nothing. */
export async function startRemotes(
  random: Random,
  options: { files: number; maxBytes: number },
): Promise<RemoteSystems & { sources: Map<string, Map<string, Source>> }> {
  const kinds = {
    silo: new MemoryTapeSystem(),
    ice: new MemoryTapeSystem({ ids: false, releases: false, lifetimeMs: LIFETIME_MS }),
  };
  const sources = new Map<string, Map<string, Source>>();
  const systems: Remote[] = [];
  let isCalm = false;
  const server = createServer((request, response) => {
    void answer(request, response).catch(() => response.destroy());
  });
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const url = new URL(request.url ?? '/', 'http://localhost');
    const [, name, what = ''] = url.pathname.split('/');
    const remote = systems.find((each) => each.name === name);
    if (!remote) return void response.writeHead(404).end();
    if (what === 'bytes') return await giveBytes(remote, url, { request, response, fate: fateOf(READ_FATES, 'well') });
    const fate = fateOf(CALL_FATES, 'well');
    const body = JSON.parse(await text(request)) as { id?: string | null; paths: string[] };
    if (fate === 'is lost before') return void response.destroy();
    if (fate === 'is busy') return void response.writeHead(503, { 'retry-after': '1' }).end();
    if (fate === 'fails') return void response.writeHead(500).end();
    const sent = await makeCall(remote, what, body);
    if (fate === 'is lost after') return void response.destroy();
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(sent));
  };
  const fateOf = <F>(fates: readonly (readonly [number, F])[], well: F): F =>
    isCalm ? well : pickWeighted(random, fates);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  for (const [name, system] of Object.entries(kinds)) {
    sources.set(name, fillTapes(random, system, { prefix: `/remote/${name}`, ...options }));
    systems.push({ name, system, url: `http://127.0.0.1:${port}/${name}`, known: new Set() });
  }
  const arriving = setInterval(() => {
    for (const { system } of systems) {
      const wanted = [...system.demands.values()].flatMap((paths) => [...paths]);
      system.arrive(wanted.filter(() => isCalm || random.chance(0.4)));
      if (!isCalm && system.ids && random.chance(FORGETS)) system.forget();
      system.log.length = 0;
    }
  }, ARRIVE_MS);
  return {
    systems,
    sources,
    calmDown: () => {
      isCalm = true;
    },
    end: async () => {
      clearInterval(arriving);
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** What is wanted under names that engines know, which are theirs to release; where there are no names, what is wanted at all. */
export function listHeld({ name: library, system, known }: Remote): { library: string; path: string; why: string }[] {
  return [...system.demands].flatMap(([id, paths]) =>
    !system.ids || known.has(id) ? [...paths].map((path) => ({ library, path, why: `wanted by ${id}` })) : [],
  );
}

function fillTapes(
  random: Random,
  system: MemoryTapeSystem,
  { prefix, files, maxBytes }: { prefix: string; files: number; maxBytes: number },
): Map<string, Source> {
  const sources = new Map<string, Source>();
  for (let n = 0; n < files; n++) {
    const bytes = randomBytes(Math.round(MIN_BYTES * (maxBytes / MIN_BYTES) ** random.next()));
    const path = `${prefix}/g${n % 4}/f${n}.nc`;
    system.put(path, bytes);
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    sources.set(path, { size: BigInt(bytes.length), sha256 });
  }
  return sources;
}

async function makeCall(
  { system, known }: Remote,
  what: string,
  { id = null, paths }: { id?: string | null; paths: string[] },
): Promise<Sent> {
  const library = createMemoryStaging(system);
  const { signal } = new AbortController();
  const files = paths.map((path) => ({ path, volume: '', position: null, size: 0n }));
  if (what !== 'stage' && id !== null) known.add(id);
  if (what === 'stage') {
    const staged = await library.stage(files, signal);
    return { id: staged.id, states: staged.known.map(toSent) };
  }
  if (what === 'poll') return { states: (await library.poll({ id, files }, signal)).map(toSent) };
  const kept = await library.release({ id, files }, signal);
  return { kept: kept.map(({ path, until }) => ({ path, until: until?.toISOString() ?? null })) };
}

function toSent(state: FileState): SentState {
  if (state.state === 'ready') return { ...state, until: state.until?.toISOString() ?? null };
  if (state.state !== 'failed') return state;
  const { errorClass, message } = state.error;
  return { path: state.path, state: 'failed', errorClass, error: message };
}

async function giveBytes(
  { system }: Remote,
  url: URL,
  { response, fate }: { request: IncomingMessage; response: ServerResponse; fate: ReadFate },
): Promise<void> {
  const path = url.searchParams.get('path') ?? '';
  const stored = system.tape.get(path);
  if (!stored) return void response.writeHead(404).end();
  if (fate === 'is gone') system.disk.delete(path);
  if (!system.isStaged(path)) return void response.writeHead(409).end();
  if (fate === 'fails') return void response.writeHead(500).end();
  const bytes = Buffer.from(stored.subarray(Number(url.searchParams.get('from'))));
  if (fate === 'has wrong bytes' && bytes.length > 0) bytes[0] = (bytes[0] ?? 0) ^ 1;
  response.writeHead(200, { 'content-length': bytes.length });
  if (fate !== 'breaks off') return void response.end(bytes);
  response.write(bytes.subarray(0, bytes.length / 2));
  setTimeout(() => response.destroy(), 20);
}
