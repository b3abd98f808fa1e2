/** Requests are made. How they are changed is in update.ts, how they end in ends.ts, how they are read in lists.ts. */
import type { Context } from '../../context.js';
import { lockCatalogue, triesCatalogue } from '../../database/locks.js';
import { plannedByKeys } from '../../database/planning.js';
import { prepared } from '../../database/prepared.js';
import { sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { InvalidInputError } from '../../errors.js';
import { addSeconds, isBefore } from '../../time.js';
import { audited, type Note } from '../audit/audited.js';
import { checkPath, checkPattern, checkText, checkTime } from '../input.js';
import { allow } from '../policy.js';
import { findQuota, type QuotaRow } from '../quotas/charges.js';
import { addCounts, checkCounts, countsOf } from '../quotas/counts.js';
import { checkAsked, takeTurn } from '../turn.js';
import { addressOf, checkNotification } from './addresses.js';
import { type BulkPart, storeFitting } from './bulk-files.js';
import { endOverdue, hasOverdue, isAnyOverdue } from './ends.js';
import { type NewRequest, storeListed, storeMatching, type Wish } from './first-files.js';
import { settleRequests } from './holds.js';
import { noteStep } from './life.js';
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
  const { id } = await makeRequest(ctx, input, undefined);
  if (id === undefined) throw new Error('no request was made');
  return id;
}

/**
 * The same of a part of a bulk: what the catalogue does not know, or the quota has no room for, is left out, noted with its problem, and never
 * joins later.
 * @returns the id of the request; undefined where it would have no file, and none is made
 * @throws InvalidInputError, UnknownUserError, LimitReachedError; nothing is stored then
 */
export async function createRequestOfBulk(
  ctx: Context,
  input: CreateRequestInput & { files: readonly string[] },
  bulk: BulkPart,
): Promise<number | undefined> {
  return (await makeRequest(ctx, input, bulk)).id;
}

interface Made {
  id: number | undefined;
}

async function makeRequest(ctx: Context, input: CreateRequestInput, bulk: BulkPart | undefined): Promise<Made> {
  return await audited(ctx, { operation: 'createRequest', kind: 'REQUEST', object: '', given: input }, (note) =>
    create(ctx, { ...input, bulk }, note),
  );
}

async function create(
  ctx: Context,
  { bulk, ...input }: CreateRequestInput & { bulk: BulkPart | undefined },
  note: Note,
): Promise<Made> {
  const now = ctx.now();
  const checked = { ...checkRequest(input, now), bulk };
  allow(ctx, 'createRequest', checked.user);
  checkWishSize(ctx, checked.wish);
  for (let endsOverdue = true; ; endsOverdue = false) {
    const made = await takeTurn(ctx, 'catalogue', () => store(ctx, { ...checked, now, endsOverdue }, note));
    if (made !== undefined) return made;
    await endOverdue(ctx, sql`r.quota_id = (SELECT q.id FROM quota q WHERE q."user" = ${checked.user})`);
  }
}

type Checked = ReturnType<typeof checkRequest> & { now: string; bulk: BulkPart | undefined };

/** @returns undefined where requests of the quota are to be ended first */
async function store(
  ctx: Context,
  { endsOverdue, ...checked }: Checked & { endsOverdue: boolean },
  note: Note,
): Promise<Made | undefined> {
  return await transaction(ctx.db.pool, 'createRequest', async (tx) => {
    const { user, now } = checked;
    const quota = await findQuota(tx, user, { isAnyOverdue: isAnyOverdue(now), isLocked: triesCatalogue });
    if (endsOverdue && quota.isAnyOverdue && (await hasOverdue(tx, quota.id, now))) return undefined;
    await beginNew(ctx, tx, quota, checked);
    const addresses = addressesOf(ctx, quota, checked);
    const request: NewRequest = { ...checked, ...addresses, quota };
    if (checked.wish.files) tx.send(plannedByKeys()); // a pattern is searched for by a plan of its own
    const { id, files } = await storeFiles(ctx, tx, request, checked.bulk);
    if (id === undefined) return { id };
    await settleRequests(ctx, tx, [id], {
      files,
      isNew: true,
      isTold: addresses.first !== null || addresses.last !== null,
    });
    tx.send(prepared(note({ object: id })));
    noteStep(ctx, tx, 'made', [id], { files });
    return { id };
  });
}

async function storeFiles(ctx: Context, tx: Transaction, request: NewRequest, bulk: BulkPart | undefined) {
  const { files, pattern } = request.wish;
  if (files === undefined) return await storeMatching(ctx, tx, request, pattern);
  return bulk ? await storeFitting(ctx, tx, request, bulk) : await storeListed(ctx, tx, request, files);
}

/** What can be refused by now is refused before anything is waited for, and before anything is stored only to be taken back. */
async function beginNew(
  ctx: Context,
  tx: Transaction,
  quota: QuotaRow & { isLocked: boolean },
  { user, wish }: Checked,
): Promise<void> {
  const least = countsOf(wish, 0);
  checkCounts(ctx, user, addCounts(quota, least), least);
  if (!quota.isLocked) await lockCatalogue(tx, 'shared');
  checkAsked(ctx);
}

function addressesOf(ctx: Context, quota: QuotaRow, { addresses }: Checked) {
  return {
    first: addressOf(ctx, quota, { field: 'notifyOnFirstFile', address: addresses.first }),
    last: addressOf(ctx, quota, { field: 'notifyOnLastFile', address: addresses.last }),
  };
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
