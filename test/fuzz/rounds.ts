/**
 * End of a round. The engine finishes its work, and the torture test's checker and the doctor examine the result.
 * Then all requests are cancelled, and the checker and the doctor examine the result again.
 * Finally ended requests are deleted, to keep the database small.
 */
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { domainToASCII } from 'node:url';
import { messageOf, NotFoundError } from '../../src/core/errors.js';
import { pruneAudit } from '../../src/domain/audit/lists.js';
import { reinstateFiles } from '../../src/domain/catalogue/withdrawals.js';
import type { Context } from '../../src/domain/context.js';
import { importRows } from '../../src/domain/import/import.js';
import { cancelRequest } from '../../src/domain/requests/ends.js';
import { pruneEvents } from '../../src/domain/site/pruning.js';
import { check, type Violation, type ViolationKind } from '../torture/checker.js';
import { createObserved, type Facts, readSnapshot } from '../torture/facts.js';
import type { FaultyMail } from '../torture/receivers.js';
import { dumpFacts } from '../torture/run.js';
import { askDoctor, describeWork } from '../torture/work.js';
import { archive, rows, users } from './archive.js';
import { restoreAll, restoreQuotas } from './keeper.js';
import type { Known } from './known.js';
import type { Session } from './session.js';
import { tokens } from './values.js';

export interface RoundContext {
  ctx: Context;
  session: Session;
  mail: FaultyMail;
  /** Time limit for the engine's remaining work. */
  settleMs: number;
  /** Time for periodic jobs before the checker's violations count. */
  patienceMs: number;
  signal: AbortSignal;
}

const LOOK_MS = 100;

/** Violations that inputs may cause: late changes of addresses, earlier retentions, imports and withdrawals. */
const ALLOWED: readonly ViolationKind[] = [
  'mail-unasked',
  'mail-missing',
  'progress-back',
  'file-doubted',
  'withdrawn-never',
];

/**
 * Returns whether inputs may have caused the violation. A request never takes a file that a path rule excluded earlier.
 * A mail server may reject a valid address. Emails to purged users have unknown addresses, and a domain has many
 * spellings.
 */
function isAllowed({ kind, text }: Violation, { ruled }: Known): boolean {
  const [, id] = kind === 'join-missed' ? (/^request (\d+) (?:matches|awaits) /.exec(text) ?? []) : [];
  if (id !== undefined) return ruled.has(Number(id));
  if (kind === 'mail-unknown') {
    const [, received = '', known = ''] = / to (.*), and not to (.*)$/s.exec(text) ?? [];
    return /^purged-[0-9a-f]+$/.test(known) || withPlainDomain(received) === withPlainDomain(known);
  }
  return ALLOWED.includes(kind) || (kind === 'mail-unsent' && text.endsWith(' is REJECTED'));
}

/**
 * Returns whether a copy was restored before its volume got another volume's name.
 * The copy then contains the bytes of its path, not the bytes at its present position.
 */
function isFromBefore({ files, copies }: Facts, { kind, text }: Violation): boolean {
  const [, id] = kind === 'copy-bytes' ? (/^file (\d+) /.exec(text) ?? []) : [];
  const file = files.find((each) => String(each.id) === id);
  const copy = copies.find(({ path: place }) => place === file?.copyPath);
  const sha256 = file && sources.get(file.path)?.sha256;
  return sha256 !== undefined && copy?.sha256 === sha256 && file?.checksum === `sha256:${sha256}`;
}

function withPlainDomain(address: string): string {
  const at = address.lastIndexOf('@');
  return `${address.slice(0, at)}@${domainToASCII(address.slice(at + 1))}`;
}

export async function endRound(round: RoundContext): Promise<Violation[]> {
  const { ctx, session } = round;
  session.closeStreams();
  await restoreAll(ctx, session.known);
  await readAudit(round);
  const violations = await settleAndCheck(round);
  if (violations.length > 0) return violations;
  const { rows: live } = await ctx.db.pool.query<{ id: number }>(
    `SELECT id FROM request WHERE state NOT IN ('EXPIRED', 'CANCELLED') ORDER BY id`,
  );
  for (const { id } of live) await cancelRequest(ctx, id);
  violations.push(...(await settleAndCheck(round)));
  if (violations.length === 0) await deleteEnded(round);
  return violations;
}

/** Reads the audit: records requests that path rules may have affected, and operations that inputs have performed. */
async function readAudit({ ctx, session }: RoundContext): Promise<void> {
  const { rows: ruled } = await ctx.db.pool.query<{ id: number }>(
    `SELECT id FROM request WHERE request_date <= (
       SELECT max(at) + interval '1 second' FROM audit WHERE operation IN ('addPathRule', 'removePathRule') AND result = 'DONE')`,
  );
  for (const { id } of ruled) session.known.ruled.add(id);
  const { rows: done } = await ctx.db.pool.query<{ operation: string; count: number }>(
    `SELECT concat_ws(' ', operation, nullif(result, 'DONE')) AS operation, sum(count)::int AS count
     FROM audit WHERE way <> 'system' GROUP BY 1 ORDER BY 1`,
  );
  for (const { operation, count } of done) {
    session.operations.set(operation, (session.operations.get(operation) ?? 0) + count);
  }
}

async function settleAndCheck({ ctx, session, mail, signal, ...limits }: RoundContext): Promise<Violation[]> {
  const deadline = Date.now() + limits.settleMs;
  const isOver = () => session.isOver || signal.aborted;
  let work = 'unknown';
  while (work !== '' && Date.now() < deadline && !isOver()) {
    await restoreAll(ctx, session.known); // repeat: a request on a closed connection may take effect late
    await ctx.db.pool.query(`SELECT pg_notify('tapegate', 'suspension')`); // ends pauses before retries of volumes
    work = await describeWork(ctx).catch(messageOf);
    if (work !== '') await sleep(LOOK_MS);
  }
  if (isOver()) return [];
  if (work !== '') return [{ kind: 'unsettled', text: `work remains: ${work}` }];
  for (const patience = Date.now() + limits.patienceMs; ; await sleep(LOOK_MS)) {
    const { acknowledged } = session.known;
    const facts = await readSnapshot(ctx, createObserved({ sources, mails: mail.mails, versions, acknowledged }));
    const found = check(facts).filter(
      (violation) => !isAllowed(violation, session.known) && !isFromBefore(facts, violation),
    );
    if (found.length === 0) found.push(...(await askDoctor(ctx, () => false)));
    if (found.length === 0 || isOver()) return found;
    if (Date.now() > patience) return await dump(ctx, facts, found);
    await restoreAll(ctx, session.known);
    await describeWork(ctx);
  }
}

/** Writes all facts to a file, and adds the file's name to the violations. */
async function dump(ctx: Context, facts: Facts, violations: Violation[]): Promise<Violation[]> {
  const file = path.join(mkdtempSync(path.join(tmpdir(), 'tapegate-found-')), 'facts.json');
  const { rows: rules } = await ctx.db.pool.query('SELECT * FROM path_rule');
  await dumpFacts(file, { facts, violations }, { rules });
  return violations.map(({ kind, text }) => ({ kind, text: `${text} (${file})` }));
}

const sources = new Map(archive.map((file) => [file.path, file]));
/** Versions of each path: all files of the archive, because imports give any file any position. */
const versions = new Map<string, typeof archive>();
versions.get = () => archive;
versions.has = () => true;

/** Resets the database to its state before the round, except the stages of files. */
async function deleteEnded({ ctx, session, mail }: RoundContext): Promise<void> {
  const never = new AbortController().signal;
  await pruneEvents({ ...ctx, config: { ...ctx.config, eventDays: 0 } }, never);
  const { rows: tables } = await ctx.db.pool.query<{ name: string }>(
    `SELECT table_name AS name FROM information_schema.columns
     WHERE table_schema = 'public' AND column_name = 'request_id' AND table_name IN (
       SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'event')`,
  );
  const emptied = [...tables.map(({ name }) => name), 'request', 'quota_member', 'path_rule'];
  const deletes = emptied.map((name) => `DELETE FROM "${name}"`);
  deletes.push(`DELETE FROM api_token WHERE id > ${tokens.length}`);
  await ctx.db.pool.query(['BEGIN', ...deletes, 'COMMIT'].join(';\n'));
  await ctx.db.pool.query('DELETE FROM quota WHERE "user" <> ALL($1::text[])', [users.map(({ user }) => user)]);
  await ctx.db.pool.query(`SELECT pg_notify('tapegate', 'rights'), pg_notify('tapegate', 'access')`);
  await restoreQuotas(ctx);
  await pruneAudit({ ...ctx, config: { ...ctx.config, auditDays: 0 } }, never);
  mail.mails.length = 0;
  session.known.clear();
  await importRows(
    ctx,
    rows.map((row) => ({ ...row, stage: null, verified: undefined })), // stages stay
  );
  await reinstateFiles(ctx, { path: '/data/' }).catch((error: unknown) => {
    if (!(error instanceof NotFoundError)) throw error;
  });
}
