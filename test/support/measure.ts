/**
 * If MEASURE names a file, appends a JSON line for each test file.
 * The line contains wall and processor time in milliseconds, and the number of started programs.
 */
import { createHook } from 'node:async_hooks';
import { appendFileSync } from 'node:fs';
import { afterAll, expect } from 'vitest';
import { type ProcessorTime, readProcessorTime } from './processor-time.js';

let programs = 0;

interface Usage extends ProcessorTime {
  wallMs: number;
  programs: number;
}

function readUsage(): Usage {
  return { wallMs: performance.now(), ...readProcessorTime('self'), programs };
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
