/**
 * Limits concurrent queries of a caller. A query that finds no free slot in `WAIT_MS` gets status 503 with
 * `Retry-After`. Mutations have other limiters (src/operations/turn.ts): they may wait much longer for locks.
 */
import { type ExecutionArgs, type ExecutionResult, GraphQLError, getOperationAST } from 'graphql';
import type { Context } from '../src/context.js';
import { UnavailableError } from '../src/errors.js';
import { createSlots } from '../src/operations/turn.js';

/** In total. A caller gets at most half of the free slots. */
const SLOTS = 64;
const WAIT_MS = 10_000;

type Execute = (args: ExecutionArgs) => Promise<ExecutionResult> | ExecutionResult;

export function createQueryLimiter({ slots = SLOTS, waitMs = WAIT_MS } = {}): (execute: Execute) => Execute {
  const limiter = createSlots({ slots, waitMs, what: 'queries', doing: 'executing' });
  return (execute) => async (args) => {
    const { share, reader } = args.contextValue as Context;
    const operation = getOperationAST(args.document, args.operationName)?.operation;
    if (share === undefined || operation !== 'query') return await execute(args);
    const slot = await limiter.enter(share, reader).catch(refuse);
    if ('errors' in slot) return slot;
    try {
      return await execute(args);
    } finally {
      slot.leave();
    }
  };
}

function refuse(error: unknown): { errors: GraphQLError[] } {
  if (!(error instanceof UnavailableError)) throw error;
  const { message, retryAfterSeconds } = error;
  const http = { status: 503, headers: { 'Retry-After': String(retryAfterSeconds) } };
  return { errors: [new GraphQLError(message, { extensions: { code: 'UNAVAILABLE', retryAfterSeconds, http } })] };
}
