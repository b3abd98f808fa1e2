/** `request`: files are asked for, or with --dry-run what asking would take. */
import type { Command } from 'commander';
import { formatBytes } from '../core/bytes.js';
import { describeFullQuota } from '../core/errors.js';
import { plural } from '../core/plural.js';
import {
  CreateRequest,
  type CreateRequestInput,
  type EstimatedFragment,
  EstimateRequest,
} from '../generated/command-operations.js';
import { ask, askChange, askNow, unwrapResult } from './connection/client.js';
import { findSite } from './connection/where.js';
import { chooseQuota } from './quota-choice.js';
import {
  addPathsOptions,
  atPrimaryPlace,
  describeNoMatch,
  describeUnknown,
  findFolders,
  findMissing,
  IncompleteError,
  type PathsOptions,
  printPlaces,
} from './request-files.js';
import { fileOption, readPaths, readRetention, toNumber, toSize } from './terminal/arguments.js';
import { CommandError, exitCodes, UsageError } from './terminal/failure.js';
import { noteLine, type OutputOptions, printJson, printLine } from './terminal/output.js';
import { formatEnd, formatWholeTime } from './terminal/times.js';
import { watchRequest } from './watch.js';

export function register(program: Command): void {
  addPathsOptions(program.command('request'))
    .option(
      '--quota <user>',
      'charge the quota of this user (default: from config.json, else your own, else your oldest membership)',
    )
    .option('--pattern <text>', 'request all files whose path contains the text, also files added later')
    .option(...fileOption)
    .option('--retention <date>', 'keep the files on disk until a UTC date, or for 3d or 12h (default: 5d)')
    .option('--label <text>', 'name the request (default: the pattern, or the first path)')
    .option('--max-files <n>', 'limit the number of files, including files added later', toNumber('--max-files'))
    .option('--max-bytes <size>', 'limit the size of the request, for example to 10T', toSize('--max-bytes'))
    .option('--notify-first <address>', 'send email when the first file is on disk')
    .option(
      '--notify-last <address>',
      'send email when the request has finished (default: to the address of the quota)',
    )
    .option('--no-mail', 'send no email to the address of the quota')
    .option('--watch', 'show the progress until the request has finished')
    .option('--dry-run', 'print an estimate and request nothing')
    .action((options) => askForFiles(findSite(), options));
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

async function askForFiles(url: string, options: RequestOptions): Promise<void> {
  const input = await readInput(url, options);
  if (options.dryRun) return await estimateRequest(url, input, options);
  const { id, mayMiss, isFinished } = await createRequest(url, input, options);
  if (options.watch || options.printPaths) return await watchRequest(url, id, { ...options, isMade: true });
  const missing = mayMiss ? await findMissing(url, id) : [];
  if (missing.length > 0 && isFinished) throw new IncompleteError(id, missing);
  for (const line of missing) noteLine(line);
}

async function readInput(url: string, options: RequestOptions): Promise<CreateRequestInput> {
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
    notifyOnLastFile: options.notifyLast ?? (options.mail ? '' : undefined), // empty: the quota's own
  };
}

/** What was made: whether files may be missing of it, and nothing is left to do. */
interface Made {
  id: number;
  mayMiss: boolean;
  isFinished: boolean;
}

async function createRequest(url: string, input: CreateRequestInput, options: RequestOptions): Promise<Made> {
  const request = await askChange(url, CreateRequest, { input });
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

/** Prints what a request would take. @throws CommandError if the quota is too small, or not all files are known */
async function estimateRequest(url: string, input: CreateRequestInput, options: OutputOptions): Promise<void> {
  const { plan, result } = await ask(url, EstimateRequest, { input });
  const estimate = unwrapResult(result);
  if (options.json) printJson(estimate);
  else {
    const folders = await findFolders(url, estimate.unknownPaths);
    for (const line of formatEstimate(plan.at, estimate, folders)) printLine(line);
    printLine('nothing was asked for');
  }
  if (!estimate.isEnough) {
    const { user, quotaSize: size, quotaUsed: used, bytes: requested } = estimate;
    throw new CommandError(describeFullQuota({ user, size, used, requested }));
  }
  if (estimate.filesUnknown > 0 || estimate.files === 0) {
    const unknown = `${plural(estimate.filesUnknown, 'path is', 'paths are')} not in the catalogue`;
    const missing = input.pattern ? describeNoMatch(input.pattern) : unknown;
    throw new CommandError(missing, exitCodes.incomplete);
  }
}

function formatUnknown({ unknownPaths, filesUnknown }: EstimatedFragment, folders: ReadonlySet<string>): string[] {
  const unknown = { paths: unknownPaths, count: filesUnknown, folders };
  const [first = '', ...named] = describeUnknown(
    `${plural(filesUnknown, 'path')} that the catalogue does not know`,
    unknown,
  );
  return [`unknown     ${first}`, ...named.map((line) => `          ${line}`)];
}

function formatEstimate(now: string, estimate: EstimatedFragment, folders: ReadonlySet<string>): string[] {
  const { user, quotaSize, quotaUsed, quotaUsedAfter, volumes } = estimate;
  const lines = [
    `files       ${estimate.files}, ${formatBytes(estimate.bytes)}`,
    `on disk     ${estimate.filesOnDisk}, ${formatBytes(estimate.bytesOnDisk)}${atPrimaryPlace(estimate.filesAtPrimaryPlace)}`,
    `from tape   ${estimate.filesToRecall}, ${formatBytes(estimate.bytesToRecall)}, on ${plural(volumes, 'volume')}; ${estimate.mounts} to be mounted`,
  ];
  if (estimate.filesOnTheirWay > 0) lines.push(`            ${estimate.filesOnTheirWay} of them are asked for already`);
  if (estimate.filesAlsoRequested > 0)
    lines.push(
      `again       ${estimate.filesAlsoRequested}, ${formatBytes(estimate.bytesAlsoRequested)}: other requests of the quota contain and charge them already`,
    );
  if (estimate.volumesSuspended > 0)
    lines.push(
      `            ${plural(estimate.volumesSuspended, 'volume is out of service', 'volumes are out of service')}`,
    );
  if (estimate.filesWithoutPlace > 0)
    lines.push(`no place    ${estimate.filesWithoutPlace}: on no volume that is known`);
  if (estimate.filesUnknown > 0) lines.push(...formatUnknown(estimate, folders));
  if (!estimate.hasRoom) lines.push('no room     the restore disks have less left: files wait until others leave');
  lines.push(
    `quota       ${user}: ${formatBytes(quotaUsed)} used, then ${formatBytes(quotaUsedAfter)} of ${formatBytes(quotaSize)}`,
  );
  lines.push(...formatPrices(estimate), `end         ${formatEnd(now, estimate.end, { why: estimate.endUnknown })}`);
  return lines;
}

/** By library, and all together where there are several. */
function formatPrices({ prices, price }: EstimatedFragment): string[] {
  const lines = prices.map(({ library, amount, currency, files, bytes, note }) => {
    const what = `${plural(files, 'file')}, ${formatBytes(bytes)}`;
    return `${amount} ${currency} at ${library} for ${what}${note && `: ${note}`}`;
  });
  if (prices.length > 1) lines.push(price ? `${price.amount} ${price.currency} together` : 'in several currencies');
  return lines.map((line, n) => `${n === 0 ? 'cost' : '    '}        ${line}`);
}
