/** Whom a caller is known as, for itself: at an open door nothing else shows whether a token was taken. */
import type { Caller } from '../../caller.js';
import type { Context } from '../../context.js';
import { allow } from '../policy.js';

export type ShownCaller = Pick<Caller, 'name' | 'way' | 'expiresAt'> & { roles: string[]; isReadOnly: boolean };

export function showCaller(ctx: Context): ShownCaller {
  allow(ctx, 'showCaller');
  const { name, way, roles, isReadOnly = false, expiresAt } = ctx.caller;
  return { name, way, roles: [...roles], isReadOnly, expiresAt };
}
