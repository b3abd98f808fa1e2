/** `ls`: tape files by a part of their path and by stage. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import { plural } from '../plural.js';
import type { Stage } from '../stages.js';
import { limitHelp, readLimit } from './arguments.js';
import { ask, askPages, type Page, readUrl } from './client.js';
import { UsageError } from './failure.js';
import { describeNoMatch } from './missing.js';
import { jsonOption, noteLine, type OutputOptions, printJson, printLine } from './output.js';
import {
  createNullOption,
  createPathsOption,
  type PathsOptions,
  type PlacedFile,
  placeOf,
  printPath,
} from './places.js';

export function registerLs(program: Command): void {
  program
    .command('ls [match]')
    .option(...jsonOption)
    .addOption(createPathsOption())
    .addOption(createNullOption())
    .option('--stages <letters>', 'only at these stages: any of U, D, T, A, R')
    .option('--withdrawn', 'those that are withdrawn, and no others')
    .option('--limit <n>', limitHelp('list at most so many', '--json, --print-paths'))
    .action((match, options) => listFiles(readUrl(), match, options));
}

interface ListOptions extends OutputOptions, PathsOptions {
  stages?: string;
  withdrawn?: boolean;
  limit?: string;
}

interface FileNode extends PlacedFile {
  size: bigint;
  stage: Stage;
  verified: string | null;
  spotName: string | null;
  checksum: string | null;
  /** Of what is withdrawn. */
  withdrawnAt?: string;
  withdrawnWhy?: string | null;
  /** Only where all is printed. */
  volume?: { name: string } | null;
  copyVolume?: { name: string } | null;
}

const FILES = `query ($match: String, $stages: [Stage!], $withdrawn: Boolean = false, $places: Boolean = false, $first: Int, $after: String) {
  tapeFiles(match: $match, stages: $stages, withdrawn: $withdrawn, first: $first, after: $after) {
    totalCount edges { node { path size stage verified spotName checksum restoredPath ...OnTape @include(if: $places) ...WhenWithdrawn @include(if: $withdrawn) } } pageInfo { hasNextPage endCursor }
  }
}
fragment OnTape on TapeFile { volume { name } position copyVolume { name } copyPosition }
fragment WhenWithdrawn on TapeFile { withdrawnAt withdrawnWhy }`;

type FilePage = Page<FileNode> & { totalCount: number };

async function listFiles(url: string, match: string | undefined, options: ListOptions): Promise<void> {
  const { onDiskStages, stageLetters } = await import('../stages.js');
  const stages = options.stages === undefined ? undefined : await readStages(options.stages);
  const limit = readLimit(options);
  const pages = askPages(limit, async (page) => {
    const wanted = { match, stages, withdrawn: options.withdrawn, places: options.json, ...page };
    return (await ask<{ tapeFiles: FilePage }>(url, FILES, wanted)).tapeFiles;
  });
  let shown = 0;
  let total = 0;
  for await (const { edges, totalCount } of pages) {
    for (const { node } of edges) {
      if (options.json) printJson(withVolumes(node));
      else if (!options.printPaths) printLine(formatFile(node, stageLetters[node.stage]));
      else if (onDiskStages.includes(node.stage)) printPath(placeOf(node), options);
    }
    shown += edges.length;
    total = totalCount;
  }
  if (total === 0 && match !== undefined) noteLine(describeNoMatch(match, stages !== undefined));
  if (shown === total) return;
  const tell = options.json || options.printPaths ? noteLine : printLine;
  tell(`${shown} of ${plural(total, 'file')}; --limit shows more`);
}

/** Volumes by their names, as lists for an import have them. */
const withVolumes = ({ volume, copyVolume, ...node }: FileNode): object => ({
  ...node,
  volume: volume?.name ?? null,
  copyVolume: copyVolume?.name ?? null,
});

/** A copy in the restore area is told where it is. */
function formatFile({ path, size, restoredPath, withdrawnWhy: why }: FileNode, letter: string): string {
  const place = restoredPath === null ? '' : `  at ${restoredPath}`;
  return `${letter}  ${formatBytes(size).padStart(9)}  ${path}${place}${why ? `  (${why})` : ''}`;
}

async function readStages(letters: string): Promise<Stage[]> {
  const { stageOfLetter } = await import('../stages.js');
  return [...letters].map((letter) => {
    const stage = stageOfLetter(letter);
    if (stage) return stage;
    throw new UsageError(`--stages takes letters of U, D, T, A, R, not ${JSON.stringify(letter)}`);
  });
}
