/** `quota set`, `quota list`, `quota show`, `quota remove`: users and their quotas. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import type { Config } from '../config.js';
import type { getQuota } from '../operations/quotas/quotas.js';
import { readSize } from './arguments.js';
import { readEnvironment, withContext } from './context.js';
import { UsageError } from './failure.js';
import { jsonOption, type OutputOptions, printJson, printLine, printTable } from './output.js';

export function registerQuota(program: Command): void {
  const quota = program.command('quota').description('users and quotas');
  quota
    .command('set <user>')
    .description('make a quota, or change what is given of one')
    .option(...jsonOption)
    .option('--size <size>', 'bytes, such as 500000000, 500M or 10T; a new quota needs it')
    .option('--email <address>')
    .option('--notes <text>')
    .option('--weight <n>', 'part of the drives: who has 2 may have twice the drive time of who has 1')
    .action((user, options) => setQuota(readEnvironment(), user, options));
  quota
    .command('list')
    .description('all quotas')
    .option(...jsonOption)
    .action((options) => listQuotas(readEnvironment(), options));
  quota
    .command('show <user>')
    .description('one quota')
    .option(...jsonOption)
    .action((user, options) => showQuota(readEnvironment(), user, options));
  quota
    .command('remove <user>')
    .description('take away the quota of a user without live requests')
    .option(...jsonOption)
    .action((user, options) => removeQuota(readEnvironment(), user, options));
}

interface QuotaOptions extends OutputOptions {
  size?: string;
  email?: string;
  notes?: string;
  weight?: string;
}

async function setQuota(config: Config, user: string, options: QuotaOptions): Promise<void> {
  const size = options.size === undefined ? undefined : readSize('--size', options.size);
  const weight = options.weight === undefined ? undefined : readWeight(options.weight);
  if ([size, options.email, options.notes, weight].every((change) => change === undefined)) {
    throw new UsageError('give what is to be set: --size, --email, --notes or --weight');
  }
  const quotas = await import('../operations/quotas/quotas.js');
  const quota = await withContext(config, (ctx) =>
    quotas.setQuota(ctx, { user, size, email: options.email, notes: options.notes, weight }),
  );
  if (options.json) printJson(presentQuota(quota));
  else printLine(`quota of ${quota.user}: ${quota.size} bytes`);
}

/** Which ones there are, the operation says. */
function readWeight(text: string): number {
  const weight = Number(text);
  if (!Number.isNaN(weight)) return weight;
  throw new UsageError(`--weight must be a number, not ${JSON.stringify(text)}`);
}

async function listQuotas(config: Config, options: OutputOptions): Promise<void> {
  const quotas = await import('../operations/quotas/quotas.js');
  const { readUsedOf } = await import('../operations/quotas/used.js');
  const rows = await withContext(config, async (ctx) => {
    const all = await quotas.listQuotas(ctx);
    const ids = all.map((quota) => quota.id);
    const used = await readUsedOf(ctx, ids);
    return all.map((quota): QuotaRow => ({ ...quota, used: used.get(quota.id) ?? 0n }));
  });
  if (options.json) for (const quota of rows) printJson(presentQuota(quota));
  else {
    printTable(
      ['USER', 'SIZE', 'USED', 'WEIGHT', 'EMAIL', 'NOTES'],
      rows.map((q) => [q.user, formatBytes(q.size), formatBytes(q.used), String(q.weight), q.email, q.notes]),
    );
  }
}

async function showQuota(config: Config, user: string, options: OutputOptions): Promise<void> {
  const quotas = await import('../operations/quotas/quotas.js');
  const { readUsed } = await import('../operations/quotas/used.js');
  const quota = await withContext(config, async (ctx) => {
    const found = await quotas.getQuota(ctx, user);
    return { ...found, used: await readUsed(ctx, found) };
  });
  if (options.json) return printJson(presentQuota(quota));
  printTable(
    ['USER', quota.user],
    [
      ['SIZE', `${quota.size} bytes (${formatBytes(quota.size)})`],
      ['USED', `${quota.used} bytes (${formatBytes(quota.used)})`],
      ['WEIGHT', String(quota.weight)],
      ['EMAIL', quota.email],
      ['NOTES', quota.notes],
    ],
  );
}

async function removeQuota(config: Config, user: string, options: OutputOptions): Promise<void> {
  const quotas = await import('../operations/quotas/remove.js');
  const quota = await withContext(config, (ctx) => quotas.removeQuota(ctx, user));
  if (options.json) printJson({ user: quota.user });
  else printLine(`the quota of ${quota.user} is removed; the requests that it had are history`);
}

type QuotaRow = Awaited<ReturnType<typeof getQuota>>;

function presentQuota({ id, user, size, used, email, notes, weight }: QuotaRow) {
  return { id, user, size, used, email, notes, weight };
}
