/**
 * Implements the operation `showCaller`, which returns the caller's own name, roles and authentication method. If a
 * gateway also accepts unauthenticated requests, callers need this operation to find out whether their tokens were
 * accepted.
 */
import type { Caller } from '../../core/caller.js';
import type { Context } from '../context.js';
import { allow } from '../policy.js';

export type ShownCaller = Pick<Caller, 'name' | 'way' | 'expiresAt'> & { roles: string[]; isReadOnly: boolean };

export function showCaller(ctx: Context): ShownCaller {
  allow(ctx, 'showCaller');
  const { name, way, roles, isReadOnly = false, expiresAt } = ctx.caller;
  return { name, way, roles: [...roles], isReadOnly, expiresAt };
}
