/**
 * Audits changes made for callers. The row of a success is written in the transaction of the change, and only if the
 * caller is still valid then. A rejection is recorded separately, since its transaction is rolled back.
 */

import { classOf, ForbiddenError, UserError } from '../../core/errors.js';
import { secondsSince, time } from '../../core/signals.js';
import { isBefore } from '../../core/time.js';
import type { Sql } from '../../db/sql.js';
import type { Context } from '../context.js';
import { allow, type Changing, may } from '../policy.js';
import { takeTurn } from '../turn.js';
import { auditRow, auditRowOfChange, type Deed, isUnnoted } from './audit.js';

/**
 * Returns the statement that audits a success, for the transaction of the change, or a part of its one statement.
 * @param more known only after the change; `each` selects the objects of a statement that may change nothing
 */
export type Note = (more?: Partial<Pick<Deed, 'object' | 'given'>> & { each?: Sql }) => Sql;

/** Operations that take their slots in parts, or lock no shared rows. Revoking a stolen token must not wait. */
const inTheirOwnTurns: ReadonlySet<Changing> = new Set([
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

/** Operations whose rows no import or new request locks until its commit, so that they never wait for users. */
const waitingForNobody: ReadonlySet<Changing> = new Set([
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
  'removeDisk',
]);

/** Operations that may end the caller's own token. */
const ending: ReadonlySet<Changing> = new Set(['revokeToken', 'removeQuota', 'purgeUser']);

interface Change {
  ctx: Context;
  deed: Deed & { operation: Changing };
}

/** A step around a change. It calls `next` once, or throws. */
type Middleware = <T>(change: Change, next: () => Promise<T>) => Promise<T>;

/** Steps around each change; the first one is the outermost. */
const middlewares: readonly Middleware[] = [keepInput, measure, recordRejection, checkRight, takeSlot];

/**
 * Runs an operation in a limiter slot, if the caller's roles allow it. Another caller's input is not recorded. `work`
 * contains all other checks, and runs the statement of `note` once.
 * @param deed its `given` is truncated, and must contain no secrets
 */
export async function audited<T>(ctx: Context, deed: Change['deed'], work: (note: Note) => Promise<T>): Promise<T> {
  const note: Note = ({ each, ...more } = {}) => {
    checkKnown(ctx);
    const passesOverToken = ending.has(deed.operation);
    return auditRowOfChange(ctx.now(), ctx.caller, { ...deed, ...more }, { each, passesOverToken });
  };
  const run = (index: number): Promise<T> => {
    const step = middlewares[index];
    return step ? step({ ctx, deed }, () => run(index + 1)) : work(note);
  };
  return await run(0);
}

/** Counts the memory of the input until the change has ended. */
async function keepInput<T>({ ctx }: Change, next: () => Promise<T>): Promise<T> {
  const leave = ctx.keep?.();
  try {
    return await next();
  } finally {
    leave?.();
  }
}

async function measure<T>({ deed: { operation } }: Change, next: () => Promise<T>): Promise<T> {
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

async function recordRejection<T>({ ctx, deed }: Change, next: () => Promise<T>): Promise<T> {
  try {
    return await next();
  } catch (caught) {
    const error = isUnnoted(caught) ? knownNoLonger(ctx) : caught;
    const { operation } = deed;
    const recorded: Deed = may(ctx.caller, operation) ? deed : { operation, kind: 'NONE', object: '' };
    if (error instanceof UserError) noteRefusal(ctx, recorded, error.code);
    throw error;
  }
}

async function checkRight<T>({ ctx, deed: { operation } }: Change, next: () => Promise<T>): Promise<T> {
  if (!may(ctx.caller, operation)) allow(ctx, operation);
  return await next();
}

async function takeSlot<T>({ ctx, deed: { operation } }: Change, next: () => Promise<T>): Promise<T> {
  if (inTheirOwnTurns.has(operation)) return await next();
  return await takeTurn(ctx, waitingForNobody.has(operation) ? 'nobody' : 'rows', next);
}

/** Checks an expiry that is not in the database. The database knows about Tapegate's own tokens. */
function checkKnown(ctx: Context): void {
  const { tokenId, expiresAt } = ctx.caller;
  if (tokenId === undefined && expiresAt !== undefined && !isBefore(ctx.now(), expiresAt)) throw knownNoLonger(ctx);
}

const knownNoLonger = ({ caller }: Context) =>
  new ForbiddenError(caller.name, 'change anything: its token is no longer valid');

export function noteRefusal(ctx: Context, deed: Deed, code: string): void {
  ctx.refusals.note(ctx.caller, deed, code);
}

/** Audits work in several transactions: its start before the first one, and its result after the last one. */
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
