/** How commands show progress and times. */
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createImportView } from '../../src/commands/import-progress.js';
import { formatBar, ProgressLine } from '../../src/commands/progress-line.js';
import { formatEnd, formatFromNow, formatSpan } from '../../src/commands/times.js';

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
  const end = { earliest: now, planned: now, latest: now };
  expect(formatEnd(now, end)).toBe('done at once');
  expect(formatEnd(now, end, { nextTry: now })).toBe('done with its next try, which is due');
  expect(formatEnd(now, end, { nextTry: '2026-01-02T03:09:05Z' })).toBe('done with its next try, in 5 min');
  const later = '2026-01-02T03:14:05Z';
  const ends = { earliest: later, planned: later, latest: later };
  expect(formatEnd(now, ends, { nextTry: now })).toMatch(/^done in 10 min by the plan/);
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

/** Returns the current line of the terminal. */
const shown = (text: string) => text.split('\r\x1b[K').at(-1);

test('on a terminal, one line shows rows, bytes, rate and remaining time', async () => {
  const out = createOutput({ isTTY: true, columns: 100 });
  const view = createImportView({ size: 4000 }, out);
  const meter = view?.meter();
  meter?.write(Buffer.alloc(1000));
  view?.tell({ step: 'reading', rows: 10_000 });
  vi.advanceTimersByTime(10_000);
  expect(shown(out.text)).toBe('10,000 rows read, 1.00 kB of 4.00 kB, 1,000 rows/s, 30s left');
  view?.tell({ step: 'comparing' });
  vi.advanceTimersByTime(65_000);
  expect(shown(out.text)).toBe('comparing the rows with what is known, 1m05s');
  view?.end();
  expect(shown(out.text)).toBe('');
  expect(out.text).not.toContain('\n');
});

test('the line is not wider than the terminal', () => {
  const out = createOutput({ isTTY: true, columns: 20 });
  const view = createImportView({ size: undefined }, out);
  view?.tell({ step: 'comparing' });
  vi.advanceTimersByTime(1000);
  expect(shown(out.text)).toHaveLength(19);
  view?.end();
});

test('elsewhere nothing is shown, unless asked for: then a line per step', () => {
  expect(createImportView({ size: 10 }, createOutput())).toBeUndefined();
  const out = createOutput();
  const view = createImportView({ size: 10, isAsked: true }, out);
  view?.meter().write(Buffer.alloc(10));
  view?.tell({ step: 'reading', rows: 3 });
  vi.advanceTimersByTime(1000);
  view?.tell({ step: 'comparing' });
  vi.advanceTimersByTime(31_000);
  view?.tell({ step: 'settling' });
  view?.end();
  expect(out.text.split('\n')).toEqual([
    '3 rows read, 10 bytes of 10 bytes, 3 rows/s',
    'comparing the rows with what is known, 29s',
    'comparing the rows with what is known, 31s',
    'settling what follows, 0s',
    '',
  ]);
});

test('upload is shown in lines, or in bytes if it is gzipped', async () => {
  const rows = 'path,size\n/a,1\n/b,2\n';
  const send = async (bytes: Buffer) => {
    const out = createOutput();
    const view = createImportView({ size: bytes.length, isAsked: true }, out);
    view?.tell({ step: 'sending' });
    const [meter, parts] = [view?.meter(true), []] as [NodeJS.ReadWriteStream, Buffer[]];
    await pipeline(Readable.from([bytes]), meter, async (source) => {
      for await (const part of source) parts.push(part as Buffer);
    });
    expect(Buffer.concat(parts)).toEqual(bytes);
    vi.advanceTimersByTime(1000);
    view?.tell({ step: 'waiting' });
    view?.end();
    return out.text.split('\n')[0];
  };
  expect(await send(Buffer.from(rows))).toBe('3 lines sent, 20 bytes of 20 bytes, 3 lines/s');
  const zipped = gzipSync(rows);
  const size = `${zipped.length} bytes`;
  expect(await send(zipped)).toBe(`${size} of ${size} sent, ${size}/s`);
});
