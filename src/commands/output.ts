/** What commands print: tables for people, JSON for scripts. */
import { Help } from 'commander';
import { formatJson } from '../json.js';
import { stderr, stdout } from './io.js';

export const dryRunOption = ['--dry-run', 'say what would be done, and do nothing'] as const;

export interface OutputOptions {
  json?: boolean;
}

/** Prints a JSON document on one line, with exact integers. */
export function printJson(value: unknown): void {
  const text = formatJson(value).replace(UNSAFE, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
  stdout().write(`${text}\n`);
}

export function printLine(text: string): void {
  stdout().write(`${printable(text)}\n`);
}

export function noteLine(text: string): void {
  stderr().write(`${printable(text)}\n`);
}

export function printText(text: string): void {
  stdout().write(text);
}

/** Prints the result of a command: a JSON document for scripts, or a line for people. */
export function printResult(value: unknown, line: string, { json }: OutputOptions): void {
  if (json) printJson(value);
  else printLine(line);
}

/** A cell of a table. Null is a minus sign. */
export type Cell = string | number | bigint | null;

interface Rows<Row> {
  header: string[];
  cells(row: Row): Cell[];
  /** The line in place of an empty table. */
  none?: string;
  /** Returns the JSON of a row. Default: the row. */
  present?(row: Row): unknown;
}

/** Prints rows: a JSON document each for scripts, or a table. */
export function printRows<Row>(rows: readonly Row[], { json }: OutputOptions, how: Rows<Row>): void {
  const { header, cells, none, present = (row) => row } = how;
  if (json) for (const row of rows) printJson(present(row));
  else if (rows.length === 0 && none !== undefined) printLine(none);
  else printTable(header, rows.map(cells));
}

/** Prints a line, or writes it to standard error if standard output is for a script. */
export function printNote(text: string, { json, printPaths }: OutputOptions & { printPaths?: boolean }): void {
  if (json || printPaths) noteLine(text);
  else printLine(text);
}

/** Prints columns as wide as their widest cell; a line for each cell in a terminal that is too narrow for them. */
export function printTable(header: string[], rows: Cell[][]): void {
  const cells = [header, ...rows].map((row) => row.map((cell) => printable(String(cell ?? '-'))));
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

/** Prints facts of one thing, each after its name, wrapped to the width of a terminal. */
export function printFacts(facts: readonly (readonly [name: string, fact: string])[]): void {
  const { isTTY, columns = 80 } = stdout();
  const width = Math.max(...facts.map(([name]) => printable(name).length)) + 2;
  const room = isTTY ? Math.max(columns - width, MIN_FACT) : Number.POSITIVE_INFINITY;
  const help = Object.assign(new Help(), { minWidthToWrap: MIN_FACT });
  for (const [name, fact] of facts) {
    const [first = '', ...more] = help.boxWrap(printable(fact), room).split('\n');
    stdout().write(`${(printable(name).padEnd(width) + first).trimEnd()}\n`);
    for (const line of more) stdout().write(`${' '.repeat(width)}${line}\n`);
  }
}

/**
 * Makes one safe line for a terminal: names from users must not move its cursor, begin a line, or change the text
 * direction.
 */
export function printable(text: string): string {
  return text.replace(UNSAFE, '\uFFFD');
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is replaced
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;
