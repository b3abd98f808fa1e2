/**
 * Which server a list is read from. Beside the table of policy.ts: what reads much and decides nothing may be read at a standby
 * (DATABASE_READ_URL), which shows all that was committed when it was asked for. What decides a change, or is a look-up by keys, is read
 * where changes are made; so is what follows events, which are numbered there.
 */
import type { Context } from '../context.js';
import type { Paced } from '../database/snapshot.js';
import { codeOf, UnavailableError, UserError } from '../errors.js';
import type { Changing } from './audit/audited.js';
import type { Operation } from './policy.js';

type Reading = Exclude<Operation, Changing>;

export const listServers = {
  listFiles: 'standby',
  listRequests: 'standby',
  listVolumes: 'standby',
  listVerifications: 'standby',
  listQuotasByPage: 'standby',
  listAudit: 'standby',
  readVolumeFiguresOf: 'standby',
  getFile: 'primary',
  getRequest: 'primary',
  getQuota: 'primary',
  listDrives: 'primary',
  listLibraries: 'primary',
  readSettings: 'primary',
  readStagingFigures: 'primary',
  readUsage: 'primary',
  listDisksByPage: 'primary',
  readHostsOf: 'primary',
  readDriveHosts: 'primary',
  listSuspensions: 'primary',
  listWaitingMail: 'primary',
  listPathRules: 'primary',
  listLegacyUses: 'primary',
  listTokens: 'primary',
  listWebhooks: 'primary',
  listWebhookMessages: 'primary',
  listFindings: 'primary',
  showCaller: 'primary',
  readMetrics: 'primary',
  readKept: 'primary',
  showPlan: 'primary',
  watchRequest: 'primary',
  watchStages: 'primary',
  watchEnd: 'primary',
  watchRequests: 'primary',
  watchSite: 'primary',
  readHistory: 'primary',
  listProcesses: 'primary',
  estimateRequest: 'primary',
} as const satisfies Record<Reading, 'standby' | 'primary'>;

type AtStandby = { [Each in Reading]: (typeof listServers)[Each] extends 'standby' ? Each : never }[Reading];

/**
 * Reads a list at a standby where there is one that may be asked, and else where changes are made. What fails at a standby is read a
 * second time, at the primary, unless pages went through `given` by then: who has had some of a list cannot be told all of it.
 * @param _operation in the table, which says that it may
 * @param work is given the context to read by. Whoever it gives pages to may be called twice, and has had none the first time
 */
export async function atListServer<T>(
  ctx: Context,
  _operation: AtStandby,
  work: (at: Context, given: <Page>(pages: Paced<Page>) => Paced<Page>) => Promise<T>,
): Promise<T> {
  const standby = await ctx.standbys?.choose();
  if (!standby) return await work(ctx, (pages) => pages);
  let hasBegun = false;
  const given = <Page>(pages: Paced<Page>): Paced<Page> => {
    const read = async function* read() {
      for await (const page of pages) {
        hasBegun = true;
        yield page;
      }
    };
    return { ...pages, [Symbol.asyncIterator]: read };
  };
  try {
    return await work({ ...ctx, db: standby.db }, given);
  } catch (error) {
    if (hasBegun || !isOfStandby(error)) throw error;
    return await work(ctx, (pages) => pages);
  }
}

const STATEMENT_TIMED_OUT = '57014';

/**
 * May the primary have an answer where a standby had none? It cancels what stands in the way of changes that it is to replay, ends, or
 * cannot be reached. What has taken its time would take it again; and who has its share of lists, or has gone, is no matter of servers.
 */
export function isOfStandby(error: unknown): boolean {
  if (error instanceof UserError) return false;
  if (!(error instanceof UnavailableError) || error.kind === 'away') return true;
  return error.cause !== undefined && codeOf(error.cause) !== STATEMENT_TIMED_OUT;
}
