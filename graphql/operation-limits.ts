/**
 * How large an operation may be: looked at once, before any of its fields is. Pothos would refuse each field of the root for
 * itself, and a subscription only when it has something to tell.
 */
import { complexityFromQuery } from '@pothos/plugin-complexity';
import {
  type DocumentNode,
  type ExecutionArgs,
  GraphQLError,
  getOperationAST,
  getVariableValues,
  Kind,
  type OperationDefinitionNode,
  visit,
} from 'graphql';
import type { Plugin } from 'graphql-yoga';
import type { Context } from '../src/context.js';

type Limits = Context['config']['limits'];

/** What was found is more than is allowed. `limit` is the setting that says how much, where one does. */
interface Excess {
  limit?: string;
  found: number;
  allowed: number;
}

/** @param message with both figures */
export function tooLarge(message: string, { limit, found, allowed }: Excess): GraphQLError {
  const figures = { ...(limit !== undefined && { limit }), found, allowed };
  // as for what is not valid, which it is here
  return new GraphQLError(message, {
    extensions: { code: 'TOO_LARGE', ...figures, http: { spec: true, status: 400 } },
  });
}

export function limitOperations(limits: Limits): Plugin {
  const check = ({ args, setResultAndStopExecution }: Hook) => {
    const error = findExcess(args, limits);
    if (error) setResultAndStopExecution({ errors: [error] });
  };
  return {
    onExecute: ({ args, setResultAndStopExecution }) => check({ args, setResultAndStopExecution }),
    onSubscribe: ({ args, setResultAndStopExecution }) => check({ args, setResultAndStopExecution }),
  };
}

interface Hook {
  args: ExecutionArgs;
  setResultAndStopExecution(result: { errors: GraphQLError[] }): void;
}

/** Operations that keep the limits with any variables. */
const within = new WeakMap<Limits, WeakSet<OperationDefinitionNode>>();

/** What a field costs goes by the size of its page, if by any of its arguments. */
const SIZES = new Set(['first', 'last']);

/** Is the size of a page a variable anywhere in the document? */
function hasOpenSizes(document: DocumentNode): boolean {
  let isOpen = false;
  visit(document, {
    Argument: ({ name, value }) => {
      if (SIZES.has(name.value) && value.kind === Kind.VARIABLE) isOpen = true;
    },
  });
  return isOpen;
}

/** Returns an error if an operation exceeds a limit; undefined if it may be executed. */
export function findExcess(args: ExecutionArgs, limits: Limits): GraphQLError | undefined {
  const operation = getOperationAST(args.document, args.operationName);
  const known = within.get(limits) ?? new WeakSet();
  within.set(limits, known);
  if (!operation || known.has(operation)) return undefined;
  const found = measure(operation, args, limits);
  if (found instanceof GraphQLError) return found;
  if (found !== undefined && !hasOpenSizes(args.document)) known.add(operation);
  return undefined;
}

/** @returns what it may cost; undefined where nothing can be measured */
function measure(
  operation: OperationDefinitionNode,
  { schema, document, variableValues, contextValue }: ExecutionArgs,
  limits: Limits,
): GraphQLError | number | undefined {
  const given = variableValues ?? {};
  // what is wrong with the variables, whoever executes it says
  if (getVariableValues(schema, operation.variableDefinitions ?? [], given).errors) return undefined;
  const fragments = document.definitions.filter(({ kind }) => kind === Kind.FRAGMENT_DEFINITION);
  const { depth, breadth, complexity } = complexityFromQuery(
    { kind: Kind.DOCUMENT, definitions: [operation, ...fragments] },
    { schema, ctx: contextValue as object, variables: given },
  );
  return (
    exceed('GRAPHQL_DEPTH', depth, limits.graphqlDepth, (n) => `has fields ${n} deep within each other`) ??
    exceed('GRAPHQL_BREADTH', breadth, limits.graphqlBreadth, (n) => `has ${n} fields in all`) ??
    exceed('GRAPHQL_COMPLEXITY', complexity, limits.graphqlComplexity, (n) => `may cost ${n}`) ??
    complexity
  );
}

function exceed(limit: string, found: number, allowed: number, say: (found: number) => string) {
  if (found <= allowed) return undefined;
  return tooLarge(`the operation ${say(Math.ceil(found))}, and ${allowed} are allowed (${limit})`, {
    limit,
    found,
    allowed,
  });
}
