/** Checks console sessions in documents: runs each command in a shell, and compares the output with the document. */
import { expect } from 'vitest';
import { cliFile, startProcess } from './process.js';

interface Step {
  typed: string;
  printed: string;
}

/**
 * Splits a console session into commands and their output.
 * @param text of a fence, in which each command begins with `$ ` and may continue after a backslash
 */
export function readSteps(text: string): Step[] {
  return text
    .split(/^\$ /m)
    .slice(1)
    .map((step) => {
      const end = /(?<!\\)\n/.exec(step)?.index ?? step.length;
      const printed = step.slice(end + 1).replace(/^[█░].*\n/gm, ''); // remove progress bars
      return { typed: step.slice(0, end), printed: hideTimes(printed) };
    });
}

/** Replaces timestamps, in the formats of JSON output and of terminals. */
const hideTimes = (text: string) =>
  text.replace(/\d{4}-\d\d-\d\d(?:T[\d:.]+Z?| \d\d:\d\d:\d\d \(in \d+ \w+\))/g, 'T').trim();

/**
 * Shell functions that run the built program as `npx tapegate` and `tapegate`. The real npx would ask the npm registry
 * for updates.
 */
export const NPX = `npx() { shift; tapegate "$@"; }
tapegate() { '${process.execPath}' '${cliFile}' "$@"; }`;

/** Runs each step in a new shell with the built program, and expects the output in the document. */
export async function expectSession(
  steps: readonly Step[],
  options: { env: Record<string, string>; cwd: string },
): Promise<void> {
  for (const { typed, printed } of steps) {
    const { stdout, stderr } = await startProcess('bash', ['--norc', '-c', `${NPX}\n${typed}`], options).ended;
    // commands without standard output may print messages on standard error
    expect({ typed, printed: hideTimes(stdout === '' ? stderr : stdout) }, stderr).toEqual({ typed, printed });
  }
}
