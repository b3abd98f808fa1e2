/**
 * Executes GraphQL operations without a gateway, in a process that has opened the database. The results are the same as
 * a gateway's results.
 */
import { type ExecutionResult, execute, GraphQLError, parse, subscribe } from 'graphql';
import { UnavailableError, UserError } from '../../src/core/errors.js';
import type { Context } from '../../src/domain/context.js';
import { createErrorMask } from '../schema/errors.js';
import { schema } from '../schema/schema.js';

type Variables = Record<string, unknown>;
type Result = ExecutionResult<Record<string, unknown>>;

export async function executeHere(ctx: Context, query: string, variableValues: Variables): Promise<Result> {
  return present(await execute({ schema, document: parse(query), variableValues, contextValue: ctx }), ctx);
}

/** Yields a subscription's results until the subscription completes or the signal aborts. */
export async function* followHere(
  ctx: Context,
  query: string,
  variableValues: Variables,
  signal: AbortSignal | undefined,
): AsyncGenerator<Result> {
  await ctx.events.open();
  const results = await subscribe({ schema, document: parse(query), variableValues, contextValue: ctx });
  if (!(Symbol.asyncIterator in results)) return yield present(results, ctx);
  const end = () => void results.return(undefined);
  signal?.addEventListener('abort', end);
  if (signal?.aborted) end();
  try {
    for await (const result of results) if (!signal?.aborted) yield present(result, ctx);
  } finally {
    signal?.removeEventListener('abort', end);
  }
}

/**
 * Converts a result to the form in which a gateway sends it: JSON values, with expected failures as GraphQL errors.
 * @throws errors that are not expected failures
 */
function present({ data, errors = [] }: ExecutionResult, { log }: Context): Result {
  const mask = createErrorMask(log.child({}, { level: 'silent' }));
  const reported = errors.map((error) => {
    const { originalError = error } = error;
    if (![UserError, UnavailableError, GraphQLError].some((kind) => originalError instanceof kind)) throw originalError;
    return mask(error) as GraphQLError;
  });
  return { data: JSON.parse(JSON.stringify(data ?? null)), ...(reported.length > 0 && { errors: reported }) };
}
