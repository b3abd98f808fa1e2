/**
 * The engine: drives that recall, and the passes that expire, remove, join and send. Any number of engines may run on
 * one database. Every pass repairs what a dead one left, so the engine may be killed at any line.
 */
import { randomUUID } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../context.js';
import { messageOf } from '../errors.js';
import { createMailTransport } from '../mail.js';
import { returnOrphans } from '../operations/disks/removals.js';
import { findAbandoned } from '../operations/recalls/abandoned.js';
import { ensureDrives } from '../operations/recalls/drives.js';
import { failUnplaced } from '../operations/recalls/repair.js';
import { expireRequests } from '../operations/requests/ends.js';
import { joinAwaited } from '../operations/requests/joins.js';
import type { TapeBackend } from '../tape/backend.js';
import { removeUnheld } from './disk/removal.js';
import { prepareDisks } from './disk/setup.js';
import { DiskGauge, type readFileSystem } from './disk/space.js';
import { runDrive, takeOver } from './drive/drive.js';
import { RunningRecalls } from './drive/running.js';
import { VolumeFailures } from './drive/volume-failures.js';
import { sendMail } from './notify.js';
import { Waker } from './waker.js';

export interface Engine {
  /** Stops taking work, waits a while for what is in hand, and gives up the rest, which goes back into the queue. */
  stop(): Promise<void>;
}

export interface EngineOptions {
  /** A drive whose engine is silent for this long goes to another one. */
  leaseSeconds?: number;
  /** How long a stop waits for the file in hand. */
  drainMs?: number;
  /** How often drives without work, and whoever stops recalls, look without being rung for. */
  idleMs?: number;
  /** How the real free space of a restore disk is read. */
  readFileSystem?: typeof readFileSystem;
}

const LEASE_SECONDS = 15;
const DRAIN_MS = 5000;
const IDLE_MS = 1000;
const EXPIRE_MS = 1000;
const REPAIR_MS = 10_000;
const MAIL_MS = 2000;
/** A pass rests so long at least: its bell may ring for every batch of files, and each look costs the database. */
const REST_MS = 200;

export async function startEngine(ctx: Context, backend: TapeBackend, options: EngineOptions = {}): Promise<Engine> {
  const { leaseSeconds = LEASE_SECONDS, drainMs = DRAIN_MS, idleMs = IDLE_MS } = options;
  await prepareDisks(ctx);
  await ensureDrives(ctx, ctx.config.drives);
  const stop = new AbortController();
  const abort = new AbortController();
  setMaxListeners(0, stop.signal, abort.signal); // every drive and every pass waits on them
  const bells = { recall: new Waker(), event: new Waker(), notification: new Waker() };
  const unlisten = Object.entries(bells).map(([table, bell]) => ctx.events.onRing(table, () => bell.ring()));
  // what an operator has changed: there may be more to do now, or something to stop
  for (const bell of [bells.recall, bells.event]) unlisten.push(ctx.events.onRing('suspension', () => bell.ring()));
  const transport = ctx.config.smtpUrl ? createMailTransport(ctx.config.smtpUrl) : undefined;

  const drive = {
    engineId: randomUUID(),
    count: ctx.config.drives,
    leaseSeconds,
    stop: stop.signal,
    abort: abort.signal,
    running: new RunningRecalls(),
    failures: new VolumeFailures(),
    idleMs,
    gauge: new DiskGauge(options.readFileSystem),
  };
  unlisten.push(ctx.events.onRing('suspension', () => drive.failures.endPauses()));
  const drives = Array.from({ length: ctx.config.drives }, () =>
    runDrive(ctx, backend, { ...drive, work: bells.recall }),
  );
  const passes = [
    repeat(ctx, 'abandon', { everyMs: idleMs, bell: bells.event, stop: stop.signal }, async () => {
      if (!drive.running.isEmpty) drive.running.stop(await findAbandoned(ctx, drive.engineId));
    }),
    repeat(ctx, 'expire', { everyMs: EXPIRE_MS, bell: bells.event, stop: stop.signal }, async () => {
      await expireRequests(ctx);
      await removeUnheld(ctx, stop.signal);
    }),
    repeat(ctx, 'take over', { everyMs: leaseSeconds * 1000, bell: new Waker(), stop: stop.signal }, () =>
      takeOver(ctx, drive),
    ),
    repeat(ctx, 'repair', { everyMs: REPAIR_MS, bell: new Waker(), stop: stop.signal }, async () => {
      await returnOrphans(ctx);
      await joinAwaited(ctx);
    }),
    repeat(ctx, 'unplaced', { everyMs: REPAIR_MS, bell: bells.recall, stop: stop.signal }, () => failUnplaced(ctx)),
    repeat(ctx, 'mail', { everyMs: MAIL_MS, bell: bells.notification, stop: stop.signal }, () =>
      sendMail(ctx, transport, { stop: stop.signal, abort: abort.signal }),
    ),
  ];
  return {
    stop: async () => {
      stop.abort();
      const drained = Promise.all([...drives, ...passes]);
      await Promise.race([drained, sleep(drainMs, undefined, { ref: false })]);
      abort.abort();
      await drained;
      for (const end of unlisten) end();
      transport?.close();
    },
  };
}

/** Runs a pass again and again, on its bell and at least every so often; what it throws is logged and tried again. */
async function repeat(
  ctx: Context,
  name: string,
  timing: { everyMs: number; bell: Waker; stop: AbortSignal },
  pass: () => Promise<unknown>,
): Promise<void> {
  while (!timing.stop.aborted) {
    const seen = timing.bell.count;
    try {
      await pass();
    } catch (error) {
      ctx.log.error({ err: error }, `${name}: ${messageOf(error)}`);
      await rest(timing.everyMs, timing.stop);
      continue;
    }
    await rest(REST_MS, timing.stop);
    await timing.bell.wait(seen, timing.everyMs, timing.stop);
  }
}

/** Returns after the time given, or when the signal aborts. */
async function rest(ms: number, stop: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal: stop }).catch(() => {}); // woken by the stop
}
