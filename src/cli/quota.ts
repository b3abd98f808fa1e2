/** Commands that manage quotas and remove users' personal data. */
import type { Command } from 'commander';
import { describeNoQuota } from '../core/errors.js';
import { formatBytes } from '../core/text/bytes.js';
import { plural } from '../core/text/plural.js';
import {
  PurgeUserDocument,
  QuotaDocument,
  QuotaHistoryDocument,
  QuotasDocument,
  RemoveQuotaDocument,
  SetQuotaDocument,
} from '../generated/operations.js';
import { ask, askChange, askNodes, askNow } from './connection/gateway-client.js';
import { findOperatedSite, withSerial } from './connection/where.js';
import { readPast, toSize } from './terminal/arguments.js';
import { CommandError, UsageError } from './terminal/failure.js';
import {
  type OutputOptions,
  printFacts,
  printJson,
  printLine,
  printResult,
  printRows,
  printTable,
} from './terminal/output.js';
import { formatTime } from './terminal/times.js';

export function register(program: Command): void {
  const quota = program.command('quota');
  quota
    .command('set <user>')
    .description('Create or change a quota')
    .option('--size <size>', 'size in bytes, for example 500M or 10T; required for a new quota', toSize('--size'))
    .option('--email <address>', "send email about the quota's requests to this address")
    .option('--notes <text>', 'notes for operators')
    .option(
      '--weight <n>',
      'share of drive time: a quota with weight 2 may use twice as much drive time as a quota with weight 1',
      toWeight,
    )
    .action((user, options) => setQuota(user, options));
  quota
    .command('list')
    .description('List all quotas')
    .action((options) => listQuotas(options));
  quota
    .command('show <user>')
    .description('Show a quota')
    .action((user, options) => showQuota(user, options));
  quota
    .command('history <user>')
    .description("Show a quota's usage now, and after each hour in which it changed")
    .option('--since <date>', 'show usage since a UTC date or time, or for a recent period such as 12h or 90d', '30d')
    .action((user, options) => showHistory(user, options));
  quota
    .command('remove <user>')
    .description('Remove a quota that has no active requests, and revoke its tokens')
    .action((user, options) => removeQuota(user, options));
  program
    .command('user')
    .command('purge <name>')
    .description("Permanently replace a user's name and addresses with a pseudonym")
    .action((name, options) => purgeUser(name, options));
}

interface QuotaOptions extends OutputOptions {
  size?: bigint;
  email?: string;
  notes?: string;
  weight?: number;
}

async function setQuota(user: string, options: QuotaOptions): Promise<void> {
  const { size, email, notes, weight } = options;
  if ([size, email, notes, weight].every((change) => change === undefined)) {
    throw new UsageError('nothing to set: give --size, --email, --notes or --weight');
  }
  const input = { user, size, email, notes, weight };
  const quota = await askChange(findOperatedSite(), SetQuotaDocument, { input });
  printResult(withSerial(quota), `quota of ${quota.user}: ${formatBytes(quota.size)}`, options);
}

function toWeight(text: string): number {
  const weight = Number(text);
  if (Number.isFinite(weight)) return weight;
  throw new UsageError(`--weight must be a number, not ${JSON.stringify(text)}`);
}

async function listQuotas(options: OutputOptions): Promise<void> {
  printRows(await askNodes(findOperatedSite(), QuotasDocument, {}), options, {
    header: ['USER', 'SIZE', 'USED', 'WEIGHT', 'EMAIL', 'NOTES'],
    cells: (q) => [q.user, formatBytes(q.size), formatBytes(q.used), q.weight, q.email, q.notes],
    present: withSerial,
  });
}

async function showQuota(user: string, options: OutputOptions): Promise<void> {
  const quota = requireQuota(user, (await ask(findOperatedSite(), QuotaDocument, { user })).quota);
  if (options.json) return printJson(withSerial(quota));
  printFacts([
    ['USER', quota.user],
    ['SIZE', formatExact(quota.size)],
    ['USED', formatExact(quota.used)],
    ['FREE', formatExact(quota.size > quota.used ? quota.size - quota.used : 0n)],
    ['WEIGHT', String(quota.weight)],
    ['EMAIL', quota.email ?? ''],
    ['NOTES', quota.notes ?? ''],
  ]);
}

function formatExact(bytes: bigint): string {
  const exact = plural(bytes, 'byte');
  const rounded = formatBytes(bytes);
  return exact === rounded ? exact : `${exact} (${rounded})`;
}

async function removeQuota(user: string, options: OutputOptions): Promise<void> {
  const quota = await askChange(findOperatedSite(), RemoveQuotaDocument, { user });
  if (options.json) return printJson(quota);
  const { user: removed, tokenCount: tokens, memberOf, rulePrefixes } = quota;
  printLine(`quota ${removed} is removed; its ended requests are still listed`);
  if (tokens > 0) printLine(`${plural(tokens, 'token')} revoked, or no longer valid for quota ${removed}`);
  if (memberOf.length > 0) printLine(`${removed} is no longer a member of these quotas: ${memberOf.join(', ')}`);
  if (rulePrefixes.length > 0) {
    printLine(
      `the access rules of ${rulePrefixes.join(', ')} still name ${removed}, and will apply to any new user with this name`,
    );
  }
}

function requireQuota<Found>(user: string, quota: Found | null): Found {
  if (quota) return quota;
  throw new CommandError(describeNoQuota(user));
}

async function showHistory(user: string, options: OutputOptions & { since: string }): Promise<void> {
  const site = findOperatedSite();
  const since = await readPast('--since', options.since, () => askNow(site));
  const { history: points } = requireQuota(user, (await ask(site, QuotaHistoryDocument, { user, since })).quota);
  if (options.json) return points.forEach(printJson);
  printTable(
    ['AT', 'USED', 'SIZE', 'USAGE'],
    points.map(({ at, used, size }) => [formatTime(at), formatBytes(used), formatBytes(size), formatUsage(used, size)]),
  );
}

const formatUsage = (used: bigint, size: bigint): string =>
  size === 0n ? '-' : `${Math.round((Number(used) / Number(size)) * 100)}%`;

async function purgeUser(user: string, options: OutputOptions): Promise<void> {
  const result = await askChange(findOperatedSite(), PurgeUserDocument, { user });
  if (options.json) return printJson(result);
  const {
    pseudonym,
    requestCount: requests,
    emailCount: emails,
    tokenCount: tokens,
    auditEntryCount: auditRows,
  } = result;
  printLine(
    `the user's name was replaced with ${pseudonym} in ${plural(requests, 'request')}, ${plural(emails, 'email')}, ${plural(tokens, 'token')} and ${plural(auditRows, 'audit entry', 'audit entries')}`,
  );
  printLine('logs, backups and sent emails may still contain the name: see docs/operators/personal-data.md');
}
