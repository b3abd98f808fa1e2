/** Requests are made. How they are changed is in update.ts, how they end in ends.ts, how they are read in lists.ts. */
import { ownerOf } from '../../caller.js';
import type { Context } from '../../context.js';
import { lockCatalogue } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { InvalidInputError } from '../../errors.js';
import { addSeconds, isBefore } from '../../time.js';
import { mayPath, rulesFor } from '../access/paths.js';
import { audited, type Note } from '../audit/audited.js';
import { checkPath, checkPattern, checkText, checkTime } from '../input.js';
import { allow } from '../policy.js';
import { charge, findQuota } from '../quotas/charges.js';
import { addCounts, checkCounts, countIn, countsOf } from '../quotas/counts.js';
import { asCounted } from '../quotas/recounts.js';
import { checkAsked, takeTurn } from '../turn.js';
import { addressOf, checkNotification } from './addresses.js';
import { endOverdue } from './ends.js';
import { holdListed, holdMatching, type Wish } from './first-files.js';
import { settleRequests } from './holds.js';
import { type LimitsInput, readLimits } from './limits.js';

/** The REST contract, 4.3: five days after the request is made. */
const DEFAULT_RETENTION_SECONDS = 5 * 24 * 3600;

export interface CreateRequestInput extends LimitsInput {
  /** User whose quota is charged. */
  quota: string;
  /** A plain, case-sensitive substring of logical paths. Exactly one of pattern and files is given. */
  pattern?: string | null | undefined;
  files?: readonly string[] | null | undefined;
  retention?: string | null | undefined;
  label?: string | null | undefined;
  /** An empty address means the quota's own. */
  notifyOnFirstFile?: string | null | undefined;
  notifyOnLastFile?: string | null | undefined;
}

/**
 * Makes a request and charges it for the files that the catalogue knows; the rest joins when it appears, as far as the
 * request's limits and its quota allow then.
 * @returns the id of the request
 * @throws InvalidInputError, UnknownUserError, QuotaExceededError, LimitReachedError; nothing is stored then
 */
export async function createRequest(ctx: Context, input: CreateRequestInput): Promise<number> {
  return await audited(ctx, { operation: 'createRequest', kind: 'REQUEST', object: '', given: input }, (note) =>
    asCounted(ctx, () => create(ctx, input, note)),
  );
}

async function create(ctx: Context, input: CreateRequestInput, note: Note): Promise<number> {
  const now = ctx.now();
  const checked = checkRequest(input, now);
  const { wish, user } = checked;
  allow(ctx, 'createRequest', user);
  checkWishSize(ctx, wish);
  await endOverdue(ctx, sql`r.quota_id = (SELECT q.id FROM quota q WHERE q."user" = ${user})`);
  return await takeTurn(ctx, 'catalogue', () => store(ctx, { ...checked, now }, note));
}

async function store(
  ctx: Context,
  { wish, label, retention, limits, user, addresses, now }: ReturnType<typeof checkRequest> & { now: string },
  note: Note,
): Promise<number> {
  return await transaction(ctx.db.pool, 'createRequest', async (tx) => {
    const quota = await findQuota(tx, user);
    const least = countsOf(wish, 0);
    checkCounts(ctx, user, addCounts(quota, least), least); // early, before anything is stored only to be taken back
    await lockCatalogue(tx, 'shared');
    checkAsked(ctx);
    const first = addressOf(ctx, quota, { field: 'notifyOnFirstFile', address: addresses.first });
    const last = addressOf(ctx, quota, { field: 'notifyOnLastFile', address: addresses.last });
    const rules = rulesFor(ctx);
    const [row] = await tx.query<{ id: number }>(
      sql`INSERT INTO request (quota_id, pattern, label, request_date, retention, notify_on_first_file,
            notify_on_last_file, max_files, max_bytes, made_by, ruled_by, ruled_groups)
          VALUES (${quota.id}, ${wish.pattern}, ${label}, ${now}, ${retention}, ${first}, ${last},
            ${limits.maxFiles}, ${limits.maxBytes}, ${ownerOf(ctx.caller)}, ${rules.ruledBy}, ${rules.ruledGroups}) RETURNING id`,
    );
    const id = (row as { id: number }).id;
    const made = { id, limits, isAllowed: mayPath(ctx, 'REQUEST') };
    const { bytes, unknown } = wish.files
      ? await holdListed(ctx, tx, { ...made, quota }, wish.files)
      : await holdMatching(ctx, tx, { ...made, pattern: wish.pattern, quota });
    const added = countsOf(wish, unknown);
    checkCounts(ctx, user, await countIn(tx, quota, added), added);
    await charge(tx, quota, bytes);
    await settleRequests(ctx, tx, [id]);
    await tx.query(note({ object: id }));
    return id;
  });
}

/** All of a new request that can be checked without looking at anything else. @throws InvalidInputError */
export function checkRequest(input: CreateRequestInput, now: string) {
  const wish = checkWish(input);
  const label = input.label ? checkText('label', input.label) : defaultLabel(wish);
  const retention = input.retention
    ? checkTime('retention', input.retention)
    : addSeconds(now, DEFAULT_RETENTION_SECONDS);
  if (!isBefore(now, retention)) {
    throw new InvalidInputError('retention', `must be in the future: ${retention} is not after ${now}`);
  }
  const limits = readLimits(input, { maxFiles: null, maxBytes: null });
  const user = checkText('quota', input.quota);
  const addresses = {
    first: checkNotification('notifyOnFirstFile', input.notifyOnFirstFile),
    last: checkNotification('notifyOnLastFile', input.notifyOnLastFile),
  };
  return { wish, label, retention, limits, user, addresses };
}

function checkWish(input: CreateRequestInput): Wish {
  const pattern = checkPattern('pattern', input.pattern ?? '');
  const files = [...new Set(input.files ?? [])];
  if (pattern !== '' && files.length > 0)
    throw new InvalidInputError('pattern', 'and files exclude each other: give one of them');
  if (pattern === '' && files.length === 0)
    throw new InvalidInputError('pattern', 'or files must be given, and neither is');
  for (const file of files) checkPath('files', file);
  return files.length > 0 ? { pattern: '', files } : { pattern, files: undefined };
}

/** What the site allows. @throws InvalidInputError */
function checkWishSize({ config }: Context, { pattern, files = [] }: Wish): void {
  const { requestPaths, patternLength } = config.limits;
  if (files.length > requestPaths) {
    throw new InvalidInputError('files', `must name at most ${requestPaths} paths, not ${files.length}`);
  }
  const { length } = [...pattern];
  if (pattern !== '' && length < patternLength) {
    throw new InvalidInputError('pattern', `must have at least ${patternLength} characters, not ${length}`);
  }
}

/** The REST contract, 2.2. */
function defaultLabel(wish: Wish): string {
  return wish.files?.[0] ?? wish.pattern;
}
