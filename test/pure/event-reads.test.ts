/** Database reads that several readers of events share. */
import { expect, test } from 'vitest';
import { SharedReads } from '../../src/events/event-table.js';
import { createGate } from '../support/wait.js';

test('a read serves all who ask before it begins, and none who ask later', async () => {
  const reads = new SharedReads();
  const [begun, gate] = [createGate(), createGate()];
  let count = 0;
  const ask = async () => {
    const number = ++count;
    begun.open();
    await gate.opened;
    return number;
  };
  const first = [reads.read('a', ask), reads.read('a', ask), reads.read('b', async () => 'other')];
  await begun.opened;
  const later = [reads.read('a', ask), reads.read('a', ask)];
  const alone = reads.read(undefined, ask);
  gate.open();
  expect(await Promise.all(first)).toEqual([1, 1, 'other']);
  expect(await alone).toBe(2);
  expect(await Promise.all(later)).toEqual([3, 3]);
  expect(await reads.read('a', ask)).toBe(4);
});

test('an error is thrown to those who share the read, and the next read is not affected', async () => {
  const reads = new SharedReads();
  const begun = createGate();
  const fail = async () => {
    begun.open();
    await new Promise((resolve) => setImmediate(resolve));
    throw new Error('away');
  };
  const failed = Promise.allSettled([reads.read('a', fail), reads.read('a', fail)]);
  await begun.opened;
  const next = reads.read('a', async () => 'here');
  expect((await failed).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  expect(await next).toBe('here');
});
