/**
 * One process of an engine: a drive of a library, or the passes. It is started, told and watched by src/main/commands/engine-processes.ts.
 *
 * Its own code goes on while threads hang in calls on a disk or a tape. So it finds that out, takes what hangs out of
 * service, gives the drive back, says so, and ends itself with SIGKILL: any other end would wait for the threads. It ends in
 * the same way when its keeper is gone, which loses nothing: whatever it does may be killed at any line.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { attach } from '../cli/connection/runtime.js';
import { readConfig } from '../config/config.js';
import { environment } from '../core/environment.js';
import { type Database, ENGINE_POOL } from '../db/client.js';
import { ClockWatch } from '../domain/clock.js';
import type { Context } from '../domain/context.js';
import { FIRST_LIBRARY, type Library, readLibraries } from '../domain/libraries/libraries.js';
import { type DriveWork, mountVolumes } from '../engine/drive/drive.js';
import { type Engine, startEngine } from '../engine/runner.js';
import { workOf } from '../engine/work.js';
import { createFirstLibrary } from '../tape/kinds.js';
import { Forwarding } from '../telemetry/forwarded.js';
import { openTraces } from '../telemetry/open-traces.js';
import type { EngineOrder, EngineReport } from './commands/engine-processes.js';
import { hideSecretsOfCrashes } from './crash.js';

const ALIVE_MS = 1000;

const CLOSE_MS = 1000;

hideSecretsOfCrashes();
const part = process.argv[2] === 'passes' ? 'passes' : 'drive';
const config = readConfig(environment, { listens: false });
let engine: Promise<Engine> | undefined;
let close: () => Promise<void> = async () => {};
let db: Database | undefined;
let forwarding: Forwarding | undefined;

// terminals and service managers signal the whole group; the parent says when to stop
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => {});
process.on('disconnect', end);
process.on('message', (order: EngineOrder) => {
  if (order.kind === 'begin') engine ??= begin(order);
  else void stop();
});
setInterval(() => tell('alive'), ALIVE_MS);
tell('alive');

function end(): void {
  process.kill(process.pid, 'SIGKILL');
}

function tell(kind: EngineReport['kind'], onTold: () => void = () => {}): void {
  const told = forwarding?.take(db);
  if (process.connected) process.send?.({ kind, told } satisfies EngineReport, undefined, undefined, onTold);
  else end();
}

async function begin({
  connection,
  engineId,
  libraryId,
  isMeasured,
}: Extract<EngineOrder, { kind: 'begin' }>): Promise<Engine> {
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
    await runtime.ctx.events.open();
    const libraries = await readLibraries(runtime.ctx);
    const library = libraries.find(({ id }) => id === libraryId);
    if (!library) return await leave('stopped'); // it was removed, which its keeper sees as well
    const begun = await startEngine(runtime.ctx, openLibrary(runtime.ctx, library), {
      part,
      library,
      engineId,
      env: environment,
      onHang: () => void leave('hung'),
    });
    tell('ready');
    return begun;
  } catch (error) {
    runtime.ctx.log.error({ err: error, part }, 'an engine process cannot begin');
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

async function leave(kind: 'failed' | 'hung' | 'stopped'): Promise<never> {
  await Promise.race([close(), sleep(CLOSE_MS)]).catch(() => {}); // it ends in any case
  tell(kind, end);
  return await new Promise<never>(() => {});
}
