/** The limiter of look-ups of unknown callers. */
import { expect, test } from 'vitest';
import { Lookups } from '../../src/access/lookups.js';

test('8 look-ups run at once, addresses take turns, and a failed look-up frees its slot', async () => {
  const lookups = new Lookups();
  const begun: string[] = [];
  const answers: (() => void)[] = [];
  const ask = (key: string) =>
    lookups.ask(key, async () => {
      begun.push(key);
      await new Promise<void>((resolve) => answers.push(resolve));
      if (key === 'many') throw new Error('none');
    });
  const all = [...Array(20).fill('many'), 'one', 'other', 'one'].map((key) => ask(key).catch(() => 'failed'));
  const next = () => new Promise((resolve) => setImmediate(resolve));
  await next();
  expect(begun).toEqual(Array(8).fill('many'));
  while (answers.length > 0) {
    for (const answer of answers.splice(0, 1)) answer();
    await next();
  }
  expect(begun.slice(8, 14)).toEqual(['many', 'one', 'other', 'many', 'one', 'many']);
  expect((await Promise.all(all)).filter((result) => result === 'failed')).toHaveLength(20);
});
