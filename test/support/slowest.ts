/** Prints the slowest tests at the end of a run, whether it has failed or not, and those that passed at a second try only, with why the first one failed. */
import type { Reporter, TestCase } from 'vitest/node';

const SHOWN = 10;

export default class SlowestTests implements Reporter {
  /** By id: a test that is tried again counts once, with its last time. */
  private readonly tests = new Map<string, { name: string; ms: number }>();

  private readonly retried = new Set<string>();

  /** Once a run: while somebody watches, there are several. */
  onTestRunStart(): void {
    this.tests.clear();
    this.retried.clear();
  }

  onTestCaseResult(test: TestCase): void {
    const { duration: ms, flaky } = test.diagnostic() ?? {}; // undefined for one that was left out
    const why =
      test.result().errors?.map(({ message }) => `\n    ${message.slice(0, 2000).replaceAll('\n', '\n    ')}`) ?? [];
    if (flaky) this.retried.add(`${test.module.relativeModuleId} > ${test.fullName}${why.join('')}`);
    if (ms !== undefined) this.tests.set(test.id, { name: `${test.module.relativeModuleId} > ${test.fullName}`, ms });
  }

  onTestRunEnd(): void {
    const slowest = [...this.tests.values()].sort((a, b) => b.ms - a.ms).slice(0, SHOWN);
    if (slowest.length === 0) return;
    const lines = slowest.map(({ name, ms }) => `${(ms / 1000).toFixed(1).padStart(7)} s  ${name}`);
    if (this.retried.size > 0) process.stdout.write(`\nPassed at a second try:\n  ${[...this.retried].join('\n  ')}\n`);
    process.stdout.write(`\nThe slowest ${slowest.length} tests:\n${lines.join('\n')}\n`);
  }
}
