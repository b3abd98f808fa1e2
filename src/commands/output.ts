/** What commands print: tables for people, JSON for scripts. */

/** For `.option(...jsonOption)`, in every command that prints a result. */
export const jsonOption = ['--json', 'print JSON for scripts, a document a line'] as const;

export interface OutputOptions {
  json?: boolean;
}

/** A JSON document a line; bigints are exact. */
export function printJson(value: unknown): void {
  const text = JSON.stringify(value).replace(UNSAFE, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
  process.stdout.write(`${text}\n`);
}

/** A line for people. */
export function printLine(text: string): void {
  process.stdout.write(`${printable(text)}\n`);
}

/** A line for people beside what a script reads: on standard error. */
export function noteLine(text: string): void {
  process.stderr.write(`${printable(text)}\n`);
}

/** What a script reads, as it is. */
export function printText(text: string): void {
  process.stdout.write(text);
}

/** Columns as wide as their widest cell; in a terminal that is too narrow for them, a line for each cell. */
export function printTable(header: string[], rows: string[][]): void {
  const cells = [header, ...rows].map((row) => row.map(printable));
  const widths = header.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  const { isTTY, columns = 80 } = process.stdout;
  const width = widths.reduce((sum, each) => sum + each + 2, -2);
  if (isTTY && width > columns && rows.length > 0) {
    printCells(cells);
    return;
  }
  for (const row of cells) {
    const line = row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ');
    process.stdout.write(`${line.trimEnd()}\n`);
  }
}

function printCells([header = [], ...rows]: string[][]): void {
  const width = Math.max(...header.map((name) => name.length));
  const blocks = rows.map((row) =>
    row.map((cell, column) => `${(header[column] ?? '').padEnd(width)}  ${cell}`.trimEnd()).join('\n'),
  );
  process.stdout.write(`${blocks.join('\n\n')}\n`);
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
