/** `release`: single files of a request are let go before its end. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import { plural } from '../plural.js';
import { fileOption, readId, readPaths } from './arguments.js';
import { ask, askChange, readUrl } from './client.js';
import { UsageError } from './failure.js';
import { jsonOption, type OutputOptions, printJson, printLine } from './output.js';

export function registerRelease(program: Command): void {
  program
    .command('release <id>')
    .option(...jsonOption)
    .option(...fileOption)
    .option('--match <text>', 'all files of the request whose path holds the text')
    .action((id, options) => releaseFiles(readUrl(), id, options));
}

interface ReleaseOptions extends OutputOptions {
  file?: string[];
  match?: string;
}

/** What was let go of a request since it was made. */
interface ReleasedCounts {
  filesReleased: number;
  /** Released ones are in no count. */
  filesUnknown: number;
}

/** A request after the release. */
interface ReleasedNode extends ReleasedCounts {
  requestId: number;
  state: string;
  filesTotal: number;
  bytesTotal: bigint;
}

const BEFORE = 'query ($id: Int!) { request(id: $id) { filesReleased filesUnknown } }';

const RELEASED = 'Request { requestId state filesReleased filesUnknown filesTotal bytesTotal }';

async function releaseFiles(url: string, id: string, options: ReleaseOptions): Promise<void> {
  if ((options.match === undefined) === (options.file === undefined)) {
    throw new UsageError('give either --file or --match');
  }
  if (options.match === '') throw new UsageError('--match must not be empty; "/" is in all paths');
  const input = { id: readId(id), paths: options.file && (await readPaths(options.file)), match: options.match };
  // a request counts what was ever released: what this call did is the difference
  const { request: before } = await ask<{ request: ReleasedCounts | null }>(url, BEFORE, { id: input.id });
  const call = ['releaseFiles(input: ReleaseFilesInput!)', RELEASED] as const;
  const left = await askChange<ReleasedNode>(url, call, { input }, { match: '--match' });
  const files = Math.max(left.filesReleased - (before?.filesReleased ?? 0), 0);
  const paths = Math.max((before?.filesUnknown ?? 0) - left.filesUnknown, 0);
  if (options.json) return printJson({ ...left, filesReleasedNow: files });
  const state = `request ${left.requestId} is ${left.state.toLowerCase()}`;
  const released = `${plural(files, 'file')}${paths > 0 ? ` and ${plural(paths, 'unknown path')}` : ''} released`;
  printLine(`${state}: ${released}, ${plural(left.filesTotal, 'file')} left, ${formatBytes(left.bytesTotal)}`);
}
