/** `quota set`, `quota list`, `quota show`, `quota remove`: users and their quotas. `quota history` is in a file of its own. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import { quote } from '../errors.js';
import type { RemovedQuota } from '../operations/quotas/quotas.js';
import { plural } from '../plural.js';
import { readSize } from './arguments.js';
import { ask, askNodes } from './client.js';
import { CommandError, UsageError } from './failure.js';
import { jsonOption, type OutputOptions, printFacts, printJson, printLine, printResult, printRows } from './output.js';
import { addQuotaHistory } from './quota-history.js';
import { changeAfar, operate, serialOf } from './where.js';

export function registerQuota(program: Command): void {
  const quota = program.command('quota');
  quota
    .command('set <user>')
    .description('make a quota, or change what is given of one')
    .option(...jsonOption)
    .option('--size <size>', 'bytes, such as 500000000, 500M or 10T; a new quota needs it')
    .option('--email <address>')
    .option('--notes <text>')
    .option('--weight <n>', 'part of the drives: who has 2 may have twice the drive time of who has 1')
    .action((user, options) => setQuota(user, options));
  quota
    .command('list')
    .description('all quotas')
    .option(...jsonOption)
    .action((options) => listQuotas(options));
  quota
    .command('show <user>')
    .description('one quota')
    .option(...jsonOption)
    .action((user, options) => showQuota(user, options));
  addQuotaHistory(quota);
  quota
    .command('remove <user>')
    .description('take away the quota of a user without live requests, and revoke its tokens')
    .option(...jsonOption)
    .action((user, options) => removeQuota(user, options));
}

interface QuotaOptions extends OutputOptions {
  size?: string;
  email?: string;
  notes?: string;
  weight?: string;
}

interface QuotaRow {
  id: number;
  user: string;
  size: bigint;
  used: bigint;
  email: string;
  notes: string;
  weight: number;
}

/** The same of GraphQL. */
type QuotaNode = Omit<QuotaRow, 'id'> & { id: string };

const FIELDS = 'id user size used email notes weight';

async function setQuota(user: string, options: QuotaOptions): Promise<void> {
  const size = options.size === undefined ? undefined : readSize('--size', options.size);
  const weight = options.weight === undefined ? undefined : readWeight(options.weight);
  if ([size, options.email, options.notes, weight].every((change) => change === undefined)) {
    throw new UsageError('give what is to be set: --size, --email, --notes or --weight');
  }
  const input = { user, size, email: options.email, notes: options.notes, weight };
  const quota = await operate({
    here: async (ctx) => {
      const quotas = await import('../operations/quotas/quotas.js');
      const { readUsed } = await import('../operations/quotas/quotas.js');
      const set = await quotas.setQuota(ctx, input);
      return { ...set, used: await readUsed(ctx, set) };
    },
    afar: async (url) => {
      const call = ['setQuota(input: SetQuotaInput!)', `Quota { ${FIELDS} }`] as const;
      return readNode(await changeAfar<QuotaNode>(url, call, { input: await checkCarried(input) }));
    },
  });
  printResult(presentQuota(quota), `quota of ${quota.user}: ${plural(quota.size, 'byte')}`, options);
}

/** What GraphQL would not carry, as a number that is none of JSON, is refused in the words of the operation. */
async function checkCarried<Input extends { size: bigint | undefined; weight: number | undefined }>(
  input: Input,
): Promise<Input> {
  const { checkWeight } = await import('../operations/quotas/quotas.js');
  const { checkBytes } = await import('../operations/input.js');
  if (input.size !== undefined) checkBytes('size', input.size);
  if (input.weight !== undefined) checkWeight(input.weight);
  return input;
}

/** Which ones there are, the operation says. */
function readWeight(text: string): number {
  const weight = Number(text);
  if (!Number.isNaN(weight)) return weight;
  throw new UsageError(`--weight must be a number, not ${JSON.stringify(text)}`);
}

async function listQuotas(options: OutputOptions): Promise<void> {
  const rows = await operate({
    here: async (ctx): Promise<QuotaRow[]> => {
      const quotas = await import('../operations/quotas/quotas.js');
      const { readUsedOf } = await import('../operations/quotas/quotas.js');
      const all = await quotas.listQuotas(ctx);
      const used = await readUsedOf(
        ctx,
        all.map((quota) => quota.id),
      );
      return all.map((quota) => ({ ...quota, used: used.get(quota.id) ?? 0n }));
    },
    afar: async (url) => (await askNodes<QuotaNode>(url, ['quotas', FIELDS])).map(readNode),
  });
  printRows(rows, options, {
    header: ['USER', 'SIZE', 'USED', 'WEIGHT', 'EMAIL', 'NOTES'],
    cells: (q) => [q.user, formatBytes(q.size), formatBytes(q.used), String(q.weight), q.email, q.notes],
    present: presentQuota,
  });
}

const QUOTA = `query ($user: String!) { quota(user: $user) { ${FIELDS} } }`;

async function showQuota(user: string, options: OutputOptions): Promise<void> {
  const quota = await operate({
    here: async (ctx): Promise<QuotaRow> => {
      const quotas = await import('../operations/quotas/quotas.js');
      const { readUsed } = await import('../operations/quotas/quotas.js');
      const found = await quotas.getQuota(ctx, user);
      return { ...found, used: await readUsed(ctx, found) };
    },
    afar: async (url) => {
      const { quota: found } = await ask<{ quota: QuotaNode | null }>(url, QUOTA, { user });
      if (!found) throw new CommandError(`there is no user ${quote(user)}`);
      return readNode(found);
    },
  });
  if (options.json) return printJson(presentQuota(quota));
  printFacts([
    ['USER', quota.user],
    ['SIZE', `${plural(quota.size, 'byte')} (${formatBytes(quota.size)})`],
    ['USED', `${plural(quota.used, 'byte')} (${formatBytes(quota.used)})`],
    ['WEIGHT', String(quota.weight)],
    ['EMAIL', quota.email],
    ['NOTES', quota.notes],
  ]);
}

async function removeQuota(user: string, options: OutputOptions): Promise<void> {
  const quota = await operate({
    here: async (ctx) => {
      const quotas = await import('../operations/quotas/quotas.js');
      return await quotas.removeQuota(ctx, user);
    },
    afar: (url) => {
      const made = 'RemovedQuota { user tokens memberOf ruledFolders }';
      return changeAfar<RemovedQuota>(url, ['removeQuota(user: String!)', made], { user });
    },
  });
  const { user: removed, tokens, memberOf, ruledFolders } = quota;
  if (options.json) return printJson({ user: removed, tokens, memberOf, ruledFolders });
  printLine(`the quota of ${removed} is removed; the requests that it had are history`);
  if (tokens > 0) printLine(`tokens that were revoked, or are not for ${removed} any more: ${tokens}`);
  if (memberOf.length > 0) printLine(`${removed} is no member any more of the quotas of: ${memberOf.join(', ')}`);
  if (ruledFolders.length > 0) {
    printLine(`rules still name ${removed}, whoever that is next, for: ${ruledFolders.join(', ')}`);
  }
}

function readNode(node: QuotaNode): QuotaRow {
  return { ...node, id: serialOf(node.id) };
}

function presentQuota({ id, user, size, used, email, notes, weight }: QuotaRow) {
  return { id, user, size, used, email, notes, weight };
}
