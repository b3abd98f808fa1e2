/** Sends the metrics of an engine process every two seconds to the parent process, which outlives the engine process. */
import { type Counted, count, type Recorder, recordBy, type Timed, time } from '../core/signals.js';
import type { Database } from '../db/pools.js';
import { LoopDelay } from './loop-delay.js';

export interface ForwardedSignals {
  counts: [name: Counted, labels: Record<string, string>, by: number][];
  times: [name: Timed, labels: Record<string, string>, seconds: number[]][];
  figures: Omit<EngineFigures, 'part'>;
}

const MOST_TIMES = 10_000;

/** Interval in milliseconds at which an engine process calls `Forwarding.take`. */
export const FORWARD_MS = 2000;
/** Milliseconds between two samples of the event loop's delay. */
const SAMPLE_MS = 20;

export function connectionsOf({ totalCount, idleCount, waitingCount }: Database['pool']): Connections {
  return { used: totalCount - idleCount, idle: idleCount, waiting: waitingCount };
}

export class Forwarding implements Recorder {
  private readonly part: string;
  private counts = new Map<string, ForwardedSignals['counts'][number]>();
  private times = new Map<string, ForwardedSignals['times'][number]>();
  private readonly loop = new LoopDelay(SAMPLE_MS);
  private cpu = process.cpuUsage();

  constructor(part: string) {
    this.part = part;
    recordBy(this);
  }

  count(name: Counted, labels: Record<string, string>, by: number): void {
    const key = name + JSON.stringify(labels);
    const known = this.counts.get(key);
    if (known) known[2] += by;
    else this.counts.set(key, [name, labels, by]);
  }

  time(name: Timed, labels: Record<string, string>, seconds: number): void {
    const key = name + JSON.stringify(labels);
    const known = this.times.get(key);
    if (!known) this.times.set(key, [name, labels, [seconds]]);
    else if (known[2].length < MOST_TIMES) known[2].push(seconds);
  }

  take(db: Database | undefined): ForwardedSignals {
    const spent = process.cpuUsage(this.cpu);
    this.cpu = process.cpuUsage();
    this.count('tapegate_engine_cpu_seconds_total', { part: this.part }, (spent.user + spent.system) / 1e6);
    const [counts, times] = [[...this.counts.values()], [...this.times.values()]];
    this.counts = new Map();
    this.times = new Map();
    this.loop.check(FORWARD_MS);
    const { max: loopSeconds } = this.loop.take();
    const connections = db ? connectionsOf(db.pool) : { used: 0, idle: 0, waiting: 0 };
    return { counts, times, figures: { residentBytes: process.memoryUsage.rss(), loopSeconds, connections } };
  }
}

export function replay(pid: number, part: string, { counts, times, figures }: ForwardedSignals): void {
  for (const [name, labels, by] of counts) count(name, labels as never, by);
  for (const [name, labels, all] of times) for (const seconds of all) time(name, labels as never, seconds);
  engineFigures.set(pid, { part, ...figures });
}

export function deleteProcess(pid: number | undefined): void {
  if (pid !== undefined) engineFigures.delete(pid);
}

/** The latest values of the gauges that an engine process has sent. */

export interface EngineFigures {
  part: string;
  residentBytes: number;
  loopSeconds: number;
  connections: Connections;
}

export interface Connections {
  used: number;
  idle: number;
  waiting: number;
}

export const engineFigures = new Map<number, EngineFigures>();
