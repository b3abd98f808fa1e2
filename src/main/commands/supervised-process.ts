/**
 * Runs one engine process (src/main/engine-process.ts), and restarts it if it ends. The engine processes exit when the
 * parent process ends, because their IPC channel closes.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { ClientConfig } from 'pg';
import { environment } from '../../cli/terminal/io.js';
import { packageRoot } from '../../core/package-root.js';
import { count, type EngineEnd } from '../../core/signals.js';
import type { Context } from '../../domain/context.js';
import { FIRST_LIBRARY } from '../../domain/libraries/libraries.js';
import { deleteProcess, type ForwardedSignals, replay } from '../../telemetry/forwarded.js';

export type EngineOrder = ({ kind: 'begin'; libraryId: number } & OrderParts) | { kind: 'stop' };

interface OrderParts {
  connection: ClientConfig;
  engineId: string;
  isMeasured: boolean;
}

/**
 * Message from an engine process. An engine process sends `alive` when it has loaded its code,
 * and every two seconds after the order `begin`. It also reports that it is ready, or
 * why it is about to end.
 */
export interface EngineReport {
  kind: 'ready' | 'alive' | keyof typeof endings;
  /** Why the process failed, if its parent must report the error. */
  problem?: string | undefined;
  /** The process's metrics since its last message; absent if metrics are off. */
  metrics?: ForwardedSignals | undefined;
}

const endings = {
  failed: 'the process cannot start',
  hung: 'a call to a disk or a tape library hangs',
  stopped: 'the process stopped',
} as const satisfies { [End in EngineEnd]?: string };

/** Maximum milliseconds to wait for an engine process's message `ready`. */
const READY_MS = 15_000;

/**
 * Maximum milliseconds for the engine processes to stop. A stopping engine waits 5 s for active files, and then a few
 * more seconds for the reads that it has aborted.
 */
const STOP_MS = 12_000;

/** Milliseconds after which a silent process counts as stalled. By then, the process's leases have expired. */
const SILENT_MS = 20_000;
const CHECK_MS = 1000;

/** Maximum milliseconds from a process's start to its first message. */
const LOAD_MS = 300_000;
const MAX_LOADING = Math.max(2, availableParallelism());

/**
 * Milliseconds to wait before restarting a process that has ended. The pause doubles each time the process ends within
 * `SOON_MS` milliseconds after its start.
 */
const PAUSE_MS = { first: 1000, most: 30_000 };
const SOON_MS = 60_000;

/** Number of threads for file system calls. */
const THREADS = '8';

/**
 * Path of the engine process's program. When tests run Tapegate from its source files, this is the path of the bundled
 * program.
 */
const { dir, ext } = path.parse(fileURLToPath(import.meta.url));
const file =
  ext === '.ts' ? path.join(packageRoot, 'dist/program/engine-process.cjs') : path.join(dir, `../engine-process${ext}`);

/**
 * V8 options for engine processes. With the default young generation, many network buffers accumulate, and V8 can spend
 * half of the CPU time marking the heap during a restore. A small young generation makes V8 free the buffers earlier.
 */
const HEAP_OPTIONS = ['--max-semi-space-size=1'];

class Loading {
  private readonly waiting: (() => void)[] = [];
  private running = 0;

  begin(load: () => void): void {
    if (this.running >= MAX_LOADING) this.waiting.push(load);
    else this.run(load);
  }

  forget(load: () => void): void {
    const index = this.waiting.indexOf(load);
    if (index >= 0) this.waiting.splice(index, 1);
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

export class SupervisedProcess {
  private readonly ctx: Context;
  private readonly order: OrderParts;
  private readonly part: 'drive' | 'jobs';
  private child: ChildProcess | undefined;
  private libraryId: number | undefined;
  private aliveAt: number | undefined;
  private heardAt = 0;
  private checkedAt = 0;
  private pauseMs = PAUSE_MS.first;
  private isStopping = false;
  /** Whether the process ended by SIGTERM while it loaded its code. A service manager sends the signal to the parent, too. */
  private isTerminated = false;
  private restart: NodeJS.Timeout | undefined;
  private watch: NodeJS.Timeout | undefined;
  private onReady: () => void = () => {};
  private onGone: () => void = () => {};

  constructor(ctx: Context, order: OrderParts, part: 'drive' | 'jobs') {
    this.ctx = ctx;
    this.order = order;
    this.part = part;
  }

  /** After loading its code, an engine process waits for the message `begin` from its parent. */
  fork(): void {
    loading.begin(this.load);
  }

  private readonly load = (): void => {
    const child = forkProgram(this.part);
    this.child = child;
    this.aliveAt = undefined;
    this.heardAt = performance.now();
    this.checkedAt = this.heardAt;
    child.on('message', (report: EngineReport) => this.receive(child, report));
    child.on('error', (error) => this.lose(child, `the process cannot be started: ${error.message}`));
    child.on('exit', (code, signal) => {
      this.isTerminated = signal === 'SIGTERM';
      this.lose(child, `the process exited with ${signal ?? code}`);
    });
    this.watch = setInterval(() => this.check(child), CHECK_MS);
    this.watch.unref();
    this.sendOrder();
  };

  async begin(libraryId: number): Promise<void> {
    const ready = new Promise<void>((resolve) => {
      this.onReady = resolve;
    });
    this.libraryId = libraryId;
    this.heardAt = performance.now();
    this.sendOrder();
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
    this.send({ kind: 'stop' });
    await within(STOP_MS, gone);
    if (this.child === child) {
      this.ctx.log.warn({ part: this.part, pid: child.pid }, 'engine process did not stop in time: killed');
      this.lose(child, '');
    }
  }

  private sendOrder(): void {
    if (this.libraryId !== undefined) this.send({ kind: 'begin', ...this.order, libraryId: this.libraryId });
  }

  private send(order: EngineOrder): void {
    this.child?.send(order, () => {});
  }

  private receive(child: ChildProcess, { kind, metrics }: Partial<EngineReport>): void {
    if (!kind) return; // ignore messages without `kind`, because `node --watch` sends such messages
    this.heardAt = performance.now();
    if (this.child === child) this.recordLife();
    if (metrics && child.pid !== undefined && this.child === child) replay(child.pid, this.part, metrics);
    if (kind === 'ready') this.onReady();
    else if (kind !== 'alive') this.lose(child, endings[kind], kind);
  }

  private recordLife(): void {
    if (this.aliveAt === undefined) loading.end();
    this.aliveAt ??= this.heardAt;
  }

  /**
   * Ends a child process that is silent for too long. If the parent process itself stalled, starts to measure the
   * silence again. A process without orders sends no messages after it has loaded its code.
   */
  private check(child: ChildProcess): void {
    const now = performance.now();
    if (now - this.checkedAt > 2 * CHECK_MS) this.heardAt = now;
    this.checkedAt = now;
    if (this.aliveAt !== undefined && this.libraryId === undefined) return;
    const maxMs = this.aliveAt === undefined ? LOAD_MS : SILENT_MS;
    if (now - this.heardAt > maxMs) this.lose(child, `the process sent no message for ${maxMs / 1000} s`, 'silent');
  }

  /**
   * Kills an engine process and immediately counts it as ended, even if it hangs in the kernel. A killed process does
   * no more work, and exits when its system call returns.
   */
  private lose(child: ChildProcess, why: string, seen: EngineEnd = 'gone'): void {
    if (this.child !== child) return;
    this.child = undefined;
    if (this.aliveAt === undefined) loading.end();
    deleteProcess(child.pid);
    clearInterval(this.watch);
    child.kill('SIGKILL');
    if (child.connected) child.disconnect();
    child.unref();
    this.onReady();
    this.onGone();
    if (this.isStopping) return;
    count('tapegate_engine_process_ends_total', { part: this.part, reason: seen });
    this.scheduleRestart(why);
  }

  private scheduleRestart(why: string): void {
    const isSoon = this.aliveAt === undefined || performance.now() - this.aliveAt < SOON_MS;
    this.pauseMs = isSoon ? Math.min(this.pauseMs * 2, PAUSE_MS.most) : PAUSE_MS.first;
    const { isTerminated, pauseMs } = this;
    this.isTerminated = false;
    const tell = () => this.ctx.log.error({ part: this.part, pauseMs }, `restarting an engine process: ${why}`);
    if (!isTerminated) tell();
    this.restart = setTimeout(() => {
      if (isTerminated) tell();
      this.fork();
    }, pauseMs);
  }
}

function forkProgram(part: 'drive' | 'jobs' | 'demo'): ChildProcess {
  const env = { UV_THREADPOOL_SIZE: THREADS, ...environment() };
  const execArgv = [...HEAP_OPTIONS, ...process.execArgv];
  return fork(file, [part], { execArgv, stdio: ['ignore', 'ignore', 'inherit', 'ipc'], env });
}

/** Archives the files of the demo in a process of its own. @throws Error if the process fails */
export async function runDemoProcess(connection: ClientConfig): Promise<void> {
  const child = forkProgram('demo');
  let end: Partial<EngineReport> | undefined;
  child.on('message', (report: Partial<EngineReport>) => {
    if (report.kind === 'stopped' || report.kind === 'failed') end = report;
  });
  const order: EngineOrder = {
    kind: 'begin',
    connection,
    engineId: randomUUID(),
    libraryId: FIRST_LIBRARY,
    isMeasured: false,
  };
  child.send(order, () => {});
  const [code, signal] = await once(child, 'exit');
  if (end?.kind === 'stopped') return;
  throw new Error(end?.problem ?? `cannot create the demo archive: its process exited with ${signal ?? code}`);
}

async function within(ms: number, done: Promise<void>): Promise<void> {
  const timer = new AbortController();
  await Promise.race([done, sleep(ms, undefined, { signal: timer.signal }).catch(() => {})]);
  timer.abort();
}
