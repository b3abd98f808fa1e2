/**
 * Measures how late the event loop runs timers. Takes samples only while the process is busy, because frequent timers
 * would use most of the CPU time of an idle process.
 */
import { type EventLoopUtilization, monitorEventLoopDelay, performance } from 'node:perf_hooks';

/** Part of the time for which the event loop must have been busy since the last check, so that samples are taken. */
const BUSY = 0.05;

export class LoopDelay {
  private readonly resolutionMs: number;
  private readonly histogram;
  private used: EventLoopUtilization = performance.eventLoopUtilization();
  private checkedAt = performance.now();
  /** Longest delay that `check` has found, in milliseconds. */
  private longestMs = 0;

  /** @param resolutionMs milliseconds between two samples */
  constructor(resolutionMs: number) {
    this.resolutionMs = resolutionMs;
    this.histogram = monitorEventLoopDelay({ resolution: resolutionMs });
  }

  /**
   * Starts or ends the sampling. Must be called by a timer.
   * @param everyMs interval of the timer, in milliseconds
   */
  check(everyMs: number): void {
    const [now, used] = [performance.now(), performance.eventLoopUtilization()];
    if (performance.eventLoopUtilization(used, this.used).utilization > BUSY) this.histogram.enable();
    else this.histogram.disable();
    this.longestMs = Math.max(this.longestMs, now - this.checkedAt - everyMs);
    [this.checkedAt, this.used] = [now, used];
  }

  /** Returns the figures since the last call, in seconds. Each figure includes the time between two samples. */
  take(): { min: number; max: number; mean: number; stddev: number; p50: number; p90: number; p99: number } {
    const { histogram, resolutionMs } = this;
    const max = Math.max(histogram.count > 0 ? histogram.max / 1e6 : 0, resolutionMs + this.longestMs) / 1000;
    const seconds = (nanoseconds: number) => (histogram.count > 0 ? nanoseconds / 1e9 : resolutionMs / 1000);
    const figures = {
      min: seconds(histogram.min),
      max,
      mean: seconds(histogram.mean),
      stddev: histogram.count > 0 ? histogram.stddev / 1e9 : 0,
      p50: seconds(histogram.percentile(50)),
      p90: seconds(histogram.percentile(90)),
      p99: seconds(histogram.percentile(99)),
    };
    histogram.reset();
    this.longestMs = 0;
    return figures;
  }
}
