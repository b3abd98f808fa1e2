/**
 * The end of a round: nothing more is asked for, the engine does what is left, and the checker of the torture and the doctor
 * look. Then all requests are cancelled, the two look again, and what has ended is taken out, so that the database has a bound.
 */
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { domainToASCII } from 'node:url';
import type pg from 'pg';
import type { Context } from '../../src/context.js';
import { messageOf } from '../../src/errors.js';
import { pruneAudit } from '../../src/operations/audit/prune.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import { cancelRequest } from '../../src/operations/requests/ends.js';
import { pruneEvents } from '../../src/operations/requests/history.js';
import { noArchivePaths } from '../torture/archive-paths.js';
import { check } from '../torture/checker.js';
import { askDoctor } from '../torture/doctor.js';
import { dumpFacts } from '../torture/dump.js';
import { type Facts, readFacts } from '../torture/facts.js';
import type { MoodyMail } from '../torture/mail.js';
import { resumeAll } from '../torture/operators.js';
import { nothingStrange } from '../torture/stranger-scan.js';
import type { Violation, ViolationKind } from '../torture/violations.js';
import { countWork, describeLeft, describeWork } from '../torture/work.js';
import { archive, rows, users } from './archive.js';
import {
  correctSizes,
  liftRules,
  restoreDisks,
  restoreMedia,
  restoreQuotas,
  restoreVolumes,
  restoreWithdrawn,
} from './keeper.js';
import type { Known } from './known.js';
import type { Session } from './session.js';
import { tokens } from './texts.js';

export interface RoundContext {
  ctx: Context;
  session: Session;
  mail: MoodyMail;
  settleMs: number;
  patienceMs: number;
  signal: AbortSignal;
}

const LOOK_MS = 100;

/**
 * What the checker takes for a fault, and a fuzz does on purpose: addresses change after mail was queued, or come when it is
 * too late for it; retentions, and imports that move files, have requests go back.
 */
const ALLOWED: readonly ViolationKind[] = ['mail-unasked', 'mail-missing', 'progress-back', 'file-doubted'];

/**
 * A mail server may refuse for good what is an address by its form. What a request was not given since a rule was there, it is
 * not given when the rule is no more: it takes what appears later.
 */
function isAllowed({ kind, text }: Violation, { ruled }: Known): boolean {
  const [, id] = kind === 'join-missed' ? (/^request (\d+) (?:matches|awaits) /.exec(text) ?? []) : [];
  if (id !== undefined) return ruled.has(Number(id));
  if (kind === 'mail-unknown') {
    // letters of who is forgotten went to addresses that are known no more; and a domain has many ways to be written
    const [, seen = '', known = ''] = / to (.*), and not to (.*)$/s.exec(text) ?? [];
    return /^forgotten-[0-9a-f]+$/.test(known) || withPlainDomain(seen) === withPlainDomain(known);
  }
  return ALLOWED.includes(kind) || (kind === 'mail-unsent' && text.endsWith(' is REJECTED'));
}

function withPlainDomain(address: string): string {
  const at = address.lastIndexOf('@');
  return `${address.slice(0, at)}@${domainToASCII(address.slice(at + 1))}`;
}

/** @returns what is wrong */
export async function endRound(round: RoundContext): Promise<Violation[]> {
  round.session.leave();
  await putRight(round);
  await noteRuled(round);
  await noteDeeds(round);
  const violations = await settleAndLook(round);
  if (violations.length > 0) return violations;
  await cancelAll(round.ctx);
  violations.push(...(await settleAndLook(round)));
  if (violations.length === 0) {
    await takeOut(round);
    await restoreWithdrawn(round.ctx);
  }
  return violations;
}

/** An input may take back what another one has ruled before the keeper has seen it. */
async function noteRuled({ ctx, session }: RoundContext): Promise<void> {
  const { rows } = await ctx.db.pool.query<{ id: number }>(
    `SELECT id FROM request WHERE request_date <= (
       SELECT max(at) + interval '1 second' FROM audit WHERE operation IN ('setPathRule', 'removePathRule') AND result = 'DONE')`,
  );
  for (const { id } of rows) session.known.ruled.add(id);
}

/** Again and again: what was asked for over a connection that was cut may be done later. */
async function putRight({ ctx, session }: RoundContext): Promise<void> {
  await resumeAll(ctx);
  await restoreQuotas(ctx);
  await restoreDisks(ctx);
  await restoreVolumes(ctx);
  await correctSizes(ctx);
  await restoreMedia(ctx);
  await liftRules(ctx, session.known, 'all'); // what nobody may ask for is in no request
}

async function settleAndLook(round: RoundContext): Promise<Violation[]> {
  const { ctx, session, signal } = round;
  const deadline = Date.now() + round.settleMs;
  const isOver = () => session.isOver || signal.aborted;
  let left = 'the first look';
  while (left !== '' && Date.now() < deadline && !isOver()) {
    await putRight(round);
    await endPauses(ctx);
    left = await countWork(ctx).then(describeWork, messageOf);
    if (left !== '') await sleep(LOOK_MS);
  }
  if (isOver()) return [];
  if (left !== '') {
    const rest = await describeLeft(ctx).catch(messageOf);
    return [{ kind: 'unsettled', text: `there is still work to do: ${left}\n  ${rest}` }];
  }
  for (const patience = Date.now() + round.patienceMs; ; await sleep(LOOK_MS)) {
    const facts = await look(round);
    const found = check(facts).filter((violation) => !isAllowed(violation, session.known));
    if (found.length === 0) found.push(...(await askDoctor({ ctx, touched: new Set() })));
    if (found.length === 0 || isOver()) return found;
    if (Date.now() > patience) return await dump(ctx, facts, found);
    await putRight(round);
    await countWork(ctx);
  }
}

/** @returns the same, with the file that has all that was looked at */
async function dump(ctx: Context, facts: Facts, violations: readonly Violation[]): Promise<Violation[]> {
  const file = path.join(mkdtempSync(path.join(tmpdir(), 'tapegate-found-')), 'facts.json');
  const { rows: rules } = await ctx.db.pool.query('SELECT * FROM path_rule');
  const { rows: requests } = await ctx.db.pool.query(
    `SELECT to_jsonb(r) AS row FROM request r WHERE state NOT IN ('EXPIRED', 'CANCELLED')`,
  );
  await dumpFacts(file, { facts, violations }, { rules, rows: requests });
  return violations.map(({ kind, text }) => ({ kind, text: `${text} (${file})` }));
}

/** Engines keep from volumes that failed for a while that grows, unless somebody has put something back into service. */
async function endPauses(ctx: Context): Promise<void> {
  await ctx.db.pool.query(`SELECT pg_notify('tapegate', 'suspension')`);
}

async function look({ ctx, session, mail }: RoundContext): Promise<Facts> {
  const client: pg.PoolClient = await ctx.db.pool.connect();
  try {
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
    return await readFacts(async <Row extends object>(text: string) => (await client.query<Row>(text)).rows, {
      sources: new Map(archive.map(({ path, bytes, sha256 }) => [path, { size: BigInt(bytes.length), sha256 }])),
      mails: mail.mails,
      told: [],
      touched: new Set(),
      asked: new Map(),
      acknowledged: session.known.acknowledged,
      bulks: new Set(),
      polls: [],
      revivals: new Map(),
      archivePaths: noArchivePaths,
      strange: nothingStrange,
      staged: [],
      stuck: [],
      doubleClaims: [],
      wrong: [],
      watches: [],
      miswritten: new Set(),
      withdrawn: new Set(),
      versions: PLACES,
      openRetirements: new Set(),
    });
  } finally {
    await client.query('ROLLBACK');
    client.release();
  }
}

/** Imports give any file any place: the bytes are those that stand there, whatever the path. */
const PLACES = new Map<string, typeof archive>();
PLACES.get = () => archive;
PLACES.has = () => true;

async function cancelAll(ctx: Context): Promise<void> {
  const { rows: live } = await ctx.db.pool.query<{ id: number }>(
    `SELECT id FROM request WHERE state NOT IN ('EXPIRED', 'CANCELLED') ORDER BY id`,
  );
  for (const { id } of live) await cancelRequest(ctx, id);
}

/** Which operations were done or refused, and how often, as the audit has it. */
async function noteDeeds({ ctx, session }: RoundContext): Promise<void> {
  const { rows: done } = await ctx.db.pool.query<{ deed: string; count: number }>(
    `SELECT concat_ws(' ', operation, nullif(result, 'DONE')) AS deed, sum(count)::int AS count
     FROM audit WHERE way <> 'system' GROUP BY 1 ORDER BY 1`,
  );
  for (const { deed, count } of done) session.deeds.set(deed, (session.deeds.get(deed) ?? 0) + count);
}

/** As if nobody had asked for anything, and no import had come. */
async function takeOut({ ctx, session, mail }: RoundContext): Promise<void> {
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
  session.known.forgetAll();
  // at whatever stage it is: a file goes to none of them but by its own way
  await importRows(
    ctx,
    rows.map((row) => ({ ...row, stage: null, verified: undefined })),
  );
}
