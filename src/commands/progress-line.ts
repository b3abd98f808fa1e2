/** How far something is, on standard error: in a terminal a line that is drawn over itself, elsewhere lines of a log. */
import { stderr } from './io.js';
import { printable } from './output.js';

export interface ProgressOutput {
  isTTY?: boolean;
  columns?: number;
  write(text: string): unknown;
}

const TERMINAL_MS = 200;

/** A log repeats a line after this time only, as a sign of life. */
const SAME_LINE_MS = 3_600_000;

const widthOf = ({ columns = 80 }: ProgressOutput) => Math.max(columns - 1, 0);

export class ProgressLine {
  private readonly textOf: () => string | undefined;
  private readonly out: ProgressOutput;
  private readonly timer: NodeJS.Timeout;
  private last: { text: string; at: number } | undefined;

  /**
   * @param textOf returns the present text; undefined for none
   * @param logMs interval of the lines of a log
   */
  constructor(textOf: () => string | undefined, logMs: number, out: ProgressOutput = stderr()) {
    this.textOf = textOf;
    this.out = out;
    this.timer = setInterval(() => this.draw(), out.isTTY ? TERMINAL_MS : logMs);
  }

  draw(): void {
    const text = this.textOf();
    if (text === undefined) return;
    const line = printable(text);
    if (this.out.isTTY) return void this.out.write(`\r\x1b[K${line.slice(0, widthOf(this.out))}`);
    const at = performance.now();
    if (line === this.last?.text && at - this.last.at < SAME_LINE_MS) return;
    this.last = { text: line, at };
    this.out.write(`${line}\n`);
  }

  /** @param isKept whether the last line stays in a terminal */
  end(isKept = false): void {
    clearInterval(this.timer);
    if (isKept || !this.out.isTTY) this.draw();
    if (this.out.isTTY) this.out.write(isKept ? '\n' : '\r\x1b[K');
  }
}

/** Columns of a bar. */
const MAX_BAR = 30;
const MIN_BAR = 5;

/** Draws a bar with a text after it, which fits a terminal. @param part from 0 to 1 */
export function formatBar(part: number, text: string, out: ProgressOutput = stderr()): string {
  const behind = ` ${Math.floor(part * 100)}%  ${text}`;
  const room = out.isTTY ? widthOf(out) - behind.length : MAX_BAR;
  const size = Math.max(Math.min(MAX_BAR, room), MIN_BAR);
  const done = Math.round(part * size);
  return `${'█'.repeat(done)}${'░'.repeat(size - done)}${behind}`;
}
