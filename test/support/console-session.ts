/** Console sessions in documents: each command is run in a shell, and its output compared with the document. */
import { expect } from 'vitest';
import { cliFile, startProcess } from './process.js';

interface Step {
  typed: string;
  printed: string;
}

/** @param text of a fence, in which lines after `$ ` are commands, which a backslash continues */
export function readSteps(text: string): Step[] {
  return text
    .split(/^\$ /m)
    .slice(1)
    .map((step) => {
      const end = /(?<!\\)\n/.exec(step)?.index ?? step.length;
      const printed = step.slice(end + 1).replace(/^[█░].*\n/gm, ''); // what a terminal draws
      return { typed: step.slice(0, end), printed: hideTimes(printed) };
    });
}

/** Replaces times, as programs and as terminals show them. */
const hideTimes = (text: string) =>
  text.replace(/\d{4}-\d\d-\d\d(?:T[\d:.]+Z?| \d\d:\d\d:\d\d \(in \d+ \w+\))/g, 'T').trim();

/** Makes `npx tapegate` and `tapegate` run the built program in a shell. npx itself would ask the registry for updates. */
export const NPX = `npx() { shift; tapegate "$@"; }
tapegate() { '${process.execPath}' '${cliFile}' "$@"; }`;

/** Runs each step in a new shell, in which `npx tapegate` and `tapegate` are the built program. */
export async function expectSession(
  steps: readonly Step[],
  options: { env: Record<string, string>; cwd: string },
): Promise<void> {
  for (const { typed, printed } of steps) {
    const { stdout, stderr } = await startProcess('bash', ['--norc', '-c', `${NPX}\n${typed}`], options).ended;
    // a step without output may have messages
    expect({ typed, printed: hideTimes(stdout === '' ? stderr : stdout) }, stderr).toEqual({ typed, printed });
  }
}
