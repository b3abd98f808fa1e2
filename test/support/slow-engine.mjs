// Preload: engine processes load for seconds without reporting, and log when each load begins and ends.
import { appendFileSync } from 'node:fs';

if (process.argv[1]?.includes('engine-process')) {
  const seconds = process.argv[2] === 'jobs' ? 22 : 1;
  appendFileSync(process.env.SLOW_ENGINE_LOG, '+1\n');
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, seconds * 1000);
  appendFileSync(process.env.SLOW_ENGINE_LOG, '-1\n');
}
