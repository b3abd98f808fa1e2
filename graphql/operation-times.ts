/** How long queries and mutations take, by their field: of valid documents, so that the schema bounds how many there are. */
import type { ExecutionArgs, ExecutionResult } from 'graphql';
import type { Context } from '../src/context.js';
import { secondsSince, time } from '../src/signals.js';
import { noteContext } from './errors.js';
import { executeOperation } from './execution.js';
import { findOperation } from './operation-plan.js';

export function timeOperation(args: ExecutionArgs): Promise<ExecutionResult> | ExecutionResult {
  const startedAt = performance.now();
  const end = (result: ExecutionResult) => {
    noteTime(args, startedAt);
    if (result.errors) noteContext(result.errors, args.contextValue as Context);
    return result;
  };
  const result = executeOperation(args);
  return result instanceof Promise ? result.then(end) : end(result);
}

function noteTime({ document, operationName }: ExecutionArgs, startedAt: number): void {
  const { operation: type, selectionSet } = findOperation(document, operationName);
  const [first, ...others] = selectionSet.selections;
  const field = first?.kind === 'Field' && others.length === 0 ? first.name.value : 'several';
  time('tapegate_graphql_operation_seconds', { type, field }, secondsSince(startedAt));
}
