/** Expected results of commands, and parsers of their output. */
import type { Result } from './process.js';

export const done = (stdout: string, stderr = ''): Result => ({ code: 0, stdout, stderr });

/**
 * Returns the result of a failed command.
 * @param code 2 for wrong usage, 4 for failures that can be retried, 1 for other failures
 */
export const refused = (code: number, message: string): Result => ({
  code,
  stdout: '',
  stderr: `tapegate: ${message}\n`,
});

/** Parses JSON Lines. */
// biome-ignore lint/suspicious/noExplicitAny: each command has its own fields
export const parseLines = ({ stdout }: { stdout: string }): any[] =>
  stdout
    .trimEnd()
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line));

/** Splits a table into lines, and each line into cells. */
export const parseTable = ({ stdout }: { stdout: string }): string[][] =>
  stdout.split('\n').map((line) => line.split(/ {2,}/));
