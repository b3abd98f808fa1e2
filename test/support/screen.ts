// biome-ignore lint/suspicious/noControlCharactersInRegex: terminals are controlled by them
const PARTS = /\r|\n|\x1b\[\d*[A-Z]|[^\r\n\x1b]+/g;

/**
 * Returns the lines that a terminal shows for an output. The output may contain the control sequences of progress
 * lines.
 */
export function readScreen(output: string): string[] {
  const lines = [''];
  let [row, column] = [0, 0];
  for (const [part] of output.matchAll(PARTS)) {
    if (part === '\r') column = 0;
    else if (part === '\n') [row, column] = [row + 1, 0];
    else if (part === '\x1b[1A') row--;
    else if (part === '\x1b[K') lines[row] = (lines[row] ?? '').slice(0, column);
    else if (part.startsWith('\x1b')) throw new Error(`an unknown sequence: ${JSON.stringify(part)}`);
    else {
      const line = (lines[row] ?? '').padEnd(column);
      lines[row] = line.slice(0, column) + part + line.slice(column + part.length);
      column += part.length;
    }
    lines[row] ??= '';
  }
  return lines;
}
