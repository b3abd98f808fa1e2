/**
 * Shows progress on standard error. In a terminal, redraws the progress lines in place. In a log, prints a new line for
 * each update.
 */
import { Help } from 'commander';
import { printable } from '../../core/text/printable.js';
import { stderr } from './io.js';
import { truncate, widthOf } from './text-width.js';

export interface ProgressOutput {
  isTTY?: boolean;
  columns?: number;
  write(text: string): unknown;
}

const TERMINAL_MS = 200;

/**
 * Milliseconds after which an unchanged progress line is printed to a log again, to show that the command still runs.
 */
const SAME_LINE_MS = 3_600_000;

const roomOf = ({ columns = 80 }: ProgressOutput) => Math.max(columns - 1, 1);

export class ProgressLine {
  private readonly textOf: () => string | undefined;
  private readonly out: ProgressOutput;
  private readonly timer: NodeJS.Timeout;
  private last: { text: string; at: number } | undefined;
  /** Number of lines in the terminal that the next update replaces. */
  private drawn = 1;

  /**
   * @param textOf returns the current progress, or undefined to draw nothing
   * @param logMs milliseconds between log lines; used only if standard error is not a terminal
   */
  constructor(textOf: () => string | undefined, logMs: number, out: ProgressOutput = stderr()) {
    this.textOf = textOf;
    this.out = out;
    this.timer = setInterval(() => this.draw(), out.isTTY ? TERMINAL_MS : logMs);
  }

  draw(): void {
    const text = this.textOf();
    if (text === undefined) return;
    if (this.out.isTTY) {
      this.drawOver(text);
      return;
    }
    const line = text.split('\n').map(printable).join('; ');
    const at = performance.now();
    if (line === this.last?.text && at - this.last.at < SAME_LINE_MS) return;
    this.last = { text: line, at };
    this.out.write(`${line}\n`);
  }

  private drawOver(text: string): void {
    const room = roomOf(this.out);
    const lines = text.split('\n').flatMap((line) => new Help().boxWrap(printable(line), room).split('\n'));
    this.out.write(`${this.clear()}${lines.map((line) => truncate(line, room)).join('\n')}`);
    this.drawn = lines.length;
  }

  private clear(): string {
    const above = '\x1b[1A\x1b[K'.repeat(this.drawn - 1);
    this.drawn = 1;
    return `\r\x1b[K${above}`;
  }

  /** Prints a permanent line above the progress lines. */
  printAbove(text: string): void {
    this.out.write(`${this.out.isTTY ? this.clear() : ''}${printable(text)}\n`);
    if (this.out.isTTY) this.draw();
  }

  /** @param isPermanent whether the last progress line stays visible in a terminal */
  end(isPermanent = false): void {
    clearInterval(this.timer);
    if (isPermanent || !this.out.isTTY) this.draw();
    if (this.out.isTTY) this.out.write(isPermanent ? '\n' : this.clear());
  }
}

const MAX_BAR = 30;
const MIN_BAR = 5;

/**
 * Returns a progress bar followed by `text`. The bar's length depends on the terminal's width.
 * @param part the completed fraction, from 0 to 1
 */
export function formatBar(part: number, text: string, out: ProgressOutput = stderr()): string {
  const after = ` ${Math.floor(part * 100)}%  ${text}`;
  const room = out.isTTY ? roomOf(out) - widthOf(after) : MAX_BAR;
  const size = Math.max(Math.min(MAX_BAR, room), MIN_BAR);
  const done = Math.round(part * size);
  return `${'█'.repeat(done)}${'░'.repeat(size - done)}${after}`;
}
