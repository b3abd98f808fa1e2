/**
 * Server process of a fuzz test: a gateway and an engine with a memory library.
 * The parent process asks the server for its memory use, and to import files. The server reports warnings of Node.js.
 * An uncaught error ends the server, as in the real program.
 */
import { Readable } from 'node:stream';
import { openRuntime } from '../../src/cli/connection/runtime.js';
import { readConfig } from '../../src/config/config.js';
import { environment } from '../../src/core/environment.js';
import { UserError } from '../../src/core/errors.js';
import { importRows } from '../../src/domain/import/import.js';
import { ImportError } from '../../src/domain/import/import-lines.js';
import { readRows } from '../../src/domain/import/import-rows.js';
import { startEngine } from '../../src/engine/runner.js';
import { startGateway } from '../../src/main/app.js';
import { putOnTape } from '../support/factories.js';
import { createMemoryLibrary, type MemoryLibrary } from '../support/memory-library.js';
import { archive } from './archive.js';
import { type Memory, measureMemory } from './memory.js';

export type Question = { ask: 'memory' } | { ask: 'import'; bytes: Uint8Array; chunkBytes: number };

export type Message =
  | { kind: 'ready'; url: string }
  | { kind: 'warning'; text: string }
  | { kind: 'memory'; id: number; memory: Memory }
  /** The error is null if the file was imported or rejected. */
  | { kind: 'import'; id: number; error: string | null };

const report = (message: Message): void => void process.send?.(message);

process.on('warning', (warning) => report({ kind: 'warning', text: warning.stack ?? warning.message }));
process.on('disconnect', () => process.exit(1)); // the parent has ended
/** Limits low enough to reject some requests. Rate limits also apply to clients on this host. */
const lowLimits = { rateLocal: true, openPatterns: 60, unresolvedPaths: 200 };
const config = readConfig(environment);
const { ctx } = await openRuntime({ ...config, limits: { ...config.limits, ...lowLimits } });
await ctx.events.open();
await startEngine(ctx, createLibrary(), { drainMs: 200 });
const gateway = await startGateway(ctx);
process.on('message', (question: Question & { id: number }) => void answer(question));
report({ kind: 'ready', url: gateway.url });

/** Creates the library. Volumes that only imports name are created empty at their first mount. */
function createLibrary(): MemoryLibrary {
  const library = createMemoryLibrary();
  for (const copy of archive) putOnTape(library, copy);
  library.onMount = async (volume) => {
    library.log.length = 0; // the fuzz test does not read the log
    if (!library.volumes.has(volume)) library.volumes.set(volume, new Map());
  };
  return library;
}

async function answer(question: Question & { id: number }): Promise<void> {
  const { id } = question;
  if (question.ask === 'memory') return report({ kind: 'memory', id, memory: await measureMemory() });
  const { bytes, chunkBytes } = question;
  const chunks: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += chunkBytes) chunks.push(Buffer.from(bytes.subarray(at, at + chunkBytes)));
  const error = await importRows(ctx, readRows(Readable.from(chunks))).then(
    () => null,
    (thrown: Error) => (thrown instanceof UserError || thrown instanceof ImportError ? null : String(thrown.stack)),
  );
  report({ kind: 'import', id, error });
}
