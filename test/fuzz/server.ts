/**
 * The server of a fuzz: a gateway and an engine on a memory back end, as one process, which its parent asks for its memory
 * and gives files to import. What Node warns of is told, and what nobody catches ends it, as it would the real one.
 */
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { getHeapStatistics, writeHeapSnapshot } from 'node:v8';
import { startGateway } from '../../src/app.js';
import { environment, readConfig } from '../../src/config.js';
import type { Context } from '../../src/context.js';
import { startEngine } from '../../src/engine/runner.js';
import { UserError } from '../../src/errors.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import { ImportError } from '../../src/operations/catalogue/import-faults.js';
import { readRows } from '../../src/operations/catalogue/import-rows.js';
import { openRuntime } from '../../src/runtime.js';
import { backendNames } from '../../src/tape/index.js';
import { createMemoryBackend, type MemoryBackend } from '../../src/tape/memory.js';
import { archive } from './archive.js';
import { readArenas } from './arenas.js';
import { type PlantName, plants } from './plants.js';

export type Wish =
  /** With a file for what is on the heap by then, where that is wanted. */
  { ask: 'memory'; snapshot?: string | undefined } | { ask: 'import'; bytes: Uint8Array; chunkBytes: number };
export type Question = { id: number } & Wish;

/** Bytes, garbage collected. */
export interface Memory {
  rss: number;
  /** Of the resident memory: what is on the heap of V8 and all that is not V8's, without what V8, and the allocator for threads, keep for themselves. */
  inUse: number;
  /** On the heap, and what objects on it have elsewhere. */
  heap: number;
}

export type Message =
  | { kind: 'ready'; url: string }
  | { kind: 'warning'; text: string }
  | { kind: 'memory'; id: number; memory: Memory }
  /** Null: it was taken, or refused with what is wrong with it. */
  | { kind: 'import'; id: number; error: string | null };

const tell = (message: Message): void => void process.send?.(message);

process.on('warning', (warning) => tell({ kind: 'warning', text: warning.stack ?? warning.message }));
process.on('disconnect', () => process.exit(1)); // whoever asked has gone
const runtime = await openRuntime(readConfig(environment, backendNames));
const { ctx } = runtime;
const plant = environment.FUZZ_PLANT as PlantName | undefined;
if (plant) await plants[plant](ctx);
await ctx.events.open();
await startEngine(ctx, loadLibrary(), { drainMs: 200 });
const gateway = await startGateway(ctx);
process.on('message', (question: Question) => void answer(ctx, question));
tell({ kind: 'ready', url: gateway.url });

/** A volume that an import has named is there, with nothing on it. */
function loadLibrary(): MemoryBackend {
  const backend = createMemoryBackend();
  for (const { volume, position, bytes } of archive) {
    const positions = backend.volumes.get(volume) ?? new Map<bigint, Uint8Array>();
    backend.volumes.set(volume, positions.set(position, bytes));
  }
  backend.onMount = async (volume) => {
    backend.log.length = 0; // nobody reads it
    if (!backend.volumes.has(volume)) backend.volumes.set(volume, new Map());
  };
  return backend;
}

async function answer(context: Context, question: Question): Promise<void> {
  const { id } = question;
  if (question.ask === 'memory') {
    const memory = await measure();
    if (question.snapshot !== undefined) writeHeapSnapshot(question.snapshot);
    return tell({ kind: 'memory', id, memory });
  }
  const error = await importFile(context, question).then(
    () => null,
    (thrown: Error) => (thrown instanceof UserError || thrown instanceof ImportError ? null : String(thrown.stack)),
  );
  tell({ kind: 'import', id, error });
}

async function importFile(
  context: Context,
  { bytes, chunkBytes }: { bytes: Uint8Array; chunkBytes: number },
): Promise<void> {
  const chunks: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += chunkBytes) chunks.push(Buffer.from(bytes.subarray(at, at + chunkBytes)));
  await importRows(context, readRows(Readable.from(chunks)));
}

/** Some of what nobody needs goes some time after the rest: the least of some looks says what is in use. */
const LOOKS = 4;
const LOOK_MS = 150;

/** What is left when everything that nobody needs has gone. */
async function measure(): Promise<Memory> {
  const least = { rss: Number.POSITIVE_INFINITY, inUse: Number.POSITIVE_INFINITY, heap: Number.POSITIVE_INFINITY };
  for (let look = 0; look < LOOKS; look++) {
    globalThis.gc?.();
    await sleep(LOOK_MS);
    const { rss, heapUsed, external } = process.memoryUsage();
    // of what V8 has set aside some was never touched, and is not resident
    const { total_physical_size: heapResident } = getHeapStatistics();
    least.rss = Math.min(least.rss, rss);
    least.inUse = Math.min(least.inUse, rss - (heapResident - heapUsed) - readArenas());
    least.heap = Math.min(least.heap, heapUsed + external);
  }
  return least;
}
