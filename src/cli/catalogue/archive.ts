/**
 * The command `archive` writes a directory tree to tape, verifies the tape copies, and adds the files to the catalogue.
 */
import { stat } from 'node:fs/promises';
import path from 'node:path';
import type { Command } from 'commander';
import { formatBytes } from '../../core/text/bytes.js';
import { plural } from '../../core/text/plural.js';
import { printable } from '../../core/text/printable.js';
import type { ArchiveProgress, ArchiveResult } from '../../engine/archive/archive.js';
import { openContext } from '../connection/context.js';
import { readSize } from '../terminal/arguments.js';
import { CommandError } from '../terminal/failure.js';
import { onInterrupt, stderr } from '../terminal/io.js';
import { type OutputOptions, printJson, printLine, printToStderr } from '../terminal/output.js';

export function register(program: Command): void {
  program
    .command('archive <dir>')
    .option('--prefix <path>', 'path of <dir> in the archive', '/')
    .option('--spot <name>', 'storage spot of the files')
    .option('--volume-size <size>', 'start a new volume when the current volume reaches this size', '100G')
    .option('--move', 'remove each file from <dir> after this run has verified the tape copy of the file')
    .option('--new-library', 'create the library if it is missing, even if the catalogue contains volumes')
    .action((dir, options) => archiveDirectory(dir, options));
}

interface ArchiveOptions extends OutputOptions {
  prefix?: string;
  spot?: string;
  volumeSize: string;
  move?: boolean;
  newLibrary?: boolean;
}

async function archiveDirectory(dir: string, options: ArchiveOptions): Promise<void> {
  const volumeSize = readSize('--volume-size', options.volumeSize);
  const { archiveTree } = await import('../../engine/archive/archive.js');
  const { createFirstLibrary } = await import('../../tape/kinds.js');
  const isDir = await stat(dir).then(
    (stats) => stats.isDirectory(),
    () => false,
  );
  if (!isDir) throw new CommandError(`${dir} is not a directory`);
  const abort = new AbortController();
  onInterrupt(() => abort.abort(new CommandError('interrupted; run the command again to continue')));
  const ctx = await openContext();
  const input = { ...options, dir: path.resolve(dir), volumeSize };
  const onSkip = (file: string, kind: string) => printToStderr(`skipped: ${file} is ${kind}`);
  const how = { signal: abort.signal, onProgress: createProgress(), onSkip };
  const result = await archiveTree(ctx, createFirstLibrary(ctx.config), input, how);
  if (options.json) printJson(result);
  else printResult(result, options.move === true);
  if (result.failed.length > 0) throw new CommandError(await describeFailed(result.failed));
}

async function describeFailed(failed: readonly string[]): Promise<string> {
  const { OTHER_BYTES } = await import('../../engine/archive/batch.js');
  const lines = [
    `${plural(failed.length, 'file was not archived', 'files were not archived')}:`,
    ...failed.map((line) => `  ${printable(line)}`),
  ];
  if (failed.some((line) => line.endsWith(OTHER_BYTES))) {
    lines.push('files on tape are not replaced: archive the changed files with another --prefix');
  }
  return lines.join('\n');
}

const PROGRESS_MS = { terminal: 1000, other: 30_000 };

function createProgress(): (progress: ArchiveProgress) => void {
  const everyMs = stderr().isTTY ? PROGRESS_MS.terminal : PROGRESS_MS.other;
  const start = performance.now();
  let next = start + everyMs;
  return ({ files, bytes }) => {
    const now = performance.now();
    if (now < next) return;
    next = now + everyMs;
    const rate = formatBytes(Math.round(Number(bytes) / ((now - start) / 1000)));
    printToStderr(`${plural(files, 'file')} so far, ${formatBytes(bytes)}, ${rate}/s`);
  };
}

function printResult(result: ArchiveResult, isMove: boolean): void {
  printLine(`${plural(result.archived, 'file')} archived, ${formatBytes(result.bytes)}`);
  if (result.unchanged > 0) {
    printLine(
      `${plural(result.unchanged, 'file', 'files')} already on tape, ${isMove ? 'confirmed by reading their tape copies' : 'according to the catalogue'}`,
    );
  }
  if (result.skipped > 0)
    printLine(`${plural(result.skipped, 'entry', 'entries')} skipped, because only regular files are archived`);
}
