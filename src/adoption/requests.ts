/** Adopts new and changed requests, and ends requests that were deleted in the source. */
import type { PoolClient } from 'pg';
import { messageOf, UserError } from '../core/errors.js';
import { addSeconds } from '../core/time.js';
import { sql } from '../db/sql.js';
import type { Context } from '../domain/context.js';
import { checkAddress, checkPattern, checkText, findPathProblem, MAX_TEXT } from '../domain/input.js';
import { type AdoptedRequest, adoptRequest, recordSentEmails } from '../domain/requests/adopted-requests.js';
import { cancelRequest } from '../domain/requests/ends.js';
import { updateRequest } from '../domain/requests/update.js';
import { type Adopting, adoptedRow, digestOf, readPages } from './report.js';
import { goBeyondIds, readSourceTime, reportRefusedIds, requestIdOf } from './tables.js';

interface SourceRequest {
  id: string;
  label: string | null;
  user: string | null;
  retention: string | null;
  requestDate: string | null;
  start: string | null;
  end: string | null;
  firstFiles: string | null;
  lastFiles: string | null;
  files: string | null;
  pattern: string | null;
  first: string | null;
  last: string | null;
  state: string | null;
  digest: string | null;
}

const PAGE = 1000;

/**
 * Name of the django-nla_control user that creates requests in order to verify new files. An adoption skips these
 * requests, because Tapegate verifies new files without requests.
 */
const CHECKING_USER = '_VERIFY';

const DEFAULT_RETENTION_SECONDS = 5 * 24 * 3600;

export async function adoptRequests(ctx: Context, client: PoolClient, adopting: Adopting): Promise<void> {
  await reportRefusedIds(client, adopting);
  for await (const row of readSource(client)) {
    const request = await readRequest(client, row, adopting);
    if (request) await adoptOne(ctx, { row, request }, adopting);
  }
  if (!adopting.isTrial) await goBeyondIds(client);
}

/**
 * Cancels live adopted requests that were deleted in the source. Stores an empty digest for each cancelled request, so
 * that a later adoption can activate the request again.
 */
export async function endGone(ctx: Context, client: PoolClient, { isTrial, report, counts }: Adopting): Promise<void> {
  const { rows } = await client.query<{ id: number; label: string }>(
    sql`SELECT r.id, r.label FROM adopted a JOIN request r ON r.id = a.id
        WHERE a.kind = 'REQUEST' AND r.state NOT IN ('EXPIRED', 'CANCELLED') AND r.retention > ${ctx.now()}
          AND NOT EXISTS (SELECT FROM source_taperequest s WHERE s.id = r.id::text) ORDER BY r.id`,
  );
  for (const { id, label } of rows) {
    counts.ended++;
    report({ kind: 'request-gone', object: String(id), there: 'nothing', here: `cancelled: ${label}` });
    if (isTrial) continue;
    await cancelRequest(ctx, id);
    await ctx.db.pool.query(sql`UPDATE adopted SET digest = '' WHERE kind = 'REQUEST' AND id = ${id}`);
  }
}

/** Records the emails that the source has sent, so that Tapegate does not send the same emails again. */
export async function adoptSentEmails(ctx: Context, client: PoolClient): Promise<void> {
  for await (const row of readSource(client)) {
    if (row.digest === null || row.state === 'EXPIRED' || row.state === 'CANCELLED' || row.start === null) continue;
    const rows = await ctx.db.rows<Pick<AdoptedRequest, 'first' | 'last'>>(
      sql`SELECT r.notify_on_first_file AS first, r.notify_on_last_file AS last FROM request r WHERE r.id = ${Number(row.id)}`,
    );
    if (rows[0]) await recordSentEmails(ctx.db.pool, { id: Number(row.id), ...rows[0], ...timesOf(row) });
  }
}

function timesOf(row: SourceRequest) {
  return {
    tapestoreRequestStart: readSourceTime(row.start) ?? null,
    tapestoreRequestEnd: readSourceTime(row.end) ?? null,
    firstFilesOnDisk: readSourceTime(row.firstFiles) ?? null,
    lastFilesOnDisk: readSourceTime(row.lastFiles) ?? null,
  };
}

async function* readSource(client: PoolClient): AsyncGenerator<SourceRequest> {
  const pages = readPages<SourceRequest>(PAGE, async (last) => {
    const { rows } = await client.query<SourceRequest>(
      sql`SELECT s.id, s.label, q."user", s.retention, s.request_date AS "requestDate", s.storaged_request_start AS start, s.storaged_request_end AS "end",
            s.first_files_on_disk AS "firstFiles", s.last_files_on_disk AS "lastFiles", s.request_files AS files,
            s.request_patterns AS pattern, s.notify_on_first_file AS first, s.notify_on_last_file AS last, r.state, a.digest
          FROM source_taperequest s LEFT JOIN source_quota q ON q.id = s.quota_id
            LEFT JOIN request r ON r.id = ${requestIdOf('s.id')} LEFT JOIN adopted a ON a.kind = 'REQUEST' AND a.id = r.id
          WHERE ${requestIdOf('s.id')} > ${BigInt(last?.id ?? -1)} ORDER BY ${requestIdOf('s.id')} LIMIT ${PAGE}`,
    );
    return rows;
  });
  for await (const page of pages) yield* page;
}

async function readRequest(
  client: PoolClient,
  row: SourceRequest,
  { report }: Adopting,
): Promise<AdoptedRequest | undefined> {
  const { id, user } = row;
  if (user === CHECKING_USER) return undefined;
  const say = (kind: string, there: string | null, here: string) =>
    report({ kind, object: id, there: there ?? 'nothing', here });
  try {
    if (user === null) throw new Error('the quota of the request does not exist in the source');
    const { pattern, files } = await readSelection(client, row, say);
    const label = readLabel(row.label ?? '', say) || files?.[0] || pattern;
    const dates = readDates(row, say);
    const address = (text: string | null) => readAddress(text, say);
    return {
      ...{ id: Number(id), user, pattern, files, label, ...dates },
      ...{ first: address(row.first), last: address(row.last), ...timesOf(row) },
    };
  } catch (error) {
    say('request-refused', `a request of ${user ?? 'an unknown user'}`, `nothing: ${messageOf(error)}`);
    return undefined;
  }
}

type Say = (kind: string, there: string | null, here: string) => void;

/** Returns the label as one line of at most 2,000 characters, because labels become email subjects. */
function readLabel(text: string, say: Say): string {
  const line = text.replaceAll(/[\p{Cc}\u2028\u2029]+/gu, ' ').slice(0, MAX_TEXT);
  const label = line.isWellFormed() ? line : line.slice(0, -1);
  if (label !== text) say('label', text, label);
  return checkText('label', label);
}

/**
 * Returns a request's pattern or files. If a request has both, returns the pattern, because django-nla_control uses the
 * pattern. If a request has neither, its files are in the table `taperequest_files`.
 */
async function readSelection(
  client: PoolClient,
  { id, pattern, files }: SourceRequest,
  say: Say,
): Promise<Pick<AdoptedRequest, 'pattern' | 'files'>> {
  if (pattern) return { pattern: checkPattern('patterns', pattern), files: undefined };
  const listed = (files ?? '').split('\n').map((line) => line.trim());
  const wanted = listed.some((line) => line !== '') ? listed : await readGiven(client, id);
  const kept: string[] = [];
  for (const file of new Set(wanted.filter((line) => line !== ''))) {
    const problem = findPathProblem(file);
    if (problem === undefined) kept.push(file);
    else say('path-refused', file, `nothing: the path ${problem}`);
  }
  if (kept.length === 0) throw new Error('the request has neither a pattern nor a valid path');
  return { pattern: '', files: kept };
}

async function readGiven(client: PoolClient, id: string): Promise<string[]> {
  const { rows } = await client.query<{ path: string }>(
    sql`SELECT f.logical_path AS path FROM source_taperequest_files g JOIN source_tapefile f ON f.id = g.tapefile_id
        WHERE g.taperequest_id = ${id} ORDER BY length(g.tapefile_id), g.tapefile_id`,
  );
  return rows.map(({ path }) => path);
}

function readDates(row: SourceRequest, say: Say): Pick<AdoptedRequest, 'requestDate' | 'retention'> {
  const made = readSourceTime(row.requestDate) ?? null;
  const kept = readSourceTime(row.retention) ?? null;
  if (made === null && kept === null) throw new Error('the request has neither a request date nor a retention');
  const requestDate = made ?? addSeconds(kept ?? '', -DEFAULT_RETENTION_SECONDS);
  const retention = kept ?? addSeconds(requestDate, DEFAULT_RETENTION_SECONDS);
  if (made === null) say('request-date', row.requestDate, requestDate);
  if (kept === null) say('request-retention', row.retention, retention);
  return { requestDate, retention };
}

function readAddress(text: string | null, say: Say): string | null {
  try {
    return text ? checkAddress('address', text) : null;
  } catch (error) {
    say('address-refused', text, `none: ${messageOf(error)}`);
    return null;
  }
}

async function adoptOne(
  ctx: Context,
  { row, request }: { row: SourceRequest; request: AdoptedRequest },
  adopting: Adopting,
): Promise<void> {
  const { report, counts, isTrial } = adopting;
  const { id, label, retention, first, last, user } = request;
  const digest = digestOf([label, retention, first, last]);
  if (row.digest === digest) {
    counts.same++;
    return;
  }
  if (row.state !== null && row.digest === null) {
    const here = 'another request, created in Tapegate';
    report({ kind: 'request-here', object: String(id), there: `a request of ${user}: ${label}`, here });
    return;
  }
  if (row.state === null) counts.requests++;
  else counts.changed++;
  if (isTrial) return;
  const note = adoptedRow({ kind: 'REQUEST', id: BigInt(id), digest, now: ctx.now() });
  try {
    if (row.state === null) await adoptRequest(ctx, request, note);
    else {
      const input = { id, label, retention, notifyOnFirstFile: first, notifyOnLastFile: last };
      await updateRequest(ctx, input, { isGranted: true });
      await ctx.db.pool.query(note);
    }
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    const here = `${row.state === null ? 'nothing' : 'as it was'}: ${messageOf(error)}`;
    report({ kind: 'request-refused', object: String(id), there: `a request of ${user}`, here });
  }
}
