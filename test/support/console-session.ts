/** Sessions of documents: what is typed, run in a shell, and compared with what is shown below it. */
import { expect } from 'vitest';
import { cliFile, startProcess } from './process.js';

interface Step {
  typed: string;
  printed: string;
}

/** @param text of a fence, in which lines that begin with `$ ` are typed, and go on behind a backslash */
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

/** As programs read them, and as a terminal shows them. */
const hideTimes = (text: string) =>
  text.replace(/\d{4}-\d\d-\d\d(?:T[\d:.]+Z?| \d\d:\d\d:\d\d \(in \d+ \w+\))/g, 'T').trim();

/** Runs each step in a shell of its own, where `npx tapegate` is the program as it was built. */
export async function expectSession(
  steps: readonly Step[],
  options: { env: Record<string, string>; cwd: string },
): Promise<void> {
  const npx = `npx() { shift; '${process.execPath}' '${cliFile}' "$@"; }`;
  for (const { typed, printed } of steps) {
    const { stdout, stderr } = await startProcess('bash', ['--norc', '-c', `${npx}\n${typed}`], options).ended;
    // what a step keeps in a file, or gives to another one, is not shown, but what is said beside it is
    expect({ typed, printed: hideTimes(stdout === '' ? stderr : stdout) }, stderr).toEqual({ typed, printed });
  }
}
