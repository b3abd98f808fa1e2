/**
 * Defines the GraphQL types for expected failures. If a field's type has no `errors`, an expected failure in the field
 * becomes a GraphQL error with a code.
 */
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
import { bigInt, builder, describeValues, nullable } from './builder.js';

/** Codes of errors in payloads. EVENTS_GONE is not one of them, because only subscriptions fail with this code. */
const { EVENTS_GONE: _, ...failureCodes } = userErrorCodes;
type FailureCode = keyof typeof failureCodes;

const FailureCodeType = builder.enumType('FailureCode', {
  description: 'An error code. Each code has its own failure type.',
  values: describeValues<FailureCode>(failureCodes),
});

/** The fields of an error in a payload. A payload contains no Error, because graphql-js throws an Error in a result. */
export type Failure = Pick<UserError, 'code' | 'message'>;

export const describeFailure = (error: UserError): Failure => ({ ...error, message: error.message });

/** Returns the name of the code's type, such as `NotFound` for `NOT_FOUND`. */
const nameType = (code: UserErrorCode): string =>
  code.toLowerCase().replace(/(?:^|_)(.)/g, (_match, letter: string) => letter.toUpperCase());

export const FailureType = builder.interfaceRef<Failure>('Failure').implement({
  resolveType: ({ code }) => nameType(code),
  description: 'A failure that a caller can correct. The message contains the rejected value and the expected value.',
  fields: (t) => ({
    message: t.exposeString('message', {
      description: 'The error message, with the rejected value and the expected value.',
    }),
    code: t.field({
      type: FailureCodeType,
      description: 'The error code, for programs.',
      resolve: ({ code }) => code as FailureCode,
    }),
  }),
});

builder.objectType(InvalidInputError, {
  name: 'InvalidInput',
  description: 'A value is missing, malformed or out of range.',
  interfaces: [FailureType],
  fields: (t) => ({
    field: t.exposeString(
      'field',
      nullable('The name of the invalid input field. Null if the input is invalid as a whole.'),
    ),
  }),
});

builder.objectType(UnknownUserError, {
  name: 'UnknownUser',
  description: 'The user has no quota.',
  interfaces: [FailureType],
  fields: (t) => ({ user: t.exposeString('user', { description: "The user's name." }) }),
});

builder.objectType(QuotaExceededError, {
  name: 'QuotaExceeded',
  description: 'The files do not fit into the free space of the quota.',
  interfaces: [FailureType],
  fields: (t) => ({
    user: t.exposeString('user', { description: 'The user whose quota is full.' }),
    size: t.expose('size', bigInt("The quota's size in bytes.")),
    used: t.expose('used', bigInt('The number of bytes of the quota that are in use.')),
    requested: t.expose('requested', bigInt('The number of bytes that the requested files require.')),
    available: t.expose('available', bigInt('The number of bytes of the quota that are free.')),
  }),
});

builder.objectType(LimitReachedError, {
  name: 'LimitReached',
  description: 'The request would exceed a limit that the site sets for each user.',
  interfaces: [FailureType],
  fields: (t) => ({
    user: t.exposeString('user', { description: 'The user to whom the limit applies.' }),
    limit: t.exposeString('limit', { description: 'The name of the setting that contains the limit.' }),
    allowed: t.exposeInt('allowed', {
      description: 'The maximum number of objects, such as requests with a pattern, that each user may have.',
    }),
    present: t.exposeInt('present', {
      description:
        'The number of objects, such as requests with a pattern, that the user already has. Excludes this request.',
    }),
    added: t.exposeInt('added', {
      description: 'The number of objects, such as requests with a pattern, that this request would add.',
    }),
  }),
});

const plainErrors = [
  [WrongQuotaError, 'WrongQuota', 'The request belongs to another quota.'],
  [ForbiddenError, 'Forbidden', 'The caller lacks permission for this operation.'],
  [NotFoundError, 'NotFound', 'The object does not exist.'],
  [InUseError, 'InUse', 'The object is in use.'],
] as const;
for (const [type, name, description] of plainErrors)
  builder.objectType(type, { name, description, interfaces: [FailureType] });

const contexts = new WeakMap<Error, Context>();

/** Records the request context of each error, so that the error's log line also identifies the HTTP request. */
export function rememberContext(errors: readonly Error[], ctx: Context): void {
  for (const error of errors) contexts.set(error, ctx);
}

/**
 * Returns a function that prepares errors for responses. For an error that the caller did not cause, the function logs
 * the details and hides them from the caller.
 */
export function createErrorMask(log: Logger) {
  return (error: unknown): Error => {
    const original = error instanceof GraphQLError ? error.originalError : error;
    const location = error instanceof GraphQLError ? { nodes: error.nodes ?? null, path: error.path ?? null } : {};
    const isOfDocument = error instanceof GraphQLError && (!original || original instanceof GraphQLError);
    count('tapegate_errors_total', { class: isOfDocument ? 'GRAPHQL' : classOf(original) });
    if (original instanceof UserError) {
      const field = original instanceof InvalidInputError ? { field: original.field } : {};
      return new GraphQLError(original.message, { ...location, extensions: { code: original.code, ...field } });
    }
    if (isOfDocument) return error;
    const ctx = error instanceof Error ? contexts.get(error) : undefined;
    // do not log an OverShareError, which only means that a caller has exceeded its limit
    const event = original instanceof UnavailableError ? 'GraphQL: temporarily unavailable' : 'GraphQL: internal error';
    if (!(original instanceof OverShareError)) logFailure(ctx?.log ?? log, original, event);
    if (original instanceof UnconfirmedError) {
      return new GraphQLError(original.message, { ...location, extensions: { code: 'UNCONFIRMED' } });
    }
    if (original instanceof UnavailableError) {
      const code = original instanceof OverShareError ? 'TOO_MANY_REQUESTS' : 'UNAVAILABLE';
      const extensions = { code, retryAfterSeconds: original.retryAfterSeconds };
      return new GraphQLError(original.message, { ...location, extensions });
    }
    return new GraphQLError('Internal error', { ...location, extensions: { code: 'INTERNAL_SERVER_ERROR' } });
  };
}

/** Returns the promise's value. Returns null if the promise rejects with a NotFoundError. */
export async function orNull<T>(found: Promise<T>): Promise<T | null> {
  try {
    return await found;
  } catch (error) {
    if (error instanceof NotFoundError) return null;
    throw error;
  }
}

/**
 * Replaces the name of a field in an error of an operation with the name of the input field.
 * @param names names of input fields, by the names that the operation uses
 */
export async function withFieldNames<Result>(
  operation: Promise<Result>,
  names: Readonly<Record<string, string>>,
): Promise<Result> {
  return await operation.catch((error: unknown) => {
    const name = error instanceof InvalidInputError ? names[error.field] : undefined;
    throw name !== undefined && error instanceof InvalidInputError ? new InvalidInputError(name, error.problem) : error;
  });
}

/**
 * Reads an object after a mutation has changed it. If the read fails temporarily, throws an UnconfirmedError. This
 * error tells the client not to repeat the mutation.
 */
export async function readBack<T>(read: Promise<T>): Promise<T> {
  try {
    return await read;
  } catch (error) {
    throw error instanceof UnavailableError ? new UnconfirmedError(error) : error;
  }
}

/**
 * Makes all resolvers return a rejected promise instead of throwing an error. If a resolver threw for one item in a
 * list, graphql-js would stop waiting for the promises of the other items. A later rejection of one of these promises
 * would be unhandled, and would end the process.
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
 * Logs unhandled GraphQLErrors instead of letting them end the process.
 * @returns a function that removes the handler
 */
export function logStrayErrors(log: Logger): () => void {
  const hear = (reason: unknown) => {
    if (!(reason instanceof GraphQLError)) throw reason;
    log.error({ err: reason }, `unhandled error in a GraphQL field: ${reason.message}`);
  };
  process.on('unhandledRejection', hear);
  return () => void process.off('unhandledRejection', hear);
}
