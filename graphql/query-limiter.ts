/**
 * Limits concurrent queries of a caller. A query that finds no free slot in time gets status 503 with `Retry-After`.
 * Mutations take their slots in the operations: they may wait much longer for locks.
 */
import { type ExecutionArgs, type ExecutionResult, GraphQLError, getOperationAST } from 'graphql';
import type { Context } from '../src/context.js';
import { UnavailableError } from '../src/errors.js';
import { takeTurn } from '../src/operations/turn.js';

type Execute = (args: ExecutionArgs) => Promise<ExecutionResult> | ExecutionResult;

export function limitQueries(execute: Execute): Execute {
  return async (args) => {
    const operation = getOperationAST(args.document, args.operationName)?.operation;
    if (operation !== 'query') return await execute(args);
    return await takeTurn(args.contextValue as Context, 'queries', async () => await execute(args)).catch(refuse);
  };
}

function refuse(error: unknown): { errors: GraphQLError[] } {
  if (!(error instanceof UnavailableError)) throw error;
  const { message, retryAfterSeconds } = error;
  const http = { status: 503, headers: { 'Retry-After': String(retryAfterSeconds) } };
  return { errors: [new GraphQLError(message, { extensions: { code: 'UNAVAILABLE', retryAfterSeconds, http } })] };
}
