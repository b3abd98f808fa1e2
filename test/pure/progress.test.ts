/** How commands show progress and durations. */
import { once } from 'node:events';
import { PassThrough, Readable } from 'node:stream';
import { text as readText } from 'node:stream/consumers';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createImportView } from '../../src/cli/catalogue/import-progress.js';
import { formatBar, ProgressLine } from '../../src/cli/terminal/progress-line.js';
import { formatEnd, formatFromNow } from '../../src/cli/terminal/times.js';
import { formatSpan } from '../../src/core/text/spans.js';
import { readScreen } from '../support/screen.js';

test.each([
  [0.5, 'now'],
  [119, '119 s'],
  [7199, '120 min'],
  [7200, '2 h'],
  [9000, '2.5 h'],
  [5.04 * 86_400, '5 days'],
  [5.1 * 86_400, '5.1 days'],
  [99_999.4 * 86_400, '99999 days'],
])('%d seconds are shown as %s', (seconds, text) => {
  expect(formatSpan(seconds)).toBe(text);
});

test.each([
  [0, 'now'],
  [300, 'in 5 min'],
  [-300, '5 min ago'],
])('%d seconds from now are shown as %s', (seconds, text) => {
  expect(formatFromNow(seconds)).toBe(text);
});

test('the end of a request with a retry is shown as that of the retry', () => {
  const now = '2026-01-02T03:04:05Z';
  const end = { at: now, earliest: now, planned: now, latest: now, isMeasured: true };
  expect(formatEnd(now, end)).toBe('done in a few seconds');
  expect(formatEnd(now, end, { nextTry: now })).toBe('done after the next attempt, which starts now');
  expect(formatEnd(now, end, { nextTry: '2026-01-02T03:09:05Z' })).toBe(
    'done after the next attempt, which starts in 5 min',
  );
  const later = '2026-01-02T03:14:05Z';
  const ends = { at: now, earliest: later, planned: later, latest: later, isMeasured: true };
  expect(formatEnd(now, ends, { nextTry: now })).toMatch(/^done in about 10 min \(/);
  const nominal = { ...ends, isMeasured: false };
  expect(formatEnd(now, nominal)).toBe('done in about 10 min (10 min to 10 min; estimate without measurements)');
});

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const HOUR_MS = 3_600_000;

function createOutput(terminal: { isTTY?: boolean; columns?: number } = {}) {
  const out = {
    ...terminal,
    text: '',
    write: (more: string) => {
      out.text += more;
    },
  };
  return out;
}

test('without a terminal, each change of a bar is a line, and the same again once an hour', () => {
  const out = createOutput();
  const shown = (files: number, left: string) => formatBar(files / 10, `${files}/10 files  ${left}`, out);
  const lineOf = (blocks: number, files: number, left: string) =>
    `${'█'.repeat(blocks)}${'░'.repeat(30 - blocks)} ${files}0%  ${files}/10 files  ${left}\n`;
  let text = formatBar(0, '0/10 files  waits; cleaning', out);
  const line = new ProgressLine(() => text, 2000, out);
  line.draw();
  vi.advanceTimersByTime(HOUR_MS - 10_000);
  const first = text;
  expect(out.text).toBe(`${first}\n`);
  vi.advanceTimersByTime(20_000);
  expect(out.text).toBe(`${first}\n${first}\n`);

  out.text = '';
  text = shown(4, '1s left');
  text = shown(5, '1s left');
  vi.advanceTimersByTime(60_000);
  text = shown(10, 'done');
  line.end(true);
  expect(out.text).toBe(lineOf(15, 5, '1s left') + lineOf(30, 10, 'done'));
});

test('in a terminal, a bar leaves room for the text after it, and its last line stays', () => {
  const out = createOutput({ isTTY: true, columns: 80 });
  const facts = '2/5 files, 3 failed  60.0 kB of 150 kB  12.3 kB/s  3h07m left';
  const text = formatBar(0.4, facts, out);
  expect([text.length, text.endsWith(` 40%  ${facts}`)]).toEqual([79, true]);
  const line = new ProgressLine(() => text, 2000, out);
  line.draw();
  line.end(true);
  expect(out.text).toBe(`\r\x1b[K${text}`.repeat(2).concat('\n'));
});

test('lines above a bar are drawn over with it, whatever their length, and notes stay above', () => {
  const out = createOutput({ isTTY: true, columns: 60 });
  const waits = 'waits; V00001: the volume is mounted in a drive that reads files of another user first';
  let text = `${waits}\n0/4 files, 4 failed  0 bytes of 48.0 MB  0 bytes/s  waits`;
  const line = new ProgressLine(() => text, 2000, out);
  line.draw();
  expect(readScreen(out.text)).toEqual([
    'waits; V00001: the volume is mounted in a drive that reads',
    'files of another user first',
    '0/4 files, 4 failed  0 bytes of 48.0 MB  0 bytes/s  waits',
  ]);
  line.printAbove('done in 5 min by the plan');
  text = '4/4 files  done';
  line.end(true);
  out.write('request 1 is completed\n');
  expect(readScreen(out.text)).toEqual(['done in 5 min by the plan', '4/4 files  done', 'request 1 is completed', '']);
  text = '日本'.repeat(20);
  line.draw();
  expect(readScreen(out.text).at(3)).toBe(`${'日本'.repeat(14)}日…`);
});

/** Returns the current line of the terminal. */
const shown = (text: string) => text.split('\r\x1b[K').at(-1);

test('on a terminal, one line shows bytes, rate and remaining time, and then how long the import takes', async () => {
  const out = createOutput({ isTTY: true, columns: 100 });
  const view = createImportView({ size: 4000 }, out);
  const source = new PassThrough();
  const read = view.meter(source);
  source.write(Buffer.alloc(1000, 'a'));
  await once(read, 'readable');
  vi.advanceTimersByTime(10_000);
  expect(shown(out.text)).toBe('1.00 kB of 4.00 kB read, 100 bytes/s, 30 s left');
  source.end(Buffer.alloc(3000, 'a'));
  expect(await readText(read)).toBe('a'.repeat(4000));
  vi.advanceTimersByTime(65_000);
  expect(shown(out.text)).toBe('importing, 65 s');
  view.end();
  expect(shown(out.text)).toBe('');
  expect(out.text).not.toContain('\n');
});

test('the line is not wider than the terminal', async () => {
  const out = createOutput({ isTTY: true, columns: 10 });
  const view = createImportView({ size: undefined }, out);
  await readText(view.meter(Readable.from([Buffer.alloc(10)])));
  vi.advanceTimersByTime(1000);
  expect(shown(out.text)).toHaveLength(9);
  view.end();
});

test('elsewhere nothing is shown, unless asked for: then the last figures, and a line in half a minute', async () => {
  const quiet = createOutput();
  const bytes = () => Readable.from([Buffer.alloc(10, 'a')]);
  expect(await readText(createImportView({ size: 10 }, quiet).meter(bytes()))).toBe('a'.repeat(10));
  expect(quiet.text).toBe('');
  const out = createOutput();
  const view = createImportView({ size: 20, isRequested: true }, out);
  vi.advanceTimersByTime(1000);
  for (let part = 0; part < 2; part++) await readText(view.meter(bytes()));
  vi.advanceTimersByTime(31_000);
  view.end();
  expect(out.text.split('\n')).toEqual([
    '10 bytes of 20 bytes read, 10 bytes/s, 1 s left',
    '20 bytes of 20 bytes read, 20 bytes/s',
    'importing, 29 s',
    'importing, 31 s',
    '',
  ]);
});
