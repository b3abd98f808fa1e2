/** The progress bar of commands. */
import { Writable } from 'node:stream';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createBar } from '../../src/commands/progress-bar.js';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const HOUR_MS = 3_600_000;

test('without a terminal, a bar writes each change, and the same again once an hour', async () => {
  let text = '';
  const bar = await createBar({
    write: (more) => {
      text += more;
    },
  });
  const lineOf = (blocks: number, percentage: number, left: string) =>
    `${'█'.repeat(blocks)}${'░'.repeat(30 - blocks)} ${percentage}%  ${percentage / 10}/10 files  1 of 2  0 bytes/s  ${left}\n`;
  const says = (files: number, left: string) => ({
    files: `${files}/10 files`,
    size: '1 of 2',
    rate: '0 bytes/s',
    left,
  });
  bar.start(10, 0, says(0, 'waits; cleaning'));
  vi.advanceTimersByTime(HOUR_MS - 10_000);
  expect(text).toBe(lineOf(0, 0, 'waits; cleaning'));
  vi.advanceTimersByTime(20_000);
  expect(text).toBe(lineOf(0, 0, 'waits; cleaning').repeat(2));

  text = '';
  bar.update(4, says(4, '1s left'));
  bar.update(5, says(5, '1s left'));
  vi.advanceTimersByTime(60_000);
  bar.update(10, says(10, 'done'));
  bar.stop();
  expect(text).toBe(lineOf(15, 50, '1s left') + lineOf(30, 100, 'done'));
});

test('in a terminal, the bar leaves room for the text after it', async () => {
  let text = '';
  const out = Object.assign(new Writable(), { isTTY: true, columns: 80 });
  out.write = ((more: string) => {
    text += more;
    return true;
  }) as typeof out.write;
  for (const method of ['cursorTo', 'clearLine', 'moveCursor']) Object.assign(out, { [method]: () => true });
  const bar = await createBar(out);
  bar.start(10, 4, { files: '2/5 files, 3 failed', size: '60.0 kB of 150 kB', rate: '12.3 kB/s', left: '3h07m left' });
  bar.stop();
  const line = text
    .split(/[\n\r]/)
    .find((each) => each.includes('failed'))
    ?.replace(/^.*?(?=[█░])/s, '');
  const behind = ' 40%  2/5 files, 3 failed  60.0 kB of 150 kB  12.3 kB/s  3h07m left';
  expect(line?.replace(/[█░]+/, '')).toContain(behind);
  expect(/[█░]+/.exec(line ?? '')?.[0]).toHaveLength(79 - behind.length);
});
