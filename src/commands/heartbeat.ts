/** A process that stays says that it lives, and what it is, until it ends. */
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';
import type { Context } from '../context.js';
import { logFailure } from '../errors.js';
import { BEAT_MS, forgetProcess, noteProcess, type ProcessKind } from '../operations/site/processes.js';
import { packageRoot } from '../package-root.js';

/** A database that cannot be asked just now is asked again at the next beat. @returns what ends it */
export async function keepHeartbeat(
  ctx: Context,
  parts: { gateway: boolean; engine: boolean },
): Promise<() => Promise<void>> {
  const { version } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8'));
  const kinds: ProcessKind[] = [];
  if (parts.gateway) kinds.push('GATEWAY');
  if (parts.engine) kinds.push('ENGINE');
  const processes = kinds.map((kind) => ({ id: randomUUID(), kind, host: hostname(), pid: process.pid, version }));
  let last: Promise<unknown> = Promise.resolve();
  const beat = () => {
    last = Promise.all(processes.map((each) => noteProcess(ctx, each))).catch((error) =>
      logFailure(ctx.log, error, 'that this process lives'),
    );
  };
  beat();
  await last;
  const timer = setInterval(beat, BEAT_MS).unref();
  return async () => {
    clearInterval(timer);
    await last;
    await Promise.all(processes.map(({ id }) => forgetProcess(ctx, id))).catch(() => {}); // its last word is old soon
  };
}
