/** `release`: single files of a request are let go before its end. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import { plural } from '../plural.js';
import { fileOption, readId, readPaths } from './arguments.js';
import { ask, FAILURE, type Result, readUrl, unwrapResult } from './client.js';
import { UsageError } from './failure.js';
import { jsonOption, type OutputOptions, printJson, printLine } from './output.js';

export function registerRelease(program: Command): void {
  program
    .command('release <id>')
    .description('let single files of a request go before its end')
    .option(...jsonOption)
    .option(...fileOption)
    .option('--match <text>', 'all files of the request whose path holds the text')
    .action((id, options) => releaseFiles(readUrl(), id, options));
}

interface ReleaseOptions extends OutputOptions {
  file?: string[];
  match?: string;
}

/** A request after the release. */
interface ReleasedNode {
  requestId: number;
  state: string;
  filesReleased: number;
  filesTotal: number;
  bytesTotal: bigint;
}

const RELEASE = `mutation ($input: ReleaseFilesInput!) {
  releaseFiles(input: $input) {
    ... on Request { requestId state filesReleased filesTotal bytesTotal }
    ${FAILURE}
  }
}`;

async function releaseFiles(url: string, id: string, options: ReleaseOptions): Promise<void> {
  if ((options.match === undefined) === (options.file === undefined)) {
    throw new UsageError('give either --file or --match');
  }
  const input = { id: readId(id), paths: options.file && (await readPaths(options.file)), match: options.match };
  const answer = await ask<{ releaseFiles: Result<ReleasedNode> }>(url, RELEASE, { input });
  const left = unwrapResult(answer.releaseFiles, { match: '--match' });
  if (options.json) return printJson(left);
  const state = `request ${left.requestId} is ${left.state.toLowerCase()}`;
  printLine(
    `${state}: ${plural(left.filesReleased, 'file')} released, ${left.filesTotal} left, ${formatBytes(left.bytesTotal)}`,
  );
}
