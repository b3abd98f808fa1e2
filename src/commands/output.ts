/** What commands print: tables for people, JSON for scripts. */
import { formatJson } from '../json.js';
import { stderr, stdout } from './io.js';

/** For `.option(...jsonOption)`, in every command that prints a result. */
export const jsonOption = ['--json', 'print JSON for scripts, a document a line'] as const;

/** For `.option(...dryRunOption)`. */
export const dryRunOption = ['--dry-run', 'say what would be done, and do nothing'] as const;

export interface OutputOptions {
  json?: boolean;
}

/** Prints a JSON document on one line, with exact integers. */
export function printJson(value: unknown): void {
  const text = formatJson(value).replace(UNSAFE, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
  stdout().write(`${text}\n`);
}

/** A line for people. */
export function printLine(text: string): void {
  stdout().write(`${printable(text)}\n`);
}

/** A line for people beside what a script reads: on standard error. */
export function noteLine(text: string): void {
  stderr().write(`${printable(text)}\n`);
}

/** What a script reads, as it is. */
export function printText(text: string): void {
  stdout().write(text);
}

/** What a command has done: a JSON document for scripts, or a line for people. */
export function printResult(value: unknown, line: string, { json }: OutputOptions): void {
  if (json) printJson(value);
  else printLine(line);
}

interface Rows<Row> {
  header: string[];
  cells(row: Row): string[];
  /** The line in place of an empty table. */
  none?: string;
  /** Returns what scripts get of a row, unless that is all of it. */
  present?(row: Row): unknown;
}

/** Prints rows: a JSON document each for scripts, or a table. */
export function printRows<Row>(rows: readonly Row[], { json }: OutputOptions, how: Rows<Row>): void {
  const { header, cells, none, present = (row) => row } = how;
  if (json) for (const row of rows) printJson(present(row));
  else if (rows.length === 0 && none !== undefined) printLine(none);
  else printTable(header, rows.map(cells));
}

/** Columns as wide as their widest cell; in a terminal that is too narrow for them, a line for each cell. */
export function printTable(header: string[], rows: string[][]): void {
  const cells = [header, ...rows].map((row) => row.map(printable));
  const widths = header.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  const { isTTY, columns = 80 } = stdout();
  const width = widths.reduce((sum, each) => sum + each + 2, -2);
  if (isTTY && width > columns && rows.length > 0) {
    printCells(cells);
    return;
  }
  for (const row of cells) {
    const line = row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ');
    stdout().write(`${line.trimEnd()}\n`);
  }
}

function printCells([header = [], ...rows]: string[][]): void {
  const width = Math.max(...header.map((name) => name.length));
  const blocks = rows.map((row) =>
    row.map((cell, column) => `${(header[column] ?? '').padEnd(width)}  ${cell}`.trimEnd()).join('\n'),
  );
  stdout().write(`${blocks.join('\n\n')}\n`);
}

/** Columns that a fact has at least in a terminal, however narrow that is. */
const MIN_FACT = 16;

/** Facts of one thing, each behind its name; in a terminal they are wrapped where they are too long for it. */
export function printFacts(facts: readonly (readonly [name: string, fact: string])[]): void {
  const { isTTY, columns = 80 } = stdout();
  const width = Math.max(...facts.map(([name]) => printable(name).length)) + 2;
  const room = isTTY ? Math.max(columns - width, MIN_FACT) : Number.POSITIVE_INFINITY;
  for (const [name, fact] of facts) {
    const [first = '', ...more] = wrap(printable(fact), room);
    stdout().write(`${(printable(name).padEnd(width) + first).trimEnd()}\n`);
    for (const line of more) stdout().write(`${' '.repeat(width)}${line}\n`);
  }
}

/** Lines of whole words; a word that is longer than a line, as a path may be, has one for itself. */
function wrap(text: string, room: number): string[] {
  if (text.length <= room) return [text];
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= room) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines;
}

/**
 * Text as one line of a terminal. Names come from users and must not move its cursor, begin another line, or turn the
 * direction of writing.
 */
export function printable(text: string): string {
  return text.replace(UNSAFE, '\uFFFD');
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is replaced
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;
