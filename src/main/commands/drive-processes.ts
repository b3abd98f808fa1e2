/**
 * Runs the processes of drives while the drives have work. When a library has work, starts a process for each volume to
 * read. Ends a library's processes when the library has had no work for some minutes.
 *
 * Keeps one spare process, which has loaded its code but is idle and has no database connection, so that the first
 * drive starts without delay.
 */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { logFailure } from '../../core/errors.js';
import type { Context } from '../../domain/context.js';
import type { Library } from '../../domain/libraries/libraries.js';
import { readFence } from '../../domain/ownership.js';
import { type DriveWork, readDriveWork } from '../../domain/recalls/drive-work.js';
import { deleteEngineProcess, drivePrefix, recordReadyEngine } from '../../domain/recalls/drives.js';
import { addRecallCounters } from '../../engine/drive/recall-counts.js';
import type { Job, WorkSignal } from '../../engine/jobs/jobs.js';
import type { SupervisedProcess } from './supervised-process.js';

/** Milliseconds without work after which a library's processes end. */
const IDLE_MS = 180_000;

/** Maximum milliseconds between two searches for work. Not all work is notified, for example the end of a pause. */
const SEARCH_MS = 5000;
const LEAST_MS = 250;
/** The search takes longer the more volumes wait. */
const PAUSE_FACTOR = 10;

/**
 * Milliseconds after which one more process starts if volumes are still waiting. The processes that run might have
 * drives that cannot read the volumes.
 */
const WAITING_MS = 2000;

/** Milliseconds after the start of a drive's process before the next spare process loads its code. */
const SPARE_MS = 5000;

/** Milliseconds between two records that this engine is ready to use drives. */
const READY_MS = 10_000;

/** Maximum milliseconds to wait for the database when drives are given up. The record expires in any case. */
const DELETE_MS = 1000;

type DriveLibrary = Pick<Library, 'id' | 'name' | 'drives'>;

/** Creates a process. The process loads its code when its `fork` is called, and starts its work with `begin`. */
type MakeProcess = () => SupervisedProcess;

class DriveProcesses {
  readonly library: DriveLibrary;
  readonly id = randomUUID();
  private readonly take: MakeProcess;
  private readonly processes: SupervisedProcess[] = [];
  private readonly ending = new Set<Promise<void>>();
  private workedAt = performance.now();
  private waitsSince: number | undefined;

  constructor(library: DriveLibrary, take: MakeProcess) {
    this.library = library;
    this.take = take;
  }

  get lacking(): number {
    return this.library.drives - this.processes.length;
  }

  follow({ volumes, mounted, hasOther }: DriveWork, idleMs: number): void {
    const now = performance.now();
    if (volumes === 0) this.waitsSince = undefined;
    else this.waitsSince ??= now;
    if (volumes > 0 || mounted > 0 || hasOther) this.workedAt = now;
    else if (now - this.workedAt >= idleMs) void this.stop();
    if (volumes > 0) this.ensure(mounted + volumes);
    else if (hasOther) this.ensure(1);
    if (this.waitsSince === undefined || now - this.waitsSince < WAITING_MS) return;
    this.waitsSince = now;
    this.ensure(this.processes.length + 1);
  }

  /** Stops all processes, and waits until they and all earlier processes have ended. */
  async stop(): Promise<void> {
    for (const each of this.processes.splice(0)) {
      const ended = each.stop().finally(() => this.ending.delete(ended));
      this.ending.add(ended);
    }
    await Promise.all(this.ending);
  }

  private ensure(count: number): void {
    while (this.processes.length < Math.min(count, this.library.drives)) {
      const process = this.take();
      this.processes.push(process);
      void process.begin(this.library.id);
    }
  }
}

export class DriveProcessGroups {
  private readonly ctx: Context;
  private readonly engineId: string;
  private readonly make: MakeProcess;
  private readonly idleMs: number;
  private readonly groups = new Set<DriveProcesses>();
  private spare: SupervisedProcess | undefined;
  private spareTimer: NodeJS.Timeout | undefined;
  private isStopped = false;
  private readyAt = Number.NEGATIVE_INFINITY;

  constructor(
    ctx: Context,
    { engineId, make, idleMs = IDLE_MS }: { engineId: string; make: MakeProcess; idleMs?: number | undefined },
  ) {
    this.ctx = ctx;
    this.engineId = engineId;
    this.make = make;
    this.idleMs = idleMs;
  }

  /** Uses a library's drives from now on. */
  add(library: DriveLibrary): DriveProcesses {
    const group = new DriveProcesses(library, () => this.take());
    // the counters of a drive begin at zero before its first process starts
    for (let n = 1; n <= library.drives; n++) addRecallCounters(`${drivePrefix(library)}${n}`);
    this.groups.add(group);
    this.readyAt = Number.NEGATIVE_INFINITY;
    return group;
  }

  /** Stops the processes of a library's drives. */
  async remove(group: DriveProcesses): Promise<void> {
    this.groups.delete(group);
    await group.stop();
    const deleted = deleteEngineProcess(this.ctx, group.id).catch((error) => logFailure(this.ctx.log, error, 'drives'));
    await Promise.race([deleted, sleep(DELETE_MS, undefined, { ref: false })]);
  }

  async stop(): Promise<void> {
    this.isStopped = true;
    clearTimeout(this.spareTimer);
    await Promise.all([this.spare?.stop(), ...[...this.groups].map((each) => this.remove(each))]);
  }

  /** @param signal signal that is sent when drives might have work */
  job(signal: WorkSignal): Job {
    return {
      name: 'drive processes',
      signal,
      everyMs: SEARCH_MS,
      retryMs: LEAST_MS,
      leastMs: LEAST_MS,
      pauseFactor: PAUSE_FACTOR,
      run: () => this.follow(),
    };
  }

  private async follow(): Promise<void> {
    const works = new Map((await readDriveWork(this.ctx)).map((work) => [work.libraryId, work]));
    if (this.isStopped) return;
    for (const group of this.groups) {
      const work = works.get(group.library.id);
      if (work) group.follow(work, this.idleMs);
    }
    if (!this.spare) this.spareTimer ??= setTimeout(() => this.loadSpare(), 0);
    await this.recordReady();
  }

  private take(): SupervisedProcess {
    const process = this.spare ?? this.load();
    this.spare = undefined;
    clearTimeout(this.spareTimer);
    this.spareTimer = setTimeout(() => this.loadSpare(), SPARE_MS);
    return process;
  }

  private load(): SupervisedProcess {
    const process = this.make();
    process.fork();
    return process;
  }

  private loadSpare(): void {
    this.spareTimer = undefined;
    if ([...this.groups].some(({ lacking }) => lacking > 0)) this.spare ??= this.load();
  }

  private async recordReady(): Promise<void> {
    if (performance.now() - this.readyAt < READY_MS - SEARCH_MS / 2) return;
    this.readyAt = performance.now();
    if ((await readFence(this.ctx)) !== null) return;
    for (const { id, library } of this.groups) {
      const own = { id, engineId: this.engineId, host: hostname(), weight: this.ctx.config.engineWeight };
      await recordReadyEngine(this.ctx, { ...own, library, drives: library.drives, reach: library.drives });
    }
  }
}
