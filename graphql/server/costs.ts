/** Computes the cost of GraphQL operations, limits the cost, and reports it to clients that ask for it. */

import type { IncomingMessage } from 'node:http';
import { complexityFromQuery } from '@pothos/plugin-complexity';
import { type ExecutionArgs, type ExecutionResult, type GraphQLError, getOperationAST, Kind } from 'graphql';
import type { Plugin } from 'graphql-yoga';
import type { Context } from '../../src/domain/context.js';
import { readVariables, tooLarge } from './documents.js';

type Limits = Context['config']['limits'];

interface Figures {
  complexity: number;
  depth: number;
  breadth: number;
}

/** The extensions of a response: the operation's cost, if the client sent the header `GraphQL-Cost: report`. */
interface Extensions {
  extensions?: { cost: Figures & { limits: Figures } };
}

/** Rejects operations that exceed a limit or have invalid variables, before they are executed. */
export function limitOperations(limits: Limits): Plugin {
  return {
    onExecute: ({ args, setResultAndStopExecution }) => {
      const { error, report } = checkOperation(args, limits);
      if (error) return setResultAndStopExecution({ errors: [error], ...report });
      if (!report.extensions) return undefined;
      return { onExecuteDone: ({ result, setResult }) => setResult({ ...(result as ExecutionResult), ...report }) };
    },
  };
}

/**
 * Compares an operation with the limits.
 * @returns an error if the operation exceeds a limit or has invalid variables
 */
export function checkOperation(
  { schema, document, operationName, variableValues, contextValue }: ExecutionArgs,
  limits: Limits,
): { error?: GraphQLError | undefined; report: Extensions } {
  const operation = getOperationAST(document, operationName);
  const given = variableValues ?? {};
  if (!operation) return { report: {} };
  const [invalid] = readVariables(schema, operation, given).errors ?? [];
  if (invalid) return { error: invalid, report: {} };
  const fragments = document.definitions.filter(({ kind }) => kind === Kind.FRAGMENT_DEFINITION);
  const { depth, breadth, complexity } = complexityFromQuery(
    { kind: Kind.DOCUMENT, definitions: [operation, ...fragments] },
    { schema, ctx: contextValue as object, variables: given },
  );
  const cost: Figures = { complexity: Math.round(complexity * 1000) / 1000, depth, breadth };
  const { graphqlDepth, graphqlBreadth, graphqlComplexity } = limits;
  const most: Figures = { complexity: graphqlComplexity, depth: graphqlDepth, breadth: graphqlBreadth };
  const { req } = contextValue as { req?: IncomingMessage };
  const isWanted = req?.headers['graphql-cost'] === 'report';
  return { error: findExcess(cost, most), report: isWanted ? { extensions: { cost: { ...cost, limits: most } } } : {} };
}

function findExcess(cost: Figures, most: Figures): GraphQLError | undefined {
  return (
    exceed('GRAPHQL_DEPTH', cost.depth, most.depth, (n) => `nests fields ${n} levels deep`) ??
    exceed('GRAPHQL_BREADTH', cost.breadth, most.breadth, (n) => `has ${n} fields`) ??
    exceed('GRAPHQL_COMPLEXITY', cost.complexity, most.complexity, (n) => `has a cost of ${n}`)
  );
}

function exceed(limit: string, found: number, allowed: number, say: (found: number) => string) {
  if (found <= allowed) return undefined;
  return tooLarge(`the operation ${say(Math.ceil(found))}, but the maximum is ${allowed} (${limit})`, {
    limit,
    found,
    allowed,
  });
}
