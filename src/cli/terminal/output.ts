/** Output of commands: tables for people, JSON for scripts. */
import { Help } from 'commander';
import { formatJson } from '../../core/text/json.js';
import { escapeUnsafe, printable } from '../../core/text/printable.js';
import { commandState, stderr, stdout } from './io.js';
import { padTo, truncate, widthOf } from './text-width.js';

export const dryRunOption = ['--dry-run', 'report the changes without making them'] as const;

export interface OutputOptions {
  json?: boolean;
}

/** Prints a JSON document on one line, without rounding integers. */
export function printJson(value: unknown): void {
  stdout().write(`${escapeUnsafe(formatJson(value))}\n`);
}

/** Returns some fields of an object, in the order in which JSON output lists them. */
export function pick<Row extends object, Name extends keyof Row>(row: Row, ...names: Name[]): Pick<Row, Name> {
  return Object.fromEntries(names.map((name) => [name, row[name]])) as Pick<Row, Name>;
}

export function printLine(text: string): void {
  stdout().write(`${printable(text)}\n`);
}

export function printToStderr(text: string): void {
  stderr().write(`${printable(text)}\n`);
}

export function printText(text: string): void {
  stdout().write(text);
}

/** Prints a command's result: a JSON document for scripts, or a line for people. */
export function printResult(value: unknown, line: string, { json }: OutputOptions): void {
  if (json) printJson(value);
  else printLine(line);
}

/** A table cell. Null is printed as a minus sign. */
export type Cell = string | number | bigint | null;

interface TableOf<Row> {
  header: string[];
  cells(row: Row): Cell[];
  none?: string;
  /** Returns the value to print as JSON for a row; by default, the row itself. */
  present?(row: Row): unknown;
}

/** Prints rows. The output is a table for people, or one JSON document per row for scripts. */
export function printRows<Row>(rows: readonly Row[], { json }: OutputOptions, how: TableOf<Row>): void {
  const { header, cells, none, present = (row) => row } = how;
  if (json) for (const row of rows) printJson(present(row));
  else if (rows.length === 0 && none !== undefined) printLine(none);
  else printTable(header, rows.map(cells));
}

/**
 * Prints a line for people: to standard error if the command prints output for scripts, otherwise to standard output.
 */
export function printNote(text: string, { json, printPaths }: OutputOptions & { printPaths?: boolean }): void {
  if (json || printPaths) printToStderr(text);
  else printLine(text);
}

const MIN_COLUMN = 8;

/**
 * Prints a table. In a terminal, narrows the columns to fit. If even narrow columns do not fit, prints each cell on its
 * own line. With the option `--wide`, or if standard output is not a terminal, columns keep their full width.
 */
export function printTable(header: string[], rows: Cell[][]): void {
  const cells = [header, ...rows].map((row) => row.map((cell) => printable(String(cell ?? '-'))));
  const whole = header.map((_, column) => Math.max(...cells.map((row) => widthOf(row[column] ?? ''))));
  const { isTTY, columns = 80 } = stdout();
  const widths = isTTY && !commandState().isWide ? fitWidths(whole, columns) : whole;
  if (!widths && rows.length > 0) {
    printCells(cells);
    return;
  }
  for (const row of cells) {
    const line = row.map((cell, column) => fit(cell, (widths ?? whole)[column] ?? 0)).join('  ');
    stdout().write(`${line.trimEnd()}\n`);
  }
}

const fit = (cell: string, width: number): string => padTo(truncate(cell, width), width);

/**
 * Narrows the widest columns until all columns fit.
 * @returns the columns' widths; undefined if the terminal is too narrow
 */
function fitWidths(whole: readonly number[], columns: number): number[] | undefined {
  const widths = [...whole];
  for (let over = widths.reduce((sum, each) => sum + each + 2, -2) - columns; over > 0; over--) {
    const widest = Math.max(...widths);
    if (widest <= MIN_COLUMN) return undefined;
    widths[widths.lastIndexOf(widest)] = widest - 1;
  }
  return widths;
}

function printCells([header = [], ...rows]: string[][]): void {
  const width = Math.max(...header.map((name) => name.length));
  const blocks = rows.map((row) =>
    row.map((cell, column) => `${(header[column] ?? '').padEnd(width)}  ${cell}`.trimEnd()).join('\n'),
  );
  stdout().write(`${blocks.join('\n\n')}\n`);
}

const MIN_FACT = 16;

/** Prints values with their names, wrapped to the terminal's width. */
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
