/** `release`: single files of a request are let go before its end. */
import { formatBytes } from '../bytes.js';
import { readId, readPaths } from './arguments.js';
import { ask } from './client.js';
import { CommandError, UsageError } from './failure.js';
import { type OutputOptions, printJson, printLine } from './output.js';

export interface ReleaseOptions extends OutputOptions {
  file?: string[];
  match?: string;
}

const RELEASE = `mutation ($input: ReleaseFilesInput!) {
  releaseFiles(input: $input) {
    __typename
    ... on Request { requestId state filesReleased filesTotal bytesTotal }
    ... on Failure { message }
  }
}`;

interface ReleasedNode {
  __typename: string;
  message?: string;
  requestId: number;
  state: string;
  filesReleased: number;
  filesTotal: number;
  bytesTotal: bigint | number;
}

export async function release(url: string, id: string, options: ReleaseOptions): Promise<void> {
  if ((options.match === undefined) === (options.file === undefined)) {
    throw new UsageError('give either --file or --match');
  }
  const input = { id: readId(id), paths: options.file && (await readPaths(options.file)), match: options.match };
  const { releaseFiles } = await ask<{ releaseFiles: ReleasedNode }>(url, RELEASE, { input });
  if (releaseFiles.__typename !== 'Request') throw new CommandError(releaseFiles.message ?? releaseFiles.__typename);
  const { __typename: _, ...left } = releaseFiles;
  if (options.json) return printJson(left);
  const state = `request ${left.requestId} is ${left.state.toLowerCase()}`;
  printLine(`${state}: ${left.filesReleased} files released, ${left.filesTotal} left, ${formatBytes(left.bytesTotal)}`);
}
