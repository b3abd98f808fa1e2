/** Deadlines combined with other signals, during garbage collection. */
import { once } from 'node:events';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { startDeadline } from '../../src/core/deadline.js';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

/** Waits for the signal while garbage is collected. @returns the abort reason */
async function isOver(signal: AbortSignal): Promise<unknown> {
  const collecting = setInterval(collectGarbage, 5);
  await once(signal, 'abort').finally(() => clearInterval(collecting));
  return signal.reason;
}

test('a deadline survives garbage collection', async () => {
  const never = new AbortController();
  const { signal } = startDeadline(100, never.signal);
  expect(await isOver(signal)).toMatchObject({ name: 'TimeoutError', message: 'it took longer than 0.1 s' });
});

test('an earlier abort passes on its reason, and an ended deadline does nothing', async () => {
  const other = new AbortController();
  const { signal, end } = startDeadline(100, other.signal);
  const ended = startDeadline(1, other.signal);
  ended.end();
  setTimeout(() => other.abort('given up'), 20);
  expect(await isOver(signal)).toBe('given up');
  expect(ended.signal.reason).toBe('given up');
  end();
});
