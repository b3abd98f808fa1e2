/** Expected failures as types. Elsewhere they are GraphQL errors with the same message and a code. */
import { GraphQLError } from 'graphql';
import type { Logger } from 'pino';
import {
  InvalidInputError,
  logFailure,
  NotFoundError,
  QuotaExceededError,
  UnavailableError,
  UnknownUserError,
  UserError,
  WrongQuotaError,
} from '../src/errors.js';
import { builder } from './builder.js';

const Failure = builder.interfaceRef<UserError>('Failure').implement({
  description: 'What a caller can put right. The message names the thing and both values.',
  fields: (t) => ({ message: t.exposeString('message'), code: t.exposeString('code') }),
});

builder.objectType(InvalidInputError, {
  name: 'InvalidInput',
  interfaces: [Failure],
  fields: (t) => ({ field: t.exposeString('field', { description: 'The field of the input that is at fault.' }) }),
});

builder.objectType(UnknownUserError, {
  name: 'UnknownUser',
  interfaces: [Failure],
  fields: (t) => ({ user: t.exposeString('user') }),
});

builder.objectType(QuotaExceededError, {
  name: 'QuotaExceeded',
  description: 'The files do not fit. All figures are bytes.',
  interfaces: [Failure],
  fields: (t) => ({
    user: t.exposeString('user'),
    size: t.expose('size', { type: 'BigInt' }),
    used: t.expose('used', { type: 'BigInt' }),
    requested: t.expose('requested', { type: 'BigInt' }),
    available: t.expose('available', { type: 'BigInt', description: 'What is left of the quota.' }),
  }),
});

builder.objectType(WrongQuotaError, { name: 'WrongQuota', interfaces: [Failure] });
builder.objectType(NotFoundError, { name: 'NotFound', interfaces: [Failure] });

/** The one border at which errors are masked: what is not the caller's doing is logged whole, and says no more. */
export function createErrorMask(log: Logger) {
  return (error: unknown): Error => {
    const original = error instanceof GraphQLError ? error.originalError : error;
    const place = error instanceof GraphQLError ? { nodes: error.nodes ?? null, path: error.path ?? null } : {};
    if (original instanceof UserError) {
      return new GraphQLError(original.message, { ...place, extensions: { code: original.code } });
    }
    if (error instanceof GraphQLError && (!original || original instanceof GraphQLError)) return error;
    logFailure(log, original, 'GraphQL: internal error');
    if (original instanceof UnavailableError) {
      const extensions = { code: 'UNAVAILABLE', retryAfterSeconds: original.retryAfterSeconds };
      return new GraphQLError(original.message, { ...place, extensions });
    }
    return new GraphQLError('Internal error', { ...place, extensions: { code: 'INTERNAL_SERVER_ERROR' } });
  };
}

/** Null in place of a thing that is not there. */
export async function orNull<T>(found: Promise<T>): Promise<T | null> {
  try {
    return await found;
  } catch (error) {
    if (error instanceof NotFoundError) return null;
    throw error;
  }
}
