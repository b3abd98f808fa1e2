/** Prints the slowest tests at the end of a run, whether it has failed or not. */
import type { Reporter, TestCase } from 'vitest/node';

const SHOWN = 10;

export default class SlowestTests implements Reporter {
  /** By id: a test that is tried again counts once, with its last time. */
  private readonly tests = new Map<string, { name: string; ms: number }>();

  /** Once a run: while somebody watches, there are several. */
  onTestRunStart(): void {
    this.tests.clear();
  }

  onTestCaseResult(test: TestCase): void {
    const ms = test.diagnostic()?.duration; // undefined for one that was left out
    if (ms !== undefined) this.tests.set(test.id, { name: `${test.module.relativeModuleId} > ${test.fullName}`, ms });
  }

  onTestRunEnd(): void {
    const slowest = [...this.tests.values()].sort((a, b) => b.ms - a.ms).slice(0, SHOWN);
    if (slowest.length === 0) return;
    const lines = slowest.map(({ name, ms }) => `${(ms / 1000).toFixed(1).padStart(7)} s  ${name}`);
    process.stdout.write(`\nThe slowest ${slowest.length} tests:\n${lines.join('\n')}\n`);
  }
}
