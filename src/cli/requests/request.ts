/** The command `request` creates a request for files. With `--dry-run`, the command only prints an estimate. */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import { present } from '../../../clients/typescript/responses.js';
import { describeFullQuota } from '../../core/errors.js';
import { formatBytes } from '../../core/text/bytes.js';
import { plural } from '../../core/text/plural.js';
import {
  CreateRequestDocument,
  type CreateRequestInput,
  type EstimateFragment,
  EstimateRequestDocument,
} from '../../generated/operations.js';
import { ask, askChange, askNow, unwrapResult } from '../connection/gateway-client.js';
import { findSite } from '../connection/where.js';
import { fileOption, readPaths, readRetention, toNumber, toSize } from '../terminal/arguments.js';
import {
  BusyError,
  CommandError,
  ConnectionError,
  exitCodes,
  UnconfirmedError,
  UsageError,
} from '../terminal/failure.js';
import { type OutputOptions, pick, printJson, printLine, printToStderr } from '../terminal/output.js';
import { formatEnd, formatWholeTime } from '../terminal/times.js';
import { noteLoggedEmail } from './email-note.js';
import { chooseQuota } from './quota-choice.js';
import {
  addPathsOptions,
  atPrimaryPath,
  describeNoMatch,
  describeUnknown,
  findDirectories,
  findMissing,
  IncompleteError,
  type PathsOptions,
  printDirectories,
} from './request-files.js';
import { watchRequest } from './watch.js';

export function register(program: Command): void {
  addPathsOptions(program.command('request'))
    .option(
      '--quota <user>',
      "charge this user's quota (default: the quota in config.json, otherwise your own quota, otherwise the quota that you joined first)",
    )
    .option('--pattern <text>', 'request all files whose path contains the text, including files added later')
    .option(...fileOption)
    .option('--retention <date>', 'keep the files on disk until a UTC date, or for a period such as 12h (default: 5d)')
    .option('--label <text>', 'name the request (default: the pattern, or the first path)')
    .option('--max-files <n>', 'limit the number of files, including files added later', toNumber('--max-files'))
    .option('--max-bytes <size>', 'limit the size of the request, for example to 10T', toSize('--max-bytes'))
    .option('--notify-first <address>', 'send email when the first file is on disk')
    .option('--notify-last <address>', "send email when the request has finished (default: to the quota's address)")
    .option('--no-mail', "send no email to the quota's address")
    .option('--watch', 'show the progress until the request has finished')
    .option('--dry-run', 'print an estimate without making a request')
    .action((options) => requestFiles(findSite(), options));
}

interface RequestOptions extends OutputOptions, PathsOptions {
  quota?: string;
  pattern?: string;
  file?: string[];
  retention?: string;
  label?: string;
  maxFiles?: number;
  maxBytes?: bigint;
  notifyFirst?: string;
  notifyLast?: string;
  mail: boolean;
  watch?: boolean;
  dryRun?: boolean;
}

async function requestFiles(url: string, options: RequestOptions): Promise<void> {
  const input = await readInput(url, options);
  if (options.dryRun) return await estimateRequest(url, input, options);
  const { id, mayLackFiles, isFinished } = await createRequest(url, input, options);
  await noteLoggedEmail(url, [options.notifyFirst, options.notifyLast]);
  if (options.watch || options.printPaths) return await watchRequest(url, id, { ...options, isNew: true });
  const missing = mayLackFiles ? await findMissing(url, id) : [];
  if (missing.length > 0 && isFinished) throw new IncompleteError(id, missing);
  for (const line of missing) printToStderr(line);
}

async function readInput(url: string, options: RequestOptions): Promise<CreateRequestInput> {
  if ((options.pattern === undefined) === (options.file === undefined)) {
    throw new UsageError('give either --pattern or --file');
  }
  if (options.pattern === '') throw new UsageError('--pattern must not be empty');
  const files = options.file && (await readPaths(options.file));
  const directory = files?.find((path) => path.endsWith('/'));
  if (directory !== undefined) {
    throw new UsageError(
      `--file takes paths of files: use --pattern ${JSON.stringify(directory)} for all files below a directory`,
    );
  }
  const { retention } = options;
  return {
    quota: await chooseQuota(url, options.quota),
    pattern: options.pattern,
    retention: retention === undefined ? undefined : await readRetention('--retention', retention, () => askNow(url)),
    files,
    label: options.label,
    maxFiles: options.maxFiles,
    maxBytes: options.maxBytes,
    notifyOnFirstFile: options.notifyFirst,
    notifyOnLastFile: options.notifyLast ?? (options.mail ? '' : undefined),
  };
}

interface CreatedRequest {
  id: number;
  mayLackFiles: boolean;
  isFinished: boolean;
}

async function createRequest(url: string, input: CreateRequestInput, options: RequestOptions): Promise<CreatedRequest> {
  const request = await sendRequest(url, input);
  if (options.json) {
    const counts = ['filesTotal', 'bytesTotal', 'filesUnknown'] as const;
    const lasting = ['retention', 'restoredBelow', 'filesAtPrimaryPath'] as const;
    printJson(pick(request, 'requestId', 'label', 'state', ...counts, ...lasting));
  } else {
    const unknown = request.filesUnknown > 0 ? `, ${plural(request.filesUnknown, 'path')} not in the catalogue` : '';
    const print = options.printPaths ? printToStderr : printLine;
    print(
      `request ${request.requestId}: ${plural(request.filesTotal, 'file')}, ${formatBytes(request.bytesTotal)}${atPrimaryPath(request.filesAtPrimaryPath)}${unknown}, kept until ${formatWholeTime(request.retention)}`,
    );
  }
  if (!options.json && !options.watch && !options.printPaths) {
    const copies = request.state === 'COMPLETED' ? request.filesTotal - request.filesAtPrimaryPath : 0;
    printDirectories(request.requestId, { restoredBelow: request.restoredBelow, copies });
  }
  return {
    id: request.requestId,
    mayLackFiles: request.filesUnknown > 0 || request.filesTotal === 0,
    isFinished: request.state === 'COMPLETED' || request.state === 'PARTIAL',
  };
}

/** Pauses before the call is repeated for the first and the second time. */
const REPEAT_PAUSES_MS = [1000, 5000];

/** Sends the request. Repeats a call whose result is unknown, which is safe because of the idempotency key. */
async function sendRequest(url: string, input: CreateRequestInput) {
  const variables = { input: { ...input, idempotencyKey: randomUUID() } };
  let unconfirmed: UnconfirmedError | undefined;
  for (let n = 0; ; n++) {
    try {
      return await askChange(url, CreateRequestDocument, variables);
    } catch (error) {
      if (error instanceof UnconfirmedError) unconfirmed ??= error;
      const isPassing = error instanceof BusyError || (unconfirmed && error instanceof ConnectionError);
      if (error !== unconfirmed && !(error instanceof UnconfirmedError) && !isPassing) throw error;
      const pause = REPEAT_PAUSES_MS[n];
      if (pause === undefined) throw unconfirmed ?? error;
      await sleep(pause);
    }
  }
}

/** @throws CommandError if the files do not fit into the user's quota, or a path or pattern matches no file */
async function estimateRequest(url: string, input: CreateRequestInput, options: OutputOptions): Promise<void> {
  const { plan, result } = await ask(url, EstimateRequestDocument, { input, now: true });
  const estimate = unwrapResult(result);
  if (options.json) printJson(estimate);
  else {
    const directories = await findDirectories(url, estimate.unknownPaths);
    for (const line of formatEstimate(present(plan).at, estimate, directories)) printLine(line);
    printLine('nothing was requested');
  }
  if (!estimate.fitsQuota) {
    const { user, quotaSize: size, quotaUsed: used, bytes: requested } = estimate;
    throw new CommandError(describeFullQuota({ user, size, used, requested }));
  }
  if (estimate.filesUnknown > 0 || estimate.fileCount === 0) {
    const unknown = `${plural(estimate.filesUnknown, 'path is', 'paths are')} not in the catalogue`;
    const missing = input.pattern ? describeNoMatch(input.pattern) : unknown;
    throw new CommandError(missing, exitCodes.incomplete);
  }
}

function formatUnknown({ unknownPaths, filesUnknown }: EstimateFragment, directories: ReadonlySet<string>): string[] {
  const unknown = { paths: unknownPaths, count: filesUnknown, directories };
  const [first = '', ...named] = describeUnknown(`${plural(filesUnknown, 'path')} not in the catalogue`, unknown);
  return [`unknown     ${first}`, ...named.map((line) => `          ${line}`)];
}

function formatEstimate(now: string, estimate: EstimateFragment, directories: ReadonlySet<string>): string[] {
  const { user, quotaSize, quotaUsed, quotaUsedAfter, volumeCount: volumes } = estimate;
  const lines = [
    `files       ${estimate.fileCount}, ${formatBytes(estimate.bytes)}`,
    `on disk     ${estimate.filesOnDisk}, ${formatBytes(estimate.bytesOnDisk)}${atPrimaryPath(estimate.filesAtPrimaryPath)}`,
    `from tape   ${estimate.filesToRecall}, ${formatBytes(estimate.bytesToRecall)}, on ${plural(volumes, 'volume')}; ${plural(estimate.mountCount, 'mount')}`,
  ];
  if (estimate.filesOnTheirWay > 0)
    lines.push(
      `            ${plural(estimate.filesOnTheirWay, 'file is', 'files are')} already requested by other requests`,
    );
  if (estimate.volumesSuspended > 0)
    lines.push(`            ${plural(estimate.volumesSuspended, 'volume is suspended', 'volumes are suspended')}`);
  if (estimate.filesAlsoRequested > 0)
    lines.push(
      `charged     ${estimate.filesAlsoRequested}, ${formatBytes(estimate.bytesAlsoRequested)}: these files are already charged to the quota for other requests`,
    );
  if (estimate.filesWithoutPlace > 0)
    lines.push(`no position ${estimate.filesWithoutPlace}: the catalogue does not contain the files' positions`);
  if (estimate.filesUnknown > 0) lines.push(...formatUnknown(estimate, directories));
  if (!estimate.hasRoom) lines.push('no room     files wait until the restore disks have enough free space');
  lines.push(
    `quota       ${user}: ${formatBytes(quotaUsed)} of ${formatBytes(quotaSize)} used, ${formatBytes(quotaUsedAfter)} with this request`,
  );
  const end = formatEnd(now, estimate.end, { why: estimate.endUnknown }).replace(/^(done|end) /, '');
  lines.push(...formatPrices(estimate), `end         ${end}`);
  return lines;
}

function formatPrices({ prices, price }: EstimateFragment): string[] {
  const lines = prices.map(({ libraryName: library, amount, currency, fileCount: files, bytes, note }) => {
    const size = `${plural(files, 'file')}, ${formatBytes(bytes)}`;
    return `${amount} ${currency} at ${library} for ${size}${note && `: ${note}`}`;
  });
  if (prices.length > 1) lines.push(price ? `${price.amount} ${price.currency} in total` : 'in several currencies');
  return lines.map((line, n) => `${n === 0 ? 'cost' : '    '}        ${line}`);
}
