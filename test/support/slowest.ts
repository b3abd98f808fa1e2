/** Prints the slowest tests at the end of a run. */
import type { Reporter, TestCase } from 'vitest/node';

const SHOWN = 10;

export default class SlowestTests implements Reporter {
  private readonly tests: { name: string; ms: number }[] = [];

  /** Clears the tests of an earlier run in watch mode. */
  onTestRunStart(): void {
    this.tests.length = 0;
  }

  onTestCaseResult(test: TestCase): void {
    const ms = test.diagnostic()?.duration; // a skipped test has no duration
    if (ms !== undefined) this.tests.push({ name: `${test.module.relativeModuleId} > ${test.fullName}`, ms });
  }

  onTestRunEnd(): void {
    const slowest = this.tests.sort((a, b) => b.ms - a.ms).slice(0, SHOWN);
    if (slowest.length === 0) return;
    const lines = slowest.map(({ name, ms }) => `${(ms / 1000).toFixed(1).padStart(7)} s  ${name}`);
    process.stdout.write(`\nThe slowest ${slowest.length} tests:\n${lines.join('\n')}\n`);
  }
}
