/**
 * An engine process, which runs either one drive of a library, or the periodic jobs. A process with the argument `demo`
 * only archives the files of the demo, because this work leaves much unused memory in its process.
 *
 * If a call hangs, the process suspends the disk or drive, releases the lease, and reports the hang. The process then
 * kills itself with SIGKILL, because a normal exit would wait for the hung call. An engine process also kills itself if
 * its parent has ended.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { attach } from '../cli/connection/runtime.js';
import { readConfig } from '../config/config.js';
import { environment } from '../core/environment.js';
import { messageOf } from '../core/errors.js';
import { type Database, ENGINE_POOL } from '../db/pools.js';
import { ClockWatch } from '../domain/clock.js';
import type { Context } from '../domain/context.js';
import { FIRST_LIBRARY, type Library, readLibraries } from '../domain/libraries/libraries.js';
import { type DriveWork, mountVolumes } from '../engine/drive/drive.js';
import { type Engine, startEngine } from '../engine/runner.js';
import { workOf } from '../engine/work.js';
import { createFirstLibrary } from '../tape/kinds.js';
import { FORWARD_MS, Forwarding } from '../telemetry/forwarded.js';
import { openTraces } from '../telemetry/open-traces.js';
import type { EngineOrder, EngineReport } from './commands/supervised-process.js';
import { hideSecretsOfCrashes } from './crash.js';

const CLOSE_MS = 1000;

hideSecretsOfCrashes();
const part = process.argv[2] === 'jobs' ? 'jobs' : 'drive';
const isForDemo = process.argv[2] === 'demo';
const config = readConfig(environment, { listens: false });
let engine: Promise<Engine> | undefined;
let close: () => Promise<void> = async () => {};
let db: Database | undefined;
let forwarding: Forwarding | undefined;

// ignore signals: terminals and service managers signal all processes, but only the parent decides when to stop
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => {});
process.on('disconnect', end);
process.on('message', (order: EngineOrder) => {
  if (order.kind === 'begin') engine ??= begin(order);
  else void stop();
});
report('alive');

function end(): void {
  process.kill(process.pid, 'SIGKILL');
}

function report(kind: EngineReport['kind'], onSent: () => void = () => {}, problem?: string): void {
  const metrics = forwarding?.take(db);
  if (process.connected)
    process.send?.({ kind, metrics, problem } satisfies EngineReport, undefined, undefined, onSent);
  else end();
}

async function begin({
  connection,
  engineId,
  libraryId,
  isMeasured,
}: Extract<EngineOrder, { kind: 'begin' }>): Promise<Engine> {
  setInterval(() => report('alive'), FORWARD_MS);
  if (isMeasured) forwarding = new Forwarding(part);
  const runtime = attach(config, connection, { poolSize: ENGINE_POOL });
  const endTraces = await openTraces(config, runtime.ctx.log);
  close = async () => {
    await endTraces?.();
    await runtime.close();
  };
  db = runtime.ctx.db;
  try {
    await runtime.ctx.db.pulse.start();
    await runtime.ctx.db.keepDatabase();
    await new ClockWatch(runtime.ctx).begin();
    if (isForDemo) {
      const { archiveDemo } = await import('./demo.js');
      await archiveDemo(runtime.ctx, createFirstLibrary(config));
      return await leave('stopped');
    }
    await runtime.ctx.events.open();
    const libraries = await readLibraries(runtime.ctx);
    const library = libraries.find(({ id }) => id === libraryId);
    // do nothing if an operator has removed the library, because the parent process then ends this process
    if (!library) return await leave('stopped');
    const begun = await startEngine(runtime.ctx, openLibrary(runtime.ctx, library), {
      part,
      library,
      engineId,
      env: environment,
      onHang: () => void leave('hung'),
    });
    report('ready');
    return begun;
  } catch (error) {
    if (isForDemo) return await leave('failed', messageOf(error));
    runtime.ctx.log.error({ err: error, part }, 'engine process cannot start');
    return await leave('failed');
  }
}

function openLibrary(ctx: Context, library: Library): DriveWork {
  if (library.id === FIRST_LIBRARY) return mountVolumes(createFirstLibrary(config));
  return workOf(ctx, library, environment);
}

async function stop(): Promise<void> {
  await (await engine)?.stop();
  await leave('stopped');
}

async function leave(kind: 'failed' | 'hung' | 'stopped', problem?: string): Promise<never> {
  await Promise.race([close(), sleep(CLOSE_MS)]).catch(() => {});
  report(kind, end, problem);
  return await new Promise<never>(() => {});
}
