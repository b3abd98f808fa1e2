/** How commands show the progress of an import. */
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createImportView } from '../../src/commands/import-progress.js';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

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
  view?.tell({ step: 'adding', rows: 500, of: 2000 });
  vi.advanceTimersByTime(10_000);
  expect(shown(out.text)).toBe('500 of 2,000 rows added, 50 rows/s, 30s left');
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
