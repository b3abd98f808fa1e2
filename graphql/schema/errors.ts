/** Expected failures as types. Elsewhere they are GraphQL errors with the same message and a code. */
import { GraphQLError, type GraphQLFieldResolver, type GraphQLSchema, isObjectType } from 'graphql';
import type { Logger } from 'pino';
import {
  classOf,
  ForbiddenError,
  InUseError,
  InvalidInputError,
  LimitReachedError,
  logFailure,
  NotFoundError,
  OverShareError,
  QuotaExceededError,
  UnavailableError,
  UnconfirmedError,
  UnknownUserError,
  UserError,
  type UserErrorCode,
  userErrorCodes,
  WrongQuotaError,
} from '../../src/core/errors.js';
import { count } from '../../src/core/signals.js';
import type { Context } from '../../src/domain/context.js';
import { bigInt, builder, describeValues } from './builder.js';

const FailureCode = builder.enumType('FailureCode', {
  description: 'What kind of failure it is; each has a type of its own.',
  values: describeValues<UserErrorCode>(userErrorCodes, '.'),
});

const Failure = builder.interfaceRef<UserError>('Failure').implement({
  description: 'What a caller can put right. The message names the thing and both values.',
  fields: (t) => ({
    message: t.exposeString('message', { description: 'For people: what was expected, and what came.' }),
    code: t.expose('code', { type: FailureCode, description: 'For programs.' }),
  }),
});

builder.objectType(InvalidInputError, {
  name: 'InvalidInput',
  description: 'A value is missing, malformed or out of range.',
  interfaces: [Failure],
  fields: (t) => ({ field: t.exposeString('field', { description: 'The field of the input that is at fault.' }) }),
});

builder.objectType(UnknownUserError, {
  name: 'UnknownUser',
  description: 'There is no quota for the user.',
  interfaces: [Failure],
  fields: (t) => ({ user: t.exposeString('user', { description: 'The user that was named.' }) }),
});

builder.objectType(QuotaExceededError, {
  name: 'QuotaExceeded',
  description: 'The files do not fit into the quota.',
  interfaces: [Failure],
  fields: (t) => ({
    user: t.exposeString('user', { description: 'Whose quota it is.' }),
    size: t.expose('size', bigInt('Of the quota, in bytes.')),
    used: t.expose('used', bigInt('Bytes of it that are in use.')),
    requested: t.expose('requested', bigInt('Bytes that the files need beside them.')),
    available: t.expose('available', bigInt('Bytes that are left of it.')),
  }),
});

builder.objectType(LimitReachedError, {
  name: 'LimitReached',
  description: 'The user has as much of something at once as the site allows.',
  interfaces: [Failure],
  fields: (t) => ({
    user: t.exposeString('user', { description: 'Whose requests are counted.' }),
    limit: t.exposeString('limit', { description: 'The setting that says how many there may be.' }),
    allowed: t.exposeInt('allowed', { description: 'How many there may be.' }),
    present: t.exposeInt('present', { description: 'How many there are.' }),
    added: t.exposeInt('added', { description: 'How many more are asked for.' }),
  }),
});

const plainErrors = [
  [WrongQuotaError, 'WrongQuota', 'The request belongs to another quota.'],
  [ForbiddenError, 'Forbidden', 'The caller may not do that.'],
  [NotFoundError, 'NotFound', 'There is no such thing.'],
  [InUseError, 'InUse', 'Something else still needs it.'],
] as const;
for (const [type, name, description] of plainErrors)
  builder.objectType(type, { name, description, interfaces: [Failure] });

const contexts = new WeakMap<Error, Context>();

/** So that the log shows their request. */
export function noteContext(errors: readonly Error[], ctx: Context): void {
  for (const error of errors) contexts.set(error, ctx);
}

/** The only place that masks errors: an error that the caller did not cause is logged in full and hidden. */
export function createErrorMask(log: Logger) {
  return (error: unknown): Error => {
    const original = error instanceof GraphQLError ? error.originalError : error;
    const place = error instanceof GraphQLError ? { nodes: error.nodes ?? null, path: error.path ?? null } : {};
    const isOfDocument = error instanceof GraphQLError && (!original || original instanceof GraphQLError);
    count('tapegate_errors_total', { class: isOfDocument ? 'GRAPHQL' : classOf(original) });
    if (original instanceof UserError) {
      const field = original instanceof InvalidInputError ? { field: original.field } : {};
      return new GraphQLError(original.message, { ...place, extensions: { code: original.code, ...field } });
    }
    if (isOfDocument) return error;
    const ctx = error instanceof Error ? contexts.get(error) : undefined;
    // a caller over its limit is rejected as intended, without a log line
    const what = original instanceof UnavailableError ? 'GraphQL: no answer for now' : 'GraphQL: internal error';
    if (!(original instanceof OverShareError)) logFailure(ctx?.log ?? log, original, what);
    if (original instanceof UnconfirmedError) {
      return new GraphQLError(original.message, { ...place, extensions: { code: 'UNCONFIRMED' } });
    }
    if (original instanceof UnavailableError) {
      const code = original instanceof OverShareError ? 'TOO_MANY_REQUESTS' : 'UNAVAILABLE';
      const extensions = { code, retryAfterSeconds: original.retryAfterSeconds };
      return new GraphQLError(original.message, { ...place, extensions });
    }
    return new GraphQLError('Internal error', { ...place, extensions: { code: 'INTERNAL_SERVER_ERROR' } });
  };
}

/** Returns null instead of NotFoundError. */
export async function orNull<T>(found: Promise<T>): Promise<T | null> {
  try {
    return await found;
  } catch (error) {
    if (error instanceof NotFoundError) return null;
    throw error;
  }
}

/**
 * Reads a stored change. A temporary failure becomes UnconfirmedError, so that the client does not repeat the change.
 */
export async function readBack<T>(read: Promise<T>): Promise<T> {
  try {
    return await read;
  } catch (error) {
    throw error instanceof UnavailableError ? new UnconfirmedError(error) : error;
  }
}

/**
 * Makes all fields fail as rejected promises. If a list item failed at once, the executor would leave the list, and
 * rejections of earlier items would end the process.
 */
export function failLate(schema: GraphQLSchema): GraphQLSchema {
  for (const type of Object.values(schema.getTypeMap())) {
    if (!isObjectType(type) || type.name.startsWith('__')) continue;
    for (const field of Object.values(type.getFields())) if (field.resolve) field.resolve = makeLate(field.resolve);
  }
  return schema;
}

type Resolver = GraphQLFieldResolver<unknown, unknown>;

function makeLate(resolve: Resolver): Resolver {
  return (...given) => {
    try {
      return resolve(...given);
    } catch (error) {
      return Promise.reject(error);
    }
  };
}

/**
 * Logs errors of fields that fail in another way, such as a null argument from a variable. Other errors still end the
 * process.
 * @returns a function that removes the handler
 */
export function hearStrayErrors(log: Logger): () => void {
  const hear = (reason: unknown) => {
    if (!(reason instanceof GraphQLError)) throw reason;
    log.error({ err: reason }, `unhandled error of a field: ${reason.message}`);
  };
  process.on('unhandledRejection', hear);
  return () => void process.off('unhandledRejection', hear);
}
