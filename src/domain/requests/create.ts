/**
 * Creates requests. Each transaction holds the catalogue lock (`lockCatalogue`), so that a new request also gets the
 * files of an import that runs at the same time.
 */

import { ownerOf } from '../../core/caller.js';
import { InvalidInputError, quote, UnknownUserError } from '../../core/errors.js';
import { addSeconds, isBefore } from '../../core/time.js';
import { lockCatalogue, lockQuotas, triesCatalogue } from '../../db/locks.js';
import { plannedByKeys } from '../../db/planning.js';
import { prepared } from '../../db/prepared.js';
import { type Sql, sql } from '../../db/sql.js';
import type { Transaction } from '../../db/transaction.js';
import { firstListed, mayPath, rulesFor } from '../access/paths.js';
import { type AuditEntry, audited } from '../audit/audited.js';
import { isOffered } from '../conditions.js';
import type { Context } from '../context.js';
import {
  claimKey,
  findFirstRequest,
  type IdempotencyKey,
  readIdempotencyKey,
  setRequest,
} from '../idempotency-keys.js';
import { checkAddress, checkPath, checkPattern, checkText, checkTime, withoutEmpty } from '../input.js';
import { holdsText } from '../match.js';
import { allow } from '../policy.js';
import {
  addUnknownPaths,
  charge,
  checkLimit,
  checkPatterns,
  checkRoom,
  findQuota,
  type QuotaRow,
} from '../quotas/charges.js';
import { checkConnected, transactionInTurn } from '../turn.js';
import { endOverdue, hasOverdue, isAnyOverdue } from './ends.js';
import { checkWithin, type Limits, type LimitsInput, readLimits } from './limits.js';
import { logStep } from './progress.js';
import { settleRequests } from './request-files.js';

/** Default retention in seconds: five days (REST contract, section 4.3). */
const DEFAULT_RETENTION_SECONDS = 5 * 24 * 3600;

export interface CreateRequestInput extends LimitsInput {
  quota: string;
  /**
   * Text that the logical paths of the requested files must contain. The text is case-sensitive, and has no wildcards.
   * The input must contain either a pattern or a list of files.
   */
  pattern?: string | null | undefined;
  files?: readonly string[] | null | undefined;
  retention?: string | null | undefined;
  label?: string | null | undefined;
  /** Address for the first-file email. An empty string means the quota's address. */
  notifyOnFirstFile?: string | null | undefined;
  notifyOnLastFile?: string | null | undefined;
  /** Key with which the caller can safely repeat the call (src/domain/idempotency-keys.ts). */
  idempotencyKey?: string | null | undefined;
}

/**
 * Creates a request, and charges its quota for the files that are in the catalogue. Files that are later added to the
 * catalogue are added to the request if its limits and the quota allow it. If the caller repeats a call with the same
 * idempotency key, returns the request that the first call created, and changes nothing.
 * @returns the request's id
 * @throws InvalidInputError, UnknownUserError, QuotaExceededError, LimitReachedError; after an error, nothing is
 *   stored
 */
export async function createRequest(ctx: Context, input: CreateRequestInput): Promise<number> {
  const { id } = await createAudited(ctx, input, undefined);
  if (id === undefined) throw new Error('no request was created');
  return id;
}

/**
 * Creates a request for one part of a stage request. If a file cannot be staged, records the reason.
 * @returns the request's id; undefined if no file can be staged
 * @throws InvalidInputError, UnknownUserError, LimitReachedError; after an error, nothing is stored
 */
export async function createForStageRequest(
  ctx: Context,
  input: CreateRequestInput & { files: readonly string[] },
  stageRequest: StageRequestPart,
): Promise<number | undefined> {
  return (await createAudited(ctx, input, stageRequest)).id;
}

interface Created {
  id: number | undefined;
  restored: number;
}

const isOnDiskFor = (requestId: number | undefined) =>
  sql`f.id IN (SELECT h.file_id FROM request_file h WHERE h.request_id = ${requestId ?? null}::int AND h.state = 'ON_DISK')`;

async function createAudited(
  ctx: Context,
  input: CreateRequestInput,
  stageRequest: StageRequestPart | undefined,
): Promise<Created> {
  const action = { operation: 'createRequest', kind: 'REQUEST', object: '', given: input } as const;
  return await audited(ctx, action, async (auditEntry) => {
    const now = ctx.now();
    const key = readKeyInput(ctx, input);
    // look up the key before other checks, because the same input might no longer be valid, for example its retention
    const first = key && (await findFirstRequest((statement) => ctx.db.rows(statement), key));
    if (first !== undefined) return { id: first, restored: 0 };
    const checked = { ...checkRequest(ctx, input, now), now, stageRequest, key };
    allow(ctx, 'createRequest', checked.user);
    let created = await store(ctx, checked, auditEntry, { checksOverdue: true });
    if (!created) {
      await endOverdue(ctx, sql`r.quota_id = (SELECT q.id FROM quota q WHERE q."user" = ${checked.user})`);
      created = (await store(ctx, checked, auditEntry, { checksOverdue: false })) as Created;
    }
    if (created.restored > 0) await ctx.recordMissing(ctx, isOnDiskFor(created.id));
    return created;
  });
}

/** @throws InvalidInputError; ForbiddenError if the caller may not create requests for the quota (any more) */
function readKeyInput(ctx: Context, input: CreateRequestInput): IdempotencyKey | undefined {
  const { idempotencyKey: key, retention, label, maxFiles = null, maxBytes, pattern, files } = input;
  if (key == null) return undefined;
  const user = checkText('quota', input.quota);
  allow(ctx, 'createRequest', user);
  const selection = [pattern ?? '', withoutEmpty(files)];
  const limits = [maxFiles, maxBytes == null ? null : String(maxBytes)];
  const addresses = [input.notifyOnFirstFile ?? null, input.notifyOnLastFile ?? null];
  const until = retention ? checkTime('retention', retention) : null;
  return readIdempotencyKey(ctx, { key, user, given: [user, until, label || null, selection, limits, addresses] });
}

interface Checked extends ReturnType<typeof checkRequest> {
  now: string;
  stageRequest: StageRequestPart | undefined;
  key: IdempotencyKey | undefined;
}

/**
 * Stores a checked request.
 * @returns undefined if nothing was stored, because the caller must first end the quota's overdue requests
 */
async function store(
  ctx: Context,
  checked: Checked,
  auditEntry: AuditEntry,
  { checksOverdue }: { checksOverdue: boolean },
): Promise<Created | undefined> {
  return await transactionInTurn(ctx, { waitsFor: 'catalogue', name: 'createRequest' }, async (tx) => {
    const { user, now, key } = checked;
    const quota = await findQuota(tx, user, { isAnyOverdue: isAnyOverdue(now), isLocked: triesCatalogue });
    if (checksOverdue && quota.isAnyOverdue && (await hasOverdue(tx, quota.id, now))) return undefined;
    if (!quota.isLocked) await lockCatalogue(tx, 'shared');
    // claim the key before anything is charged, because the quota might have room for only one of two equal requests
    const first = key && (await claimKey(tx, key, now));
    if (first !== undefined) return { id: first, restored: 0 };
    checkConnected(ctx);
    const addresses = addressesOf(ctx, quota, checked);
    const request: NewRequest = { ...checked, ...addresses, quota };
    // force PostgreSQL to look up listed paths by key; for a pattern, let PostgreSQL choose the query plan
    if (checked.selection.files) tx.send(plannedByKeys());
    const { id, files, restored } = await storeFiles(ctx, tx, request, checked.stageRequest);
    if (id === undefined) return { id, restored };
    await settleRequests(ctx, tx, [id], {
      isNew: true,
      queuesMail: addresses.first !== null || addresses.last !== null,
    });
    if (key) setRequest(tx, key, id);
    tx.send(prepared(auditEntry({ object: id })));
    logStep(ctx, tx, 'made', [id], { files });
    return { id, restored };
  });
}

async function storeFiles(
  ctx: Context,
  tx: Transaction,
  request: NewRequest,
  stageRequest: StageRequestPart | undefined,
) {
  const { files, pattern } = request.selection;
  if (files === undefined) return await storeMatching(ctx, tx, request, pattern);
  return stageRequest ? await storeFitting(ctx, tx, request, stageRequest) : await storeListed(ctx, tx, request, files);
}

function addressesOf(ctx: Context, quota: QuotaRow, { addresses }: Checked) {
  return {
    first: addressOf(ctx, quota, { field: 'notifyOnFirstFile', address: addresses.first }),
    last: addressOf(ctx, quota, { field: 'notifyOnLastFile', address: addresses.last }),
  };
}

/**
 * Checks the parts of a new request that can be checked without the database.
 * @throws InvalidInputError
 */
export function checkRequest(ctx: Context, input: CreateRequestInput, now: string) {
  const selection = checkSelection(ctx, input);
  const label = input.label ? checkText('label', input.label) : defaultLabel(selection);
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
  return { selection, label, retention, limits, user, addresses };
}

function checkSelection(ctx: Context, input: CreateRequestInput): FileSelection {
  const pattern = checkPattern('pattern', input.pattern ?? '');
  const files = withoutEmpty(input.files);
  if (pattern !== '' && files.length > 0)
    throw new InvalidInputError('pattern', 'and files cannot be combined: give only one');
  if (pattern === '' && files.length === 0) throw new InvalidInputError('pattern', 'or files must be given');
  checkSelectionSize(ctx, pattern, files);
  for (const file of files) checkPath('files', file);
  return files.length > 0 ? { pattern: '', files } : { pattern, files: undefined };
}

function checkSelectionSize({ config }: Context, pattern: string, files: readonly string[]): void {
  const { requestPaths, patternLength } = config.limits;
  if (files.length > requestPaths) {
    throw new InvalidInputError('files', `must name at most ${requestPaths} paths, not ${files.length}`);
  }
  const { length } = [...pattern];
  if (pattern !== '' && length < patternLength) {
    throw new InvalidInputError('pattern', `must have at least ${patternLength} characters, not ${length}`);
  }
}

/** Returns the default label of a request: its first path or its pattern (REST contract, section 2.2). */
function defaultLabel(selection: FileSelection): string {
  return selection.files?.[0] ?? selection.pattern;
}

/**
 * Checks an email address from the input. Null means no email, and an empty string means the quota's address.
 * @throws InvalidInputError
 */
export function checkNotification(field: string, address: string | null | undefined): string | null | undefined {
  return address ? checkAddress(field, address) : address;
}

/**
 * Returns the email address to store, or null for no email.
 * @throws InvalidInputError if the site does not send email to this address
 */
export function addressOf(
  { config }: Context,
  quota: { email: string },
  { field, address }: { field: string; address: string | null | undefined },
): string | null {
  if (!address) return address === '' ? quota.email || null : null;
  const { mailTo } = config.limits;
  const domain = address.slice(address.lastIndexOf('@') + 1).toLowerCase();
  const isOwn = quota.email !== '' && address.toLowerCase() === quota.email.toLowerCase();
  if (isOwn || mailTo === 'anywhere' || (mailTo !== 'quota' && mailTo.includes(domain))) return address;
  const allowed = mailTo === 'quota' ? '' : `, or be in one of the domains ${mailTo.join(', ')}`;
  throw new InvalidInputError(field, `must be the quota's own address${allowed}, not ${quote(address)}`);
}

interface Stored {
  id: number;
  files: number;
  restored: number;
}

const restoredCount = sql`count(*) FILTER (WHERE stage = 'RESTORED')::int AS restored`;

interface StoredRow extends Stored {
  bytes: string;
}

/** A pattern, or a list of distinct paths. */
export interface FileSelection {
  pattern: string;
  files: readonly string[] | undefined;
}

interface NewRequest {
  selection: FileSelection;
  label: string;
  now: string;
  retention: string;
  limits: Limits;
  user: string;
  quota: QuotaRow;
  /** Addresses for the first-file email and the last-file email. Null means no email. */
  first: string | null;
  last: string | null;
}

function insertRequest(
  ctx: Context,
  { selection, label, now, retention, first, last, limits, quota }: NewRequest,
  condition?: Sql,
): Sql {
  const rules = rulesFor(ctx);
  const values = sql`${quota.id}::int, ${selection.pattern}::text, ${label}::text, ${now}::timestamp, ${retention}::timestamp, ${first}::text, ${last}::text,
      ${limits.maxFiles}::int, ${limits.maxBytes}::bigint, ${ownerOf(ctx.caller)}::text, ${rules.ruledBy}::text, ${rules.ruledGroups}::text[],
      ${ctx.traceparent ?? null}::text`;
  return sql`INSERT INTO request (quota_id, pattern, label, request_date, retention, notify_on_first_file,
      notify_on_last_file, max_files, max_bytes, made_by, ruled_by, ruled_groups, trace_parent)
    ${condition ? sql`SELECT ${values} WHERE ${condition}` : sql`VALUES (${values})`} RETURNING id`;
}

/**
 * Stores a request that lists its files. Known paths become request files; unknown paths become unresolved paths.
 * @throws InvalidInputError, LimitReachedError, QuotaExceededError
 */
async function storeListed(
  ctx: Context,
  tx: Transaction,
  request: NewRequest,
  files: readonly string[],
): Promise<Stored> {
  const { quota, user } = request;
  const [row] = await tx.query<StoredRow & { unknown: number; unresolvedPaths: number | null }>(
    prepared(
      // use one statement, so that each path becomes either a request file or an unresolved path
      sql`WITH made AS (${insertRequest(ctx, request)}
       ), listed AS MATERIALIZED (
         SELECT l.path, l.n, f.id, f.size, f.stage FROM unnest(${files}::text[]) WITH ORDINALITY AS l (path, n)
           LEFT JOIN tape_file f ON f.path = l.path AND ${isOffered} AND ${mayPath(ctx, 'REQUEST')}
       ), added AS (
         INSERT INTO request_file (request_id, file_id, ordinal, size) SELECT m.id, l.id, l.n, l.size FROM listed l, made m WHERE l.id IS NOT NULL
       ), recorded AS (
         INSERT INTO unresolved_path (request_id, path, ordinal) SELECT m.id, l.path, l.n FROM listed l, made m WHERE l.id IS NULL
       ), taken AS MATERIALIZED (
         SELECT count(id)::int AS files, coalesce(sum(size), 0) AS bytes, (count(*) - count(id))::int AS unknown, ${restoredCount} FROM listed
       ), charged AS (
         UPDATE quota q SET unresolved_paths = q.unresolved_paths + t.unknown, used = q.used + t.bytes
         FROM taken t WHERE q.id = ${quota.id} AND q.removed_at IS NULL AND (q.used + t.bytes <= q.size OR t.bytes = 0)
         RETURNING q.unresolved_paths AS "unresolvedPaths"
       )
       SELECT m.id, t.*, c.* FROM made m CROSS JOIN taken t LEFT JOIN charged c ON true`,
    ),
  );
  if (!row) throw new Error('nothing was stored');
  const { id, unknown, restored } = row;
  const taken = { files: row.files, bytes: BigInt(row.bytes) };
  checkWithin(ctx, request.limits, taken);
  const total = row.unresolvedPaths ?? (await addUnknownPaths(tx, quota, unknown));
  checkLimit(ctx, user, 'unresolvedPaths', { total, added: unknown });
  if (row.unresolvedPaths === null) await charge(tx, quota, taken.bytes);
  return { id, files: taken.files, restored };
}

/**
 * Stores a request for the files whose path contains the pattern.
 * @throws InvalidInputError, LimitReachedError, QuotaExceededError
 */
async function storeMatching(ctx: Context, tx: Transaction, request: NewRequest, pattern: string): Promise<Stored> {
  const which = sql`${holdsText(pattern)} AND ${isOffered} AND ${mayPath(ctx, 'REQUEST')}`;
  const [row] = await tx.query<{ id: number }>(insertRequest(ctx, request));
  const { id } = row as { id: number };
  await checkPatterns(ctx, tx, request.quota);
  const [sum] = await tx.query<{ files: number; bytes: string; restored: number }>(
    sql`SELECT count(*)::int AS files, coalesce(sum(size), 0) AS bytes, ${restoredCount} FROM tape_file f WHERE ${which}`,
  );
  const bytes = BigInt(sum?.bytes ?? 0);
  checkWithin(ctx, request.limits, { files: sum?.files ?? 0, bytes });
  await checkRoom(tx, request.quota, bytes);
  const [added] = await tx.query<{ bytes: string }>(
    sql`WITH added AS (
       INSERT INTO request_file (request_id, file_id, ordinal, size)
       SELECT ${id}, id, row_number() OVER (ORDER BY path), size FROM tape_file f WHERE ${which}
       RETURNING size
     ) SELECT coalesce(sum(size), 0) AS bytes FROM added`,
  );
  await addUnknownPaths(tx, request.quota, 0);
  // check the user's number of requests with a pattern again, because the quota was not locked during the first check
  await checkPatterns(ctx, tx, request.quota);
  await charge(tx, request.quota, BigInt(added?.bytes ?? 0));
  return { id, files: sum?.files ?? 0, restored: sum?.restored ?? 0 };
}

/**
 * The paths in a stage request that become one ordinary request. Each path in the stage request belongs to exactly one
 * such part.
 */
interface StageRequestPart {
  id: string;
  files: readonly StageRequestFileInput[];
}

export interface StageRequestFileInput {
  path: string;
  /** The path exactly as the client sent it. */
  given: string;
  ordinal: number;
}

/**
 * Stores a request with the listed files that fit into the quota. Considers the files in list order. If a file does not
 * fit, continues with the next file, because later files might be smaller.
 * @returns no id if no file fits
 * @throws InvalidInputError, LimitReachedError, UnknownUserError
 */
async function storeFitting(
  ctx: Context,
  tx: Transaction,
  request: NewRequest,
  stageRequest: StageRequestPart,
): Promise<Omit<Stored, 'id'> & Created> {
  const { quota } = request;
  await lockQuotas(tx, sql`q.id = ${quota.id}`);
  const [row] = await tx.query<StoredRow>(
    // use one statement, so that each file is either requested or recorded with its problem
    sql`WITH room AS MATERIALIZED (
       SELECT greatest(q.size - q.used, 0) AS bytes FROM quota q WHERE q.id = ${quota.id} AND q.removed_at IS NULL
     ), listed AS MATERIALIZED (
       SELECT l.path, l.given, l.n, f.id, f.size, f.stage, ${problemOf(ctx)} AS problem
       FROM (${stageRequestRows(stageRequest.files)}) l LEFT JOIN tape_file f ON f.path = l.path AND ${isOffered} AND ${mayPath(ctx, 'REQUEST')}
     ), summed AS MATERIALIZED (
       SELECT l.*, sum(l.size) FILTER (WHERE l.problem IS NULL) OVER (ORDER BY l.n) AS total FROM listed l
     ), judged AS MATERIALIZED (
       SELECT s.*, coalesce(s.problem, CASE WHEN s.size > 0 AND s.total > (SELECT bytes FROM room) THEN 'QUOTA_FULL'::"StageRequestProblem" END) AS reason
       FROM summed s
     ), made AS (${insertRequest(ctx, request, sql`EXISTS (SELECT FROM judged WHERE reason IS NULL) AND EXISTS (SELECT FROM room)`)}
     ), added AS (
       INSERT INTO request_file (request_id, file_id, ordinal, size) SELECT m.id, j.id, j.n, j.size FROM judged j, made m WHERE j.reason IS NULL
     ), recorded AS (
       INSERT INTO stage_request_file (stage_request_id, path, given, ordinal, request_id, file_id, problem)
       SELECT ${stageRequest.id}::uuid, j.path, j.given, j.n, CASE WHEN j.reason IS NULL THEN m.id END, j.id, j.reason FROM judged j LEFT JOIN made m ON true
     ), taken AS MATERIALIZED (
       SELECT count(*)::int AS files, coalesce(sum(size), 0) AS bytes, ${restoredCount} FROM judged WHERE reason IS NULL
     ), charged AS (
       UPDATE quota q SET used = q.used + t.bytes FROM taken t, made m WHERE q.id = ${quota.id}
     )
     SELECT m.id, t.* FROM room LEFT JOIN made m ON true CROSS JOIN taken t`,
  );
  if (!row) throw new UnknownUserError(quota.user);
  if (row.id === null) return { id: undefined, files: 0, restored: 0 };
  const { id, files, restored } = row;
  checkWithin(ctx, request.limits, { files, bytes: BigInt(row.bytes) });
  return { id, files, restored };
}

export function stageRequestRows(files: readonly StageRequestFileInput[]): Sql {
  const paths = files.map(({ path }) => path);
  const given = files.map((file) => file.given);
  const ordinals = files.map(({ ordinal }) => ordinal);
  return sql`SELECT * FROM unnest(${paths}::text[], ${given}::text[], ${ordinals}::int[]) AS l (path, given, n)`;
}

/**
 * SQL expression for the reason why a listed path (`l`) cannot be staged. The reason is QUOTA_FULL if the file (`f`)
 * alone is larger than the quota's free room.
 */
const problemOf = (ctx: Context) => sql`CASE
  WHEN f.id IS NULL THEN CASE WHEN ${isDirectory(ctx)} THEN 'DIRECTORY'::"StageRequestProblem" ELSE 'UNKNOWN' END
  WHEN f.stage IN ('UNVERIFIED', 'ONDISK') THEN 'ELSEWHERE'
  WHEN f.size > (SELECT bytes FROM room) THEN 'QUOTA_FULL' END`;

/** SQL condition that is true if the caller is allowed to list files below a path (`l`). */
export const isDirectory = (ctx: Context) =>
  sql`(${firstListed(ctx, { from: sql`l.path || '/'`, before: sql`l.path || '0'` })}) IS NOT NULL`;
