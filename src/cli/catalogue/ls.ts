/** The command `ls` lists tape files, selected by path and stage. */
import type { Command } from 'commander';
import { present } from '../../../clients/typescript/responses.js';
import type { Stage } from '../../core/stages.js';
import { formatBytes } from '../../core/text/bytes.js';
import { plural } from '../../core/text/plural.js';
import { FilesWithCountDocument, type ListedFileFragment } from '../../generated/operations.js';
import { askPages } from '../connection/gateway-client.js';
import { findSite } from '../connection/where.js';
import {
  addPathsOptions,
  describeNoMatch,
  type PathsOptions,
  pathOnDisk,
  printPath,
} from '../requests/request-files.js';
import { limitHelp, readLimit } from '../terminal/arguments.js';
import { UsageError } from '../terminal/failure.js';
import { type OutputOptions, printJson, printLine, printNote, printToStderr } from '../terminal/output.js';

export function register(program: Command): void {
  addPathsOptions(program.command('ls [match]'))
    .option('--stages <letters>', 'list only files in these stages: any of U, D, T, A, R')
    .option('--withdrawn', 'list only withdrawn files')
    .option('--limit <n>', limitHelp('list at most n files', '--json or --print-paths'))
    .action((match, options) => listFiles(findSite(), match, options));
}

interface ListOptions extends OutputOptions, PathsOptions {
  stages?: string;
  withdrawn?: boolean;
  limit?: string;
}

async function listFiles(url: string, match: string | undefined, options: ListOptions): Promise<void> {
  const { stageLetters } = await import('../../core/stages.js');
  const stages = options.stages === undefined ? undefined : await readStages(options.stages);
  const limit = readLimit(options);
  const filter = { match, stages, withdrawn: options.withdrawn, places: options.json };
  const pages = askPages(url, FilesWithCountDocument, filter, ({ list }) => list, { limit });
  let shown = 0;
  let total = 0;
  for await (const { edges, totalCount } of pages) {
    for (const { node } of edges) {
      if (options.json) printJson(withVolumes(node));
      else if (!options.printPaths) printLine(formatFile(node, stageLetters[node.stage]));
      else printPathOnDisk(node, options);
    }
    shown += edges.length;
    total = present(totalCount);
  }
  if (total === 0 && match !== undefined) printToStderr(describeNoMatch(match, stages !== undefined));
  if (shown === total) return;
  printNote(`${shown} of ${plural(total, 'file')}; --limit shows more`, options);
}

function printPathOnDisk(file: ListedFileFragment, options: PathsOptions): void {
  const path = pathOnDisk(file);
  if (path !== null) printPath(path, options);
}

/** Returns a file's JSON output, with volume names in the form that an import accepts. */
const withVolumes = ({ volume, copyVolume, isAtPrimaryPath: _, ...node }: ListedFileFragment): object => ({
  ...node,
  volume: volume?.name ?? null,
  copyVolume: copyVolume?.name ?? null,
});

function formatFile({ path, size, restoredPath, withdrawnReason: why }: ListedFileFragment, letter: string): string {
  const at = restoredPath === null ? '' : `  at ${restoredPath}`;
  return `${letter}  ${formatBytes(size).padStart(9)}  ${path}${at}${why ? `  (${why})` : ''}`;
}

async function readStages(letters: string): Promise<Stage[]> {
  const { stageOfLetter } = await import('../../core/stages.js');
  return [...letters].map((letter) => {
    const stage = stageOfLetter(letter);
    if (stage) return stage;
    throw new UsageError(`--stages must contain only the letters U, D, T, A, R, not ${JSON.stringify(letter)}`);
  });
}
