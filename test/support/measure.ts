/** With MEASURE=<file>, appends a JSON line per test file: milliseconds of wall and processor time, and the programs that it started. */
import { createHook } from 'node:async_hooks';
import { appendFileSync, readFileSync } from 'node:fs';
import { afterAll, expect } from 'vitest';

/** Of a clock tick of the kernel. */
const TICK_MS = 10;

let programs = 0;

interface Usage {
  wallMs: number;
  ownMs: number;
  /** Of the children that have ended; a PostgreSQL that they left behind is not among them. */
  childrenMs: number;
  programs: number;
}

function readUsage(): Usage {
  // fields 14 to 17 of proc_pid_stat(5); the name before them may contain blanks
  const [own = 0, ownSystem = 0, children = 0, childrenSystem = 0] = readFileSync('/proc/self/stat', 'utf8')
    .replace(/^.*\) /s, '')
    .split(' ')
    .slice(11, 15)
    .map((ticks) => Number(ticks) * TICK_MS);
  return { wallMs: performance.now(), ownMs: own + ownSystem, childrenMs: children + childrenSystem, programs };
}

const out = process.env.MEASURE;
if (out) {
  const hook = createHook({ init: (_, type) => void (type === 'PROCESSWRAP' && programs++) }).enable();
  const before = readUsage();
  afterAll(() => {
    hook.disable();
    const after = readUsage();
    const file = expect.getState().testPath?.replace(/^.*\/test\//, '');
    const used = Object.entries(after).map(([name, value]) => [name, Math.round(value - before[name as keyof Usage])]);
    appendFileSync(out, `${JSON.stringify({ file, ...Object.fromEntries(used) })}\n`);
  });
}
