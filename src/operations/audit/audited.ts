/**
 * Whatever changes something for a caller is audited: the row that says it is done is written in the transaction of the change,
 * so that it is there if and only if the change is, wherever a process dies; and only where the caller is still known then, however long
 * the change has waited. What is refused is noted beside, since its transaction
 * is taken back.
 */
import { auditRow, auditRowOfChange, type Deed, isUnnoted } from '../../audit.js';
import type { Context } from '../../context.js';
import type { Sql } from '../../database/sql.js';
import { classOf, ForbiddenError, UserError } from '../../errors.js';
import { secondsSince, time } from '../../signals.js';
import { isBefore } from '../../time.js';
import { type Operation, policy } from '../policy.js';
import { takeTurn } from '../turn.js';

/** What the right to change something is asked for, and changes nothing. */
const reading = [
  'estimateRequest',
  'listTokens',
  'listAudit',
  'listFindings',
  'listWebhooks',
  'listWebhookMessages',
] as const satisfies readonly Operation[];

type Reading = (typeof reading)[number];
type Writing = {
  [Each in Operation]: (typeof policy)[Each] extends 'ask' | 'change' | 'manage' | 'operate' ? Each : never;
}[Operation];

/** The operations that are audited, of those that the policy has. */
export type Changing = Exclude<Writing, Reading>;

export function isChanging(operation: Operation): operation is Changing {
  const isReading = (reading as readonly Operation[]).includes(operation);
  return ['ask', 'change', 'manage', 'operate'].includes(policy[operation]) && !isReading;
}

/**
 * The statement for the transaction of the change, or a part of its one statement.
 * @param more what is known only by then; `each` gives the objects, of a statement that may change nothing
 */
export type Note = (more?: Partial<Pick<Deed, 'object' | 'given'>> & { each?: Sql }) => Sql;

/**
 * Their parts have turns of their own; an import has one, of a gateway's. Tokens lock what nobody else does, and those that are stolen
 * are not to wait for anything.
 */
const inTheirOwnTurns: ReadonlySet<string> = new Set<Changing>([
  'createRequest',
  'updateRequest',
  'importRows',
  'withdrawFiles',
  'reinstateFiles',
  'renameFiles',
  'forgetFiles',
  'moveVolume',
  'retireVolume',
  'forgetUser',
  'createToken',
  'revokeToken',
]);

/**
 * They lock what nobody else does for long: neither an import, nor a request that is made, holds any of it to its commit. Whatever an
 * operator takes out of service, closes or gives to others, waits for no user.
 */
const waitingForNobody: ReadonlySet<string> = new Set<Changing>([
  'suspend',
  'resume',
  'setPathRule',
  'removePathRule',
  'setMember',
  'removeMember',
  'setMedium',
  'setLibrary',
  'setDisk',
  'resizeDisk',
  'forgetDisk',
]);

/** They may end the very token by which they are asked for. */
const ending: ReadonlySet<string> = new Set<Changing>(['revokeToken', 'removeQuota', 'forgetUser']);

/**
 * Runs an operation, in its turn. Everything that may refuse it, `allow` first, is within `work`, which runs the statement of `note` once.
 * @param deed given as it came: it is cut, and must be free of secrets
 */
export async function audited<T>(ctx: Context, deed: Deed, work: (note: Note) => Promise<T>): Promise<T> {
  const leave = ctx.keep?.(); // what it was given stays in memory for as long
  const note: Note = ({ each, ...more } = {}) => {
    checkKnown(ctx);
    const passesOverToken = ending.has(deed.operation);
    return auditRowOfChange(ctx.now(), ctx.caller, { ...deed, ...more }, { each, passesOverToken });
  };
  const startedAt = performance.now();
  let result = 'DONE';
  try {
    if (inTheirOwnTurns.has(deed.operation)) return await work(note);
    const waitsFor = waitingForNobody.has(deed.operation) ? 'nobody' : 'rows';
    return await takeTurn(ctx, waitsFor, () => work(note));
  } catch (caught) {
    const error = isUnnoted(caught) ? knownNoLonger(ctx) : caught;
    result = classOf(error);
    if (error instanceof UserError) noteRefusal(ctx, deed, error.code);
    throw error;
  } finally {
    time('tapegate_operation_seconds', { operation: deed.operation, result }, secondsSince(startedAt));
    leave?.();
  }
}

/** Of whoever is known by a token of Tapegate's own the database knows better. */
function checkKnown(ctx: Context): void {
  const { tokenId, expiresAt } = ctx.caller;
  if (tokenId === undefined && expiresAt !== undefined && !isBefore(ctx.now(), expiresAt)) throw knownNoLonger(ctx);
}

const knownNoLonger = ({ caller }: Context) =>
  new ForbiddenError(caller.name, 'change anything by a token that is good no longer');

/** @param code of the error that the caller is told */
export function noteRefusal(ctx: Context, deed: Deed, code: string): void {
  ctx.refusals.note(ctx.caller, deed, code);
}

/** Of what is one transaction after another: before the first one, that it has begun, and after the last one, what came of it. */
export async function auditedRun<T extends object>(
  ctx: Context,
  deed: Deed,
  work: () => Promise<T>,
  describe: (result: T) => object,
): Promise<T> {
  await ctx.db.pool.query(auditRow(ctx.now(), ctx.caller, deed, 'BEGUN'));
  const result = await work();
  await ctx.db.pool.query(auditRow(ctx.now(), ctx.caller, { ...deed, given: { ...deed.given, ...describe(result) } }));
  return result;
}
