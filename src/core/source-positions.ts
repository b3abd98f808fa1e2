/**
 * Shows an error's position in the source files. Reads the source map of a file only when an error shows a position in
 * the file. The source map support of Node.js would read all source maps at every start.
 */
import { readFileSync } from 'node:fs';
import { SourceMap, type SourceMapping } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const DIRECTORY = fileURLToPath(new URL('../..', import.meta.url));
const POSITION = /(?:file:\/\/)?(\/[^\s"()]+\.c?js):(\d+):(\d+)/g;

const maps = new Map<string, SourceMap | undefined>();

/** Replaces each position in a compiled file with the position in its source file, if a source map exists. */
export function showSources(text: string): string {
  if (!text.includes(DIRECTORY)) return text;
  return text.replace(POSITION, (position, file: string, line: string, column: string) => {
    const map = file.startsWith(DIRECTORY) ? readMap(file) : undefined;
    const entry: Partial<SourceMapping> = map?.findEntry(Number(line) - 1, Number(column) - 1) ?? {};
    const { originalSource, originalLine = 0, originalColumn = 0 } = entry;
    if (originalSource === undefined) return position;
    return `${path.resolve(path.dirname(file), originalSource)}:${originalLine + 1}:${originalColumn + 1}`;
  });
}

function readMap(file: string): SourceMap | undefined {
  if (!maps.has(file)) maps.set(file, parseMap(file));
  return maps.get(file);
}

function parseMap(file: string): SourceMap | undefined {
  try {
    return new SourceMap(JSON.parse(readFileSync(`${file}.map`, 'utf8')));
  } catch {
    return undefined;
  }
}
