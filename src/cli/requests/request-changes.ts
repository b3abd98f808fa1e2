/** Commands that change a request. */
import type { Command } from 'commander';
import { messageOf } from '../../core/errors.js';
import { formatBytes } from '../../core/text/bytes.js';
import { plural } from '../../core/text/plural.js';
import { isBefore, parseTime } from '../../core/time.js';
import {
  CancelRequestDocument,
  ReleasedCountsDocument,
  ReleaseFilesDocument,
  RetryRequestDocument,
  SetRequestPriorityDocument,
  UpdateRequestDocument,
} from '../../generated/operations.js';
import { ask, askChange, askNow } from '../connection/gateway-client.js';
import { findSite } from '../connection/where.js';
import {
  fileOption,
  noneToNull,
  orNone,
  readId,
  readPaths,
  readRetention,
  toNumber,
  toSize,
} from '../terminal/arguments.js';
import { CommandError, ConnectionError, UsageError } from '../terminal/failure.js';
import { type OutputOptions, pick, printJson, printLine, printResult } from '../terminal/output.js';
import { formatWholeTime } from '../terminal/times.js';
import { noteLoggedEmail } from './email-note.js';

export function register(program: Command): void {
  program
    .command('update <id>')
    .option('--retention <date>', 'keep the files on disk until a UTC date, or for a period such as 3d or 12h')
    .option('--label <text>', 'rename the request')
    .option(
      '--notify-first <address>',
      'send email when the first file is on disk; "own" means the quota\'s address',
      toAddress,
    )
    .option(
      '--notify-last <address>',
      'send email when the request has finished; "own" means the quota\'s address',
      toAddress,
    )
    .option('--max-files <n>', 'limit the number of files in the request', orNone(toNumber('--max-files')))
    .option('--max-bytes <size>', 'limit the size of the request, for example to 10T', orNone(toSize('--max-bytes')))
    .addHelpText('after', '\nThe value "none" removes an address or a limit.')
    .action((id, options) => updateRequest(findSite(), readId(id), options));
  program.command('cancel <ids...>').action((ids, options) => cancelRequests(findSite(), ids.map(readId), options));
  program
    .command('priority <id> <n>')
    .addHelpText('after', '\nGive a negative priority after --: tapegate priority 7 -- -5')
    .action((id, priority, options) => setRequestPriority(findSite(), { id, priority }, options));
  program
    .command('release <id>')
    .option(...fileOption)
    .option('--match <text>', 'release all files in the request whose path contains the text')
    .action((id, options) => releaseFiles(findSite(), id, options));
  program
    .command('retry <id>')
    .option('--quota <user>', 'fail if the request does not belong to this user')
    .action((id, options) => retryRequest(findSite(), readId(id), options));
}

/** Converts the value `own` to an empty string, which selects the quota's email address. */
const toAddress = orNone((address) => (address === 'own' ? '' : address));

interface UpdateOptions extends OutputOptions {
  retention?: string;
  label?: string;
  notifyFirst?: string;
  notifyLast?: string;
  maxFiles?: number | 'none';
  maxBytes?: bigint | 'none';
}

async function updateRequest(url: string, id: number, options: UpdateOptions): Promise<void> {
  const { retention, label, notifyFirst, notifyLast, maxFiles, maxBytes } = options;
  const changes = {
    retention: retention === undefined ? undefined : await readLaterRetention(url, id, retention),
    label,
    notifyOnFirstFile: noneToNull(notifyFirst),
    notifyOnLastFile: noneToNull(notifyLast),
    maxFiles: noneToNull(maxFiles),
    maxBytes: noneToNull(maxBytes),
  };
  if (Object.values(changes).every((change) => change === undefined))
    throw new UsageError('nothing to change: give at least one option');
  const request = await askChange(url, UpdateRequestDocument, { input: { requestId: id, ...changes } });
  const state = `request ${request.requestId} is ${request.state.toLowerCase()}`;
  const files = `${plural(request.filesTotal, 'file')}, ${formatBytes(request.bytesTotal)}`;
  const given = ['retention', 'notifyOnFirstFile', 'notifyOnLastFile', 'maxFiles', 'maxBytes'] as const;
  const shown = pick(request, 'requestId', 'label', 'state', 'filesTotal', 'bytesTotal', ...given);
  printResult(shown, `${state}: ${files}, kept until ${formatWholeTime(request.retention)}`, options);
  await noteLoggedEmail(url, [notifyFirst, notifyLast]);
}

/** Rejects a past retention date, because the server would end the request immediately. */
async function readLaterRetention(url: string, id: number, text: string): Promise<string> {
  const now = await askNow(url);
  const retention = await readRetention('--retention', text, async () => now);
  if (isBefore(now, parseTime(retention) ?? retention)) return retention;
  throw new UsageError(
    `--retention must be in the future, not ${JSON.stringify(text)}; to end the request now, run "tapegate cancel ${id}"`,
  );
}

/**
 * Cancels requests. If the server refuses to cancel one of the requests, continues with the next request.
 * @throws CommandError that lists all failures
 */
async function cancelRequests(url: string, ids: readonly number[], options: OutputOptions): Promise<void> {
  const failures: string[] = [];
  for (const id of ids) {
    try {
      const request = await askChange(url, CancelRequestDocument, { id });
      const shown = pick(request, 'requestId', 'state');
      printResult(shown, `request ${shown.requestId} is ${shown.state.toLowerCase()}`, options);
    } catch (error) {
      if (!(error instanceof CommandError) || error instanceof ConnectionError) throw error;
      failures.push(messageOf(error));
    }
  }
  if (failures.length > 0) throw new CommandError(failures.join('\n'));
}

async function setRequestPriority(
  url: string,
  given: { id: string; priority: string },
  options: OutputOptions,
): Promise<void> {
  const priority = readPriority(given.priority);
  const request = await askChange(url, SetRequestPriorityDocument, { id: readId(given.id), priority });
  printResult(request, `request ${request.requestId} has priority ${request.priority}`, options);
}

function readPriority(text: string): number {
  if (/^-?\d{1,9}$/.test(text)) return Number(text);
  throw new UsageError(`<n> must be a whole number, not ${JSON.stringify(text)}`);
}

interface ReleaseOptions extends OutputOptions {
  file?: string[];
  match?: string;
}

async function releaseFiles(url: string, id: string, options: ReleaseOptions): Promise<void> {
  if ((options.match === undefined) === (options.file === undefined)) {
    throw new UsageError('give either --file or --match');
  }
  if (options.match === '') throw new UsageError('--match must not be empty; "/" matches all paths');
  const input = { requestId: readId(id), paths: options.file && (await readPaths(options.file)), match: options.match };
  // read the earlier count, because the server's answer also counts files that were released before this call
  const { request: before } = await ask(url, ReleasedCountsDocument, { id: input.requestId });
  const left = await askChange(url, ReleaseFilesDocument, { input }, { requestId: '<id>' });
  const files = Math.max(left.filesReleased - (before?.filesReleased ?? 0), 0);
  const paths = Math.max((before?.filesUnknown ?? 0) - left.filesUnknown, 0);
  if (options.json) {
    const counts = ['filesReleased', 'filesUnknown', 'filesTotal', 'bytesTotal'] as const;
    return printJson({ ...pick(left, 'requestId', 'state', ...counts), filesReleasedNow: files });
  }
  const state = `request ${left.requestId} is ${left.state.toLowerCase()}`;
  const released = `${plural(files, 'file')}${paths > 0 ? ` and ${plural(paths, 'unknown path')}` : ''} released`;
  printLine(`${state}: ${released}, ${plural(left.filesTotal, 'file')} left, ${formatBytes(left.bytesTotal)}`);
}

async function retryRequest(url: string, id: number, options: OutputOptions & { quota?: string }): Promise<void> {
  const input = { requestId: id, expectedQuota: options.quota };
  const request = await askChange(url, RetryRequestDocument, { input }, { requestId: '<id>' });
  const { filesTotal, filesOnDisk, filesFailed } = request;
  const waiting = filesTotal - filesOnDisk - filesFailed;
  const state = `request ${request.requestId} is ${request.state.toLowerCase()}`;
  const files = `${filesOnDisk} of ${plural(filesTotal, 'file')} on disk, ${waiting} waiting, ${filesFailed} failed`;
  const shown = pick(request, 'requestId', 'state', 'filesTotal', 'filesOnDisk', 'filesFailed');
  printResult(shown, `${state}: ${files}`, options);
}
