/** `quota history`: what was used of a quota, by the hour in which that changed. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import { quote } from '../errors.js';
import { parseZonedTime } from '../time.js';
import { readPast } from './arguments.js';
import { ask, askNow } from './client.js';
import { CommandError } from './failure.js';
import { jsonOption, type OutputOptions, printJson, printTable } from './output.js';
import { formatTime } from './times.js';
import { operate } from './where.js';

/** In the family of `quota`. */
export function addQuotaHistory(quota: Command): void {
  quota
    .command('history <user>')
    .description('what was used of a quota, each hour in which that changed, and now')
    .option(...jsonOption)
    .option('--since <date>', 'from this time on: a UTC date or time, or how long ago, such as 12h or 90d', '30d')
    .action((user, options) => showHistory(user, options));
}

interface HistoryOptions extends OutputOptions {
  since: string;
}

interface Point {
  at: string;
  used: bigint;
  size: bigint;
}

const HISTORY = `query ($user: String!, $since: DateTime!) { quota(user: $user) { history(since: $since) { at used size } } }`;

async function showHistory(user: string, options: HistoryOptions): Promise<void> {
  const points = await operate({
    here: async (ctx): Promise<Point[]> => {
      const since = await readPast('--since', options.since, async () => ctx.now());
      const { getQuota } = await import('../operations/quotas/quotas.js');
      const { readQuotaHistory } = await import('../operations/site/quota-history.js');
      const { id } = await getQuota(ctx, user);
      const found = await readQuotaHistory(ctx, [id], parseZonedTime(since) ?? since);
      return (found.get(id) ?? []).map((point) => ({ ...point, at: `${point.at}Z` }));
    },
    afar: async (url) => {
      const since = await readPast('--since', options.since, () => askNow(url));
      const { quota } = await ask<{ quota: { history: Point[] } | null }>(url, HISTORY, { user, since });
      if (!quota) throw new CommandError(`there is no user ${quote(user)}`);
      return quota.history;
    },
  });
  if (options.json) return points.forEach(printJson);
  printTable(
    ['AT', 'USED', 'SIZE', 'PART'],
    points.map(({ at, used, size }) => [formatTime(at), formatBytes(used), formatBytes(size), formatPart(used, size)]),
  );
}

const formatPart = (used: bigint, size: bigint): string =>
  size === 0n ? '-' : `${Math.round((Number(used) / Number(size)) * 100)}%`;
