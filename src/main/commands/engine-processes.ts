/**
 * The engine of `start` and `work`: one process for each drive of each library, and one for jobs
 * (src/main/engine-process.ts). This process starts them again, and itself touches neither disks nor tapes. A hanging call
 * blocks a thread that nothing can end, and a few of them block a process. So a hang costs one drive, or the jobs,
 * until a restart.
 * The processes end with this one, however it ends: they notice that their IPC channel is closed.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { ClientConfig } from 'pg';
import type { Runtime } from '../../cli/connection/runtime.js';
import { environment } from '../../cli/terminal/io.js';
import { packageRoot } from '../../core/package-root.js';
import { count, isCounting } from '../../core/signals.js';
import type { Context } from '../../domain/context.js';
import { FIRST_LIBRARY } from '../../domain/libraries/libraries.js';
import { FollowedLibraries, readingKey } from '../../engine/followed-libraries.js';
import { runJobs, WorkSignal } from '../../engine/jobs/jobs.js';
import { forgetProcess, replay, type Told } from '../../telemetry/forwarded.js';

/** Messages to an engine process. */
export type EngineOrder =
  | { kind: 'begin'; connection: ClientConfig; engineId: string; libraryId: number; isMeasured: boolean }
  | { kind: 'stop' };

/** Messages from an engine process: ready, alive every second, and the reason before it ends. */
export interface EngineReport {
  kind: 'ready' | 'alive' | keyof typeof endings;
  /** Its metrics since the last message, if requested. */
  told?: Told | undefined;
}

const endings = {
  failed: 'it cannot begin',
  hung: 'a call on a disk or a tape hangs',
  stopped: 'it has stopped',
} as const;

export interface EngineProcesses {
  /** Ends all of them within `STOP_MS`. */
  stop(): Promise<void>;
}

/** `start` reports ready after this time at the latest. */
const READY_MS = 15_000;

/** An engine waits 5 s for active files, and a few more for what it has given up. */
const STOP_MS = 12_000;

/** A stalled process is detected after this time; its leases have expired by then. */
const SILENT_MS = 20_000;
const LOOK_MS = 1000;

/** A process may load for this long before its first sign of life: a busy host, a cold disk. */
const LOAD_MS = 300_000;
/** Processes that load at once; more would take each other's processor time. */
const MOST_LOADING = Math.max(2, availableParallelism());

/** Pause before a restart; doubles while processes end within `SOON_MS`. */
const PAUSE_MS = { first: 1000, most: 30_000 };
const SOON_MS = 60_000;

/** Threads for file calls; some may be lost to disks that do not answer. */
const THREADS = '8';

/**
 * In the parent of this file's directory, in the bundle and in a build file by file; tests of the sources start the
 * bundle's.
 */
const { dir, ext } = path.parse(fileURLToPath(import.meta.url));
const file =
  ext === '.ts' ? path.join(packageRoot, 'dist/program/engine-process.cjs') : path.join(dir, `../engine-process${ext}`);

/** @returns once the restore disks are registered, or after `READY_MS`; then the drives begin */
export async function startEngineProcesses({ ctx, connection }: Runtime): Promise<EngineProcesses> {
  const order = { kind: 'begin', connection, engineId: randomUUID(), isMeasured: isCounting() } as const;
  const make = (part: 'drive' | 'passes', libraryId: number) => new KeptProcess(ctx, { ...order, libraryId }, part);
  const drivesOf = ({ id, drives }: { id: number; drives: number }) =>
    Array.from({ length: drives }, () => make('drive', id));
  const passes = make('passes', FIRST_LIBRARY);
  const first = drivesOf({ id: FIRST_LIBRARY, drives: ctx.config.drives });
  const all = [passes, ...first];
  for (const each of all) each.fork();
  // if a drive began before the disks, the first files would wait for one
  await passes.begin();
  for (const drive of first) void drive.begin();
  const stopping = new AbortController();
  const others = new FollowedLibraries(ctx, {
    keyOf: readingKey,
    stop: stopping.signal,
    work: async (library, stop) => {
      const drives = drivesOf(library);
      for (const each of drives) {
        each.fork();
        void each.begin();
      }
      await once(stop, 'abort');
      await Promise.all(drives.map((each) => each.stop())); // active files may take some seconds
    },
  });
  const bell = new WorkSignal();
  const unlisten = ctx.events.onRing('library', () => bell.notify());
  const follow = { name: 'libraries', bell, everyMs: LIBRARIES_MS, run: () => others.follow() };
  void runJobs(ctx, stopping.signal, [follow]);
  return {
    stop: async () => {
      stopping.abort();
      unlisten();
      await Promise.all([others.ended, ...all.map((each) => each.stop())]);
    },
  };
}

const LIBRARIES_MS = 5000;

/**
 * Network buffers are outside the V8 heap, and many of them make V8 mark the whole heap, which took half of the processor
 * time of a restore. A small young generation is collected before that, and frees them.
 */
const HEAP_OPTIONS = ['--max-semi-space-size=1'];

/** Lets a few processes load at once, in order. */
class Loading {
  private readonly waiting: (() => void)[] = [];
  private running = 0;

  begin(load: () => void): void {
    if (this.running >= MOST_LOADING) this.waiting.push(load);
    else this.run(load);
  }

  /** Skips a process that no longer wants to load. */
  forget(load: () => void): void {
    const place = this.waiting.indexOf(load);
    if (place >= 0) this.waiting.splice(place, 1);
  }

  end(): void {
    this.running--;
    const next = this.waiting.shift();
    if (next) this.run(next);
  }

  private run(load: () => void): void {
    this.running++;
    load();
  }
}

const loading = new Loading();

class KeptProcess {
  private readonly ctx: Context;
  private readonly order: EngineOrder;
  private readonly part: 'drive' | 'passes';
  private child: ChildProcess | undefined;
  private isOrdered = false;
  /** Its first sign of life. */
  private aliveAt: number | undefined;
  private heardAt = 0;
  private lookedAt = 0;
  private pauseMs = PAUSE_MS.first;
  private isStopping = false;
  private restart: NodeJS.Timeout | undefined;
  private watch: NodeJS.Timeout | undefined;
  private onReady: () => void = () => {};
  private onGone: () => void = () => {};

  constructor(ctx: Context, order: EngineOrder, part: 'drive' | 'passes') {
    this.ctx = ctx;
    this.order = order;
    this.part = part;
  }

  /** Loads the program when it is its turn; the process waits for its order to begin. */
  fork(): void {
    loading.begin(this.load);
  }

  private readonly load = (): void => {
    const env = { UV_THREADPOOL_SIZE: THREADS, ...environment() };
    const execArgv = [...HEAP_OPTIONS, ...process.execArgv];
    const child = fork(file, [this.part], { execArgv, stdio: ['ignore', 'ignore', 'inherit', 'ipc'], env });
    this.child = child;
    this.aliveAt = undefined;
    this.heardAt = performance.now();
    this.lookedAt = this.heardAt;
    child.on('message', (report: EngineReport) => this.hear(child, report));
    child.on('error', (error) => this.lose(child, `it cannot be started: ${error.message}`));
    child.on('exit', (code, signal) => this.lose(child, `it has ended with ${signal ?? code}`));
    this.watch = setInterval(() => this.look(child), LOOK_MS);
    this.watch.unref();
    if (this.isOrdered) this.tell(this.order);
  };

  async begin(): Promise<void> {
    const ready = new Promise<void>((resolve) => {
      this.onReady = resolve;
    });
    this.isOrdered = true;
    this.tell(this.order);
    await within(READY_MS, ready);
  }

  async stop(): Promise<void> {
    this.isStopping = true;
    clearTimeout(this.restart);
    loading.forget(this.load);
    const child = this.child;
    if (!child) return;
    const gone = new Promise<void>((resolve) => {
      this.onGone = resolve;
    });
    this.tell({ kind: 'stop' });
    await within(STOP_MS, gone);
    if (this.child === child) {
      this.ctx.log.warn({ part: this.part, pid: child.pid }, 'an engine process does not stop: it is ended');
      this.lose(child, '');
    }
  }

  private tell(order: EngineOrder): void {
    this.child?.send(order, () => {}); // its exit is reported separately
  }

  private hear(child: ChildProcess, { kind, told }: Partial<EngineReport>): void {
    if (!kind) return; // from `node --watch`: every process reports the files that it loads
    this.heardAt = performance.now();
    if (this.child === child) this.noteLife();
    if (told && child.pid !== undefined && this.child === child) replay(child.pid, this.part, told);
    if (kind === 'ready') this.onReady();
    else if (kind !== 'alive') this.lose(child, endings[kind], kind);
  }

  private noteLife(): void {
    if (this.aliveAt === undefined) loading.end();
    this.aliveAt ??= this.heardAt;
  }

  /** Time in which this process itself stalled does not count. */
  private look(child: ChildProcess): void {
    const now = performance.now();
    if (now - this.lookedAt > 2 * LOOK_MS) this.heardAt = now;
    this.lookedAt = now;
    const mostMs = this.aliveAt === undefined ? LOAD_MS : SILENT_MS;
    if (now - this.heardAt > mostMs) this.lose(child, `it is silent for ${mostMs / 1000} s`, 'silent');
  }

  /** Counts the process as ended: one that hangs in the kernel stays until its call ends, and does nothing else. */
  private lose(child: ChildProcess, why: string, seen: keyof typeof endings | 'silent' | 'gone' = 'gone'): void {
    if (this.child !== child) return;
    this.child = undefined;
    if (this.aliveAt === undefined) loading.end();
    forgetProcess(child.pid);
    clearInterval(this.watch);
    child.kill('SIGKILL');
    if (child.connected) child.disconnect();
    child.unref();
    this.onReady();
    this.onGone();
    if (this.isStopping) return;
    count('tapegate_engine_process_ends_total', { part: this.part, why: seen });
    this.startAgain(why);
  }

  private startAgain(why: string): void {
    const isSoon = this.aliveAt === undefined || performance.now() - this.aliveAt < SOON_MS;
    this.pauseMs = isSoon ? Math.min(this.pauseMs * 2, PAUSE_MS.most) : PAUSE_MS.first;
    this.ctx.log.error({ part: this.part, pauseMs: this.pauseMs }, `an engine process is started again: ${why}`);
    this.restart = setTimeout(() => this.fork(), this.pauseMs);
  }
}

async function within(ms: number, done: Promise<void>): Promise<void> {
  const timer = new AbortController();
  await Promise.race([done, sleep(ms, undefined, { signal: timer.signal }).catch(() => {})]);
  timer.abort();
}
