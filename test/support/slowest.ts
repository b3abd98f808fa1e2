/** Prints at the end of a run its slowest tests, and the tests that passed only at the second try with their first error. */
import type { Reporter, TestCase } from 'vitest/node';

const SHOWN = 10;

export default class SlowestTests implements Reporter {
  /** By id, because a retried test is reported twice. */
  private readonly tests = new Map<string, { name: string; ms: number }>();

  private readonly retried: string[] = [];

  /** Called once a run; in watch mode there are several. */
  onTestRunStart(): void {
    this.tests.clear();
    this.retried.length = 0;
  }

  onTestCaseResult(test: TestCase): void {
    const { duration: ms, flaky } = test.diagnostic() ?? {}; // undefined for a skipped test
    const name = `${test.module.relativeModuleId} > ${test.fullName}`;
    if (ms !== undefined) this.tests.set(test.id, { name, ms });
    if (!flaky) return;
    const errors = test.result().errors ?? [];
    this.retried.push(
      [name, ...errors.map(({ message }) => message.slice(0, 2000).replaceAll('\n', '\n    '))].join('\n    '),
    );
  }

  onTestRunEnd(): void {
    const slowest = [...this.tests.values()].sort((a, b) => b.ms - a.ms).slice(0, SHOWN);
    if (slowest.length === 0) return;
    const lines = slowest.map(({ name, ms }) => `${(ms / 1000).toFixed(1).padStart(7)} s  ${name}`);
    if (this.retried.length > 0) process.stdout.write(`\nPassed at a second try:\n  ${this.retried.join('\n  ')}\n`);
    process.stdout.write(`\nThe slowest ${slowest.length} tests:\n${lines.join('\n')}\n`);
  }
}
