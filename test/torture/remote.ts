/**
 * The systems behind the staging libraries of the torture, in its own process, so that they outlive all engines. They lose answers, forget
 * demands, drop copies early, break reads off and give wrong bytes.
 */
import { createHash, randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { FileState } from '../../src/tape/staging.js';
import { createMemoryStaging, MemoryTapeSystem } from '../../src/tape/staging-memory.js';
import type { Random } from './random.js';
import { calls, type ReadFate, type RemoteCall, RemoteTroubles, type Trouble } from './remote-fates.js';
import type { Sent, SentState } from './remote-kind.js';
import { LIFETIME_MS, TICK_MS, workTapes } from './remote-tapes.js';
import type { Source } from './tree.js';

export interface Remote {
  /** Of the library. */
  name: string;
  system: MemoryTapeSystem;
  url: string;
}

export interface RemoteSystems {
  systems: Remote[];
  /** How often each kind of trouble has happened there. */
  troubles: ReadonlyMap<Trouble, number>;
  /** From now on nothing goes wrong. */
  calmDown(): void;
  end(): Promise<void>;
}

/** Before every path there is. */
export const REMOTE_PREFIX = '/remote';

/** Some are longer than the lease of an engine. */
const LATE_MS = { low: 500, high: 5000 };
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
  const troubles = new RemoteTroubles(random);
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? '/', 'http://localhost');
    const [, name, what = ''] = url.pathname.split('/');
    const remote = systems.find((each) => each.name === name);
    const call = calls.find((each) => each === what);
    if (!remote || (!call && what !== 'bytes')) return void response.writeHead(404).end();
    const done = call
      ? answerCall(remote, call, { request, response, troubles })
      : giveBytes(remote, url, { response, fate: troubles.chooseForRead() });
    done.catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  for (const [name, system] of Object.entries(kinds)) {
    sources.set(name, fillTapes(random, system, { prefix: `${REMOTE_PREFIX}/${name}`, ...options }));
    systems.push({ name, system, url: `http://127.0.0.1:${port}/${name}` });
  }
  const working = setInterval(() => {
    for (const { system } of systems) workTapes(system, troubles);
  }, TICK_MS);
  return {
    systems,
    sources,
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

/** What is done, and what is told of it, are two things. */
async function answerCall(
  remote: Remote,
  call: RemoteCall,
  { request, response, troubles }: { request: IncomingMessage; response: ServerResponse; troubles: RemoteTroubles },
): Promise<void> {
  const body = JSON.parse(await text(request)) as { id?: string | null; paths: string[] };
  const fate = troubles.chooseForCall(call);
  if (fate === 'requests lost') return void response.destroy();
  if (fate === 'busy') return void response.writeHead(503, { 'retry-after': '1' }).end();
  if (fate === 'errors') return void response.writeHead(500).end();
  const lateMs = troubles.random.integer(LATE_MS.low, LATE_MS.high);
  if (fate === 'requests late') await sleep(lateMs);
  const sent = JSON.stringify(await makeCall(remote, call, body));
  if (fate === 'replies lost') return void response.destroy();
  if (fate === 'replies late') await sleep(lateMs);
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(sent) });
  if (fate === 'replies cut') breakOff(response, Buffer.from(sent));
  else response.end(sent);
}

/** Whoever it was that called may be dead by now: it is done all the same. */
async function makeCall(
  { system }: Remote,
  call: RemoteCall,
  { id = null, paths }: { id?: string | null; paths: string[] },
): Promise<Sent> {
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

async function giveBytes(
  { system }: Remote,
  url: URL,
  { response, fate }: { response: ServerResponse; fate: ReadFate },
): Promise<void> {
  const path = url.searchParams.get('path') ?? '';
  const stored = system.tape.get(path);
  if (!stored) return void response.writeHead(404).end();
  if (fate === 'gone') system.disk.delete(path);
  if (!system.isStaged(path)) return void response.writeHead(409).end();
  if (fate === 'errors') return void response.writeHead(500).end();
  const bytes = changeBytes(Buffer.from(stored.subarray(Number(url.searchParams.get('from')))), fate);
  response.writeHead(200, { 'content-length': bytes.length });
  if (fate === 'broken off') breakOff(response, bytes);
  else response.end(bytes);
}

function changeBytes(bytes: Buffer, fate: ReadFate): Buffer {
  if (fate === 'wrong bytes' && bytes.length > 0) bytes[0] = (bytes[0] ?? 0) ^ 1;
  if (fate === 'too short') return bytes.subarray(0, bytes.length / 2);
  return fate === 'too long' ? Buffer.concat([bytes, Buffer.of(1, 2, 3)]) : bytes;
}

function breakOff(response: ServerResponse, bytes: Buffer): void {
  response.write(bytes.subarray(0, bytes.length / 2));
  setTimeout(() => response.destroy(), 20);
}
