/** What a request would take: the part of `request` that is behind `--dry-run`. */
import { formatBytes } from '../bytes.js';
import { plural } from '../plural.js';
import { ask, FAILURE, type Result, unwrapResult } from './client.js';
import { CommandError } from './failure.js';
import { describeNoMatch, describeUnknown, findFolders } from './missing.js';
import { type OutputOptions, printJson, printLine } from './output.js';
import { atPrimaryPlace } from './places.js';
import { type EndRange, formatEnd } from './times.js';

/** The `CreateRequestInput` of GraphQL, as far as its pattern is of interest here. */
export type RequestInput = Record<string, unknown> & { pattern?: string | undefined };

interface EstimateNode {
  files: number;
  bytes: bigint;
  filesUnknown: number;
  unknownPaths: string[];
  hasRoom: boolean;
  filesOnDisk: number;
  bytesOnDisk: bigint;
  filesAtPrimaryPlace: number;
  filesOnTheirWay: number;
  filesToRecall: number;
  bytesToRecall: bigint;
  filesWithoutPlace: number;
  volumes: number;
  mounts: number;
  volumesSuspended: number;
  user: string;
  quotaSize: bigint;
  quotaUsed: bigint;
  quotaUsedAfter: bigint;
  isEnough: boolean;
  price: { amount: string; currency: string } | null;
  prices: { library: string; files: number; bytes: bigint; amount: string; currency: string; note: string }[];
  end: EndRange | null;
  endUnknown: string | null;
}

const ESTIMATE = `query ($input: CreateRequestInput!) { plan { at } estimateRequest(input: $input) {
  ... on Estimate {
    files bytes filesUnknown unknownPaths hasRoom filesOnDisk bytesOnDisk filesAtPrimaryPlace filesOnTheirWay
    filesToRecall bytesToRecall filesWithoutPlace
    volumes mounts volumesSuspended user quotaSize quotaUsed quotaUsedAfter isEnough
    price { amount currency } prices { library files bytes amount currency note } end { earliest planned latest } endUnknown
  }
  ${FAILURE}
} }`;

/**
 * Prints what a request would take, and asks for nothing.
 * @param input the `CreateRequestInput` of GraphQL
 * @throws CommandError where the quota is too small for it
 */
export async function estimateRequest(url: string, input: RequestInput, options: OutputOptions): Promise<void> {
  type Answer = { plan: { at: string }; estimateRequest: Result<EstimateNode> };
  const { plan, estimateRequest } = await ask<Answer>(url, ESTIMATE, { input });
  const estimate = unwrapResult(estimateRequest);
  if (options.json) printJson(estimate);
  else {
    const folders = await findFolders(url, estimate.unknownPaths);
    for (const line of formatEstimate(plan.at, estimate, folders)) printLine(line);
    if (input.pattern && estimate.files === 0) printLine(describeNoMatch(input.pattern));
    printLine('nothing was asked for');
  }
  if (!estimate.isEnough) {
    throw new CommandError(
      `the quota of user "${estimate.user}" is too small: ${estimate.quotaUsedAfter} bytes would be used of ${estimate.quotaSize}`,
    );
  }
}

function formatUnknown({ unknownPaths, filesUnknown }: EstimateNode, folders: ReadonlySet<string>): string[] {
  const unknown = { paths: unknownPaths, count: filesUnknown, folders };
  const [first = '', ...named] = describeUnknown(
    `${plural(filesUnknown, 'path')} that the catalogue does not know`,
    unknown,
  );
  return [`unknown     ${first}`, ...named.map((line) => `          ${line}`)];
}

/** A line each. */
function formatEstimate(now: string, estimate: EstimateNode, folders: ReadonlySet<string>): string[] {
  const { user, quotaSize, quotaUsed, quotaUsedAfter, volumes } = estimate;
  const lines = [
    `files       ${estimate.files}, ${formatBytes(estimate.bytes)}`,
    `on disk     ${estimate.filesOnDisk}, ${formatBytes(estimate.bytesOnDisk)}${atPrimaryPlace(estimate.filesAtPrimaryPlace)}`,
    `from tape   ${estimate.filesToRecall}, ${formatBytes(estimate.bytesToRecall)}, on ${plural(volumes, 'volume')}; ${estimate.mounts} to be mounted`,
  ];
  if (estimate.filesOnTheirWay > 0) lines.push(`            ${estimate.filesOnTheirWay} of them are asked for already`);
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
function formatPrices({ prices, price }: EstimateNode): string[] {
  const lines = prices.map(({ library, amount, currency, files, bytes, note }) => {
    const what = `${plural(files, 'file')}, ${formatBytes(bytes)}`;
    return `${amount} ${currency} at ${library} for ${what}${note && `: ${note}`}`;
  });
  if (prices.length > 1) lines.push(price ? `${price.amount} ${price.currency} together` : 'in several currencies');
  return lines.map((line, n) => `${n === 0 ? 'cost' : '    '}        ${line}`);
}
