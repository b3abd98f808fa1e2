/** The bar that `watch` draws: over itself in a terminal; elsewhere in lines, of which each says something new. */
import { Writable } from 'node:stream';
import type { GenericFormatter, SingleBar } from 'cli-progress';
import { stderr } from './io.js';

/** Where there is no terminal: a line at most so often, and the same one again only after so long, as a sign of life. */
const LINE_MS = 2000;
const SAME_LINE_MS = 3_600_000;

/** Columns: of the bar at most and at least, and what mostly stands behind it. */
const MAX_BAR = 30;
const MIN_BAR = 5;
const OTHER_COLUMNS = 60;

export interface BarOutput {
  isTTY?: boolean;
  write(text: string): unknown;
}

/** @param out a terminal only where it is a stream of Node.js */
export async function createBar(out: BarOutput = stderr()): Promise<SingleBar> {
  const { default: cliProgress } = await import('cli-progress');
  const { columns } = out as NodeJS.WriteStream;
  const size = Math.min(Math.max(columns - OTHER_COLUMNS, 10) || MAX_BAR, MAX_BAR);
  /** What stands behind the bar may be long, and is cut off by nothing but the end of the line. */
  const format: GenericFormatter = (options, { progress }, { files, size: bytes, rate, left }) => {
    const behind = ` ${Math.floor(progress * 100)}%  ${files}  ${bytes}  ${rate}  ${left}`;
    const barsize = out.isTTY && columns ? Math.max(Math.min(size, columns - behind.length - 1), MIN_BAR) : size;
    return cliProgress.Format.BarFormat(progress, { ...options, barsize }) + behind;
  };
  return new cliProgress.SingleBar({
    stream: out.isTTY ? (out as NodeJS.WriteStream) : new NewLines(out),
    format,
    barCompleteChar: '█',
    barIncompleteChar: '░',
    hideCursor: true,
    noTTYOutput: true,
    notTTYSchedule: LINE_MS,
    emptyOnZero: true,
  });
}

/** Lets a line pass that differs from the last one, or comes long after it: a log is read, and is kept. */
class NewLines extends Writable {
  private readonly out: BarOutput;
  private begun = '';
  private last = '';
  private lastAt = 0;

  constructor(out: BarOutput) {
    super({ decodeStrings: false });
    this.out = out;
  }

  override _write(text: string, _encoding: BufferEncoding, done: () => void): void {
    const lines = (this.begun + text).split('\n');
    this.begun = lines.pop() ?? '';
    for (const line of lines) this.pass(line);
    done();
  }

  private pass(line: string): void {
    const now = performance.now();
    if (line === '' || (line === this.last && now - this.lastAt < SAME_LINE_MS)) return;
    this.last = line;
    this.lastAt = now;
    this.out.write(`${line}\n`);
  }
}
