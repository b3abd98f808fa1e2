/**
 * Audits the changes that callers request. The audit row of a successful change is written in the change's transaction,
 * which fails if the caller's login is no longer valid. The audit row of a rejected change is written in a separate
 * transaction, because the change's transaction is rolled back.
 */

import { classOf, ForbiddenError, UserError } from '../../core/errors.js';
import { secondsSince, time } from '../../core/signals.js';
import { isBefore } from '../../core/time.js';
import type { Sql } from '../../db/sql.js';
import type { Context } from '../context.js';
import { allow, type Changing, may } from '../policy.js';
import { withSlot } from '../turn.js';
import { type AuditedAction, auditRow, auditRowOfChange, isInvalidToken } from './audit.js';

/**
 * Returns the statement that audits a successful change. The statement must run in the transaction of the change. If
 * the change consists of a single SQL statement, the audit statement must be a part of that statement.
 * @param more details of the change that are known only after it was made. `each` is a query for the changed objects.
 * The caller must set `each` if the operation might not change any object.
 */
export type AuditEntry = (more?: Partial<Pick<AuditedAction, 'object' | 'given'>> & { each?: Sql }) => Sql;

/**
 * Operations for which `audited` does not take a limiter slot. Some of the listed operations take a limiter slot in
 * their own code. The other listed operations do not lock rows that another operation needs.
 */
const takesOwnSlots: ReadonlySet<Changing> = new Set([
  'createRequest',
  'updateRequest',
  'importRows',
  'withdrawFiles',
  'reinstateFiles',
  'renameFiles',
  'purgeFiles',
  'moveVolume',
  'retireVolume',
  'purgeUser',
  'createToken',
  'revokeToken',
]);

/**
 * Operations that wait for locks only briefly, because imports and new requests hold locks on the same rows only
 * briefly.
 */
const neverWaiting: ReadonlySet<Changing> = new Set([
  'suspend',
  'resume',
  'addPathRule',
  'removePathRule',
  'setQuotaMember',
  'removeQuotaMember',
  'setMedium',
  'updateLibrary',
  'setDisk',
  'resizeRestoreDisk',
  'removeRestoreDisk',
]);

/** Operations that can invalidate the caller's own token. */
const ending: ReadonlySet<Changing> = new Set(['revokeToken', 'removeQuota', 'purgeUser']);

interface Change {
  ctx: Context;
  action: AuditedAction & { operation: Changing };
}

/** A function that runs code around a change. The function must either call `next` exactly once or throw an error. */
type Middleware = <T>(change: Change, next: () => Promise<T>) => Promise<T>;

const middlewares: readonly Middleware[] = [keepInput, measure, recordRejection, checkRight, takeSlot];

/**
 * Runs an operation in a limiter slot, if the caller's roles allow the operation. The function `work` must make all
 * other checks, and must run the statement from `auditEntry` exactly once.
 * @param action the action to audit, whose field `given` must not contain secrets
 */
export async function audited<T>(
  ctx: Context,
  action: Change['action'],
  work: (auditEntry: AuditEntry) => Promise<T>,
): Promise<T> {
  const auditEntry: AuditEntry = ({ each, ...more } = {}) => {
    checkValid(ctx);
    const passesOverToken = ending.has(action.operation);
    return auditRowOfChange(ctx.now(), ctx.caller, { ...action, ...more }, { each, passesOverToken });
  };
  const run = (index: number): Promise<T> => {
    const step = middlewares[index];
    return step ? step({ ctx, action }, () => run(index + 1)) : work(auditEntry);
  };
  return await run(0);
}

async function keepInput<T>({ ctx }: Change, next: () => Promise<T>): Promise<T> {
  const leave = ctx.keep?.();
  try {
    return await next();
  } finally {
    leave?.();
  }
}

async function measure<T>({ action: { operation } }: Change, next: () => Promise<T>): Promise<T> {
  const startedAt = performance.now();
  let result = 'DONE';
  try {
    return await next();
  } catch (error) {
    result = classOf(error);
    throw error;
  } finally {
    time('tapegate_operation_seconds', { operation, result }, secondsSince(startedAt));
  }
}

async function recordRejection<T>({ ctx, action }: Change, next: () => Promise<T>): Promise<T> {
  try {
    return await next();
  } catch (caught) {
    const error = isInvalidToken(caught) ? noLongerValid(ctx) : caught;
    const { operation } = action;
    const recorded: AuditedAction = may(ctx.caller, operation) ? action : { operation, kind: 'NONE', object: '' };
    if (error instanceof UserError) recordRefusal(ctx, recorded, error.code);
    throw error;
  }
}

async function checkRight<T>({ ctx, action: { operation } }: Change, next: () => Promise<T>): Promise<T> {
  if (!may(ctx.caller, operation)) allow(ctx, operation);
  return await next();
}

async function takeSlot<T>({ ctx, action: { operation } }: Change, next: () => Promise<T>): Promise<T> {
  if (takesOwnSlots.has(operation)) return await next();
  return await withSlot(ctx, neverWaiting.has(operation) ? 'short' : 'rows', next);
}

/**
 * Checks that a login without a Tapegate token has not expired. For a login with a Tapegate token, the audit statement
 * checks the token.
 */
function checkValid(ctx: Context): void {
  const { tokenId, expiresAt } = ctx.caller;
  if (tokenId === undefined && expiresAt !== undefined && !isBefore(ctx.now(), expiresAt)) throw noLongerValid(ctx);
}

const noLongerValid = ({ caller }: Context) =>
  new ForbiddenError(caller.name, 'make changes: the token is no longer valid');

export function recordRefusal(ctx: Context, action: AuditedAction, code: string): void {
  ctx.refusals.record(ctx.caller, action, code);
}

/**
 * Audits work that takes several transactions. Records the start before the first transaction, and the result after the
 * last one.
 */
export async function auditedRun<T extends object>(
  ctx: Context,
  action: AuditedAction,
  work: () => Promise<T>,
  describe: (result: T) => object,
): Promise<T> {
  await ctx.db.pool.query(auditRow(ctx.now(), ctx.caller, action, 'BEGUN'));
  const result = await work();
  await ctx.db.pool.query(
    auditRow(ctx.now(), ctx.caller, { ...action, given: { ...action.given, ...describe(result) } }),
  );
  return result;
}
