/** `request`: files are asked for, or with --dry-run what asking would take. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import { plural } from '../plural.js';
import { fileOption, readNumber, readPaths, readRetention, readSize } from './arguments.js';
import { askChange, askNow, readUrl } from './client.js';
import { estimateRequest, type RequestInput } from './dry-run.js';
import { UsageError } from './failure.js';
import { environment } from './io.js';
import { findMissing, IncompleteError } from './missing.js';
import { jsonOption, noteLine, type OutputOptions, printJson, printLine } from './output.js';
import { ownSettingsFile, readOwnSettings } from './own-settings.js';
import { atPrimaryPlace, createNullOption, createPathsOption, type PathsOptions, printPlaces } from './places.js';
import { formatWholeTime } from './times.js';
import { watchRequest } from './watch.js';

export function registerRequest(program: Command): void {
  program
    .command('request')
    .option(...jsonOption)
    .option('--quota <user>', 'the user whose quota is charged; that of your own settings unless given')
    .option('--pattern <text>', 'all files whose path holds the text, now and later')
    .option(...fileOption)
    .option('--retention <date>', 'how long the files stay on disk: a UTC date, or 3d, 12h; five days unless given')
    .option('--label <text>')
    .option('--max-files <n>', 'what the request may hold at most, also of files that appear later')
    .option('--max-bytes <size>', 'the same in bytes, such as 10T')
    .option('--notify-first <address>', 'mail when the first file is on disk')
    .option('--notify-last <address>', 'mail when nothing is left to do; to the address of the quota unless given')
    .option('--no-mail', 'no mail to the address of the quota')
    .option('--watch', 'draw the progress until the request has finished')
    .addOption(createPathsOption())
    .addOption(createNullOption())
    .option('--dry-run', 'say what it would take and when it may be done, and ask for nothing')
    .action((options) => askForFiles(readUrl(), options));
}

interface RequestOptions extends OutputOptions, PathsOptions {
  quota?: string;
  pattern?: string;
  file?: string[];
  retention?: string;
  label?: string;
  maxFiles?: string;
  maxBytes?: string;
  notifyFirst?: string;
  notifyLast?: string;
  mail: boolean;
  watch?: boolean;
  dryRun?: boolean;
}

async function askForFiles(url: string, options: RequestOptions): Promise<void> {
  const input = await readInput(url, options);
  if (options.dryRun) return await estimateRequest(url, input, options);
  const { id, mayMiss, isFinished } = await createRequest(url, input, options);
  if (options.watch || options.printPaths) return await watchRequest(url, id, { ...options, isMade: true });
  const missing = mayMiss ? await findMissing(url, id) : [];
  if (missing.length > 0 && isFinished) throw new IncompleteError(id, missing);
  for (const line of missing) noteLine(line);
}

function readQuota({ quota = readOwnSettings(environment()).quota }: RequestOptions): string {
  if (quota !== undefined) return quota;
  throw new UsageError(`give --quota <user>, or set "quota" in ${ownSettingsFile(environment())}`);
}

/** The `CreateRequestInput` of GraphQL. */
async function readInput(url: string, options: RequestOptions): Promise<RequestInput> {
  if ((options.pattern === undefined) === (options.file === undefined)) {
    throw new UsageError('give either --pattern or --file');
  }
  if (options.pattern === '') throw new UsageError('--pattern must not be empty');
  const files = options.file && (await readPaths(options.file));
  const folder = files?.find((path) => path.endsWith('/'));
  if (folder !== undefined) {
    throw new UsageError(
      `--file takes paths of files; --pattern ${JSON.stringify(folder)} takes all that are below it`,
    );
  }
  return {
    quota: readQuota(options),
    pattern: options.pattern,
    retention:
      options.retention === undefined
        ? undefined
        : await readRetention('--retention', options.retention, () => askNow(url)),
    files,
    label: options.label,
    maxFiles: options.maxFiles === undefined ? undefined : readNumber('--max-files', options.maxFiles),
    maxBytes: options.maxBytes === undefined ? undefined : readSize('--max-bytes', options.maxBytes),
    notifyOnFirstFile: options.notifyFirst,
    notifyOnLastFile: options.notifyLast ?? (options.mail ? '' : undefined), // empty: the quota's own
  };
}

interface CreatedNode {
  requestId: number;
  state: string;
  filesTotal: number;
  bytesTotal: bigint;
  filesUnknown: number;
  retention: string;
  restoredBelow: string[];
  filesAtPrimaryPlace: number;
}

const CREATED =
  'Request { requestId label state filesTotal bytesTotal filesUnknown retention restoredBelow filesAtPrimaryPlace }';

/** What was made: whether files may be missing of it, and nothing is left to do. */
interface Made {
  id: number;
  mayMiss: boolean;
  isFinished: boolean;
}

async function createRequest(url: string, input: object, options: RequestOptions): Promise<Made> {
  const call = ['createRequest(input: CreateRequestInput!)', CREATED] as const;
  const request = await askChange<CreatedNode>(url, call, { input });
  if (options.json) printJson(request);
  else {
    const unknown =
      request.filesUnknown > 0 ? `, ${plural(request.filesUnknown, 'path')} unknown to the catalogue` : '';
    const tell = options.printPaths ? noteLine : printLine;
    tell(
      `request ${request.requestId}: ${plural(request.filesTotal, 'file')}, ${formatBytes(request.bytesTotal)}${atPrimaryPlace(request.filesAtPrimaryPlace)}${unknown}, kept until ${formatWholeTime(request.retention)}`,
    );
  }
  if (!options.json && !options.watch && !options.printPaths) {
    const copies = request.state === 'COMPLETED' ? request.filesTotal - request.filesAtPrimaryPlace : 0;
    printPlaces(request.requestId, { restoredBelow: request.restoredBelow, copies });
  }
  return {
    id: request.requestId,
    mayMiss: request.filesUnknown > 0 || request.filesTotal === 0,
    isFinished: request.state === 'COMPLETED' || request.state === 'PARTIAL',
  };
}
