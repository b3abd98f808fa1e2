/** Parses and validates operations. */

import { complexityFromQuery } from '@pothos/plugin-complexity';
import {
  type ASTVisitor,
  type DocumentNode,
  type ExecutionArgs,
  type FieldNode,
  type FragmentDefinitionNode,
  GraphQLError,
  type GraphQLSchema,
  getIntrospectionQuery,
  getOperationAST,
  getVariableValues,
  isAbstractType,
  isEnumType,
  isInputObjectType,
  isInterfaceType,
  isObjectType,
  Kind,
  NoSchemaIntrospectionCustomRule,
  type OperationDefinitionNode,
  parse,
  type SelectionNode,
  type SelectionSetNode,
  type ValidationContext,
  type ValidationRule,
  visit,
} from 'graphql';
import type { Plugin } from 'graphql-yoga';
import { LRUCache } from 'lru-cache';
import type { Context } from '../src/context.js';

/** An ordinary query has some hundred tokens. Parsing one of millions takes seconds. */
const MAX_TOKENS = 10_000;

const PARSE_FAILED = { code: 'GRAPHQL_PARSE_FAILED', http: { spec: true, status: 400 } };

/** Parses a document of a limited number of tokens. @throws GraphQLError */
export function parseDocument(text: string): DocumentNode {
  try {
    return parse(text, { maxTokens: MAX_TOKENS });
  } catch (error) {
    // the parser runs out of stack if a query is nested too deeply
    const fault = error instanceof RangeError ? new GraphQLError('the query is nested too deeply') : error;
    if (fault instanceof GraphQLError) Object.assign(fault.extensions, PARSE_FAILED);
    throw fault;
  }
}

/** Returns validation rules beyond the specification. */
export function ownRules({ introspection }: { introspection: boolean }): ValidationRule[] {
  const rules: ValidationRule[] = [refuseOptionalSubscription, limitIntrospection, limitCounts];
  return introspection ? rules : [...rules, NoSchemaIntrospectionCustomRule];
}

/** A parsed document takes up to 235 bytes of memory per character: 24 MB for this limit. */
const MAX_CHARACTERS = 100_000;
/** A larger document is parsed each time, so that it does not displace all others. */
const MAX_DOCUMENT = 10_000;

/** Limited by the length of texts, since any client may send new ones. */
export function createDocumentCache(): LRUCache<string, DocumentNode> {
  return new LRUCache({
    maxSize: MAX_CHARACTERS,
    maxEntrySize: MAX_DOCUMENT,
    sizeCalculation: (_document, text) => Math.max(text.length, 1),
  });
}

/** `@skip` could leave a subscription without a field, which executors do not expect. */
export function refuseOptionalSubscription(context: ValidationContext) {
  return {
    OperationDefinition: (node: { operation: string; selectionSet: { selections: readonly SelectionNode[] } }) => {
      if (node.operation !== 'subscription') return;
      const seen = new Set<string>();
      const check = (selections: readonly SelectionNode[]): void => {
        for (const selection of selections) {
          report(context, selection);
          if (selection.kind === Kind.INLINE_FRAGMENT) check(selection.selectionSet.selections);
          if (selection.kind !== Kind.FRAGMENT_SPREAD || seen.has(selection.name.value)) continue;
          seen.add(selection.name.value);
          check(context.getFragment(selection.name.value)?.selectionSet.selections ?? []);
        }
      };
      check(node.selectionSet.selections);
    },
  };
}

function report(context: ValidationContext, selection: SelectionNode): void {
  const optional = selection.directives?.find(({ name }) => name.value === 'skip' || name.value === 'include');
  if (!optional) return;
  const what = selection.kind === Kind.FIELD ? `"${(selection as FieldNode).name.value}"` : 'a fragment';
  context.reportError(
    new GraphQLError(
      `@${optional.name.value} is not allowed on ${what}: a subscription always has its one root field`,
      {
        nodes: optional,
      },
    ),
  );
}

const COUNTS = new Set(['totalCount', 'isCountEstimated']);

/** Each may scan all files. */
const MAX_COUNTS = 25;

/** A query may request the whole introspection of GraphiQL and tools this many times. */
const WHOLES = 3;

/** The largest type has about this many times the fields of the average one. */
const LARGEST = 10;

/** Counting a root list may scan it. */
export function limitCounts(context: ValidationContext): ASTVisitor {
  return {
    OperationDefinition: ({ selectionSet }) => {
      const fragments = fragmentsOf(context.getDocument());
      const inList = createSum(fragments, ({ name }) => (COUNTS.has(name.value) ? 1 : 0));
      const ofRoot = createSum(fragments, (field) => (field.selectionSet ? inList(field.selectionSet) : 0));
      const found = ofRoot(selectionSet);
      const says = `the query asks for ${found} counts of lists that hang on nothing, and ${MAX_COUNTS} are allowed`;
      if (found > MAX_COUNTS) context.reportError(tooLarge(says, { found, allowed: MAX_COUNTS }));
    },
  };
}

/**
 * An alias of `__schema` repeats all of it. The cost is about the number of fields in the response, from averages of
 * this schema.
 */
export function limitIntrospection(context: ValidationContext): ASTVisitor {
  return {
    OperationDefinition: (operation) => {
      const { items, max } = boundsOf(context.getSchema());
      const found = Math.round(introspectionCost(operation, { items, fragments: fragmentsOf(context.getDocument()) }));
      const says = `what the query asks of the schema itself may cost ${found}, and ${max} are allowed`;
      if (found > max) context.reportError(tooLarge(says, { found, allowed: max }));
    },
  };
}

interface Bounds {
  /** Items in the average list of that name. */
  items: ReadonlyMap<string, number>;
  max: number;
}

const known = new WeakMap<GraphQLSchema, Bounds>();

function boundsOf(schema: GraphQLSchema): Bounds {
  let bounds = known.get(schema);
  if (!bounds) {
    const items = countItems(schema);
    const query = parse(getIntrospectionQuery({ specifiedByUrl: true, inputValueDeprecation: true }));
    const whole = introspectionCost(query.definitions[0] as OperationDefinitionNode, {
      items,
      fragments: fragmentsOf(query),
    });
    bounds = { items, max: Math.ceil(whole * WHOLES) };
    known.set(schema, bounds);
  }
  return bounds;
}

function countItems(schema: GraphQLSchema): Map<string, number> {
  const types = Object.values(schema.getTypeMap());
  const fields = types.flatMap((type) =>
    isObjectType(type) || isInterfaceType(type) ? Object.values(type.getFields()) : [],
  );
  const each = (count: number, among: number) => Math.max(1, count / Math.max(1, among));
  const sum = (counts: number[]) => counts.reduce((total, count) => total + count, 0);
  return new Map([
    ['types', types.length],
    ['directives', schema.getDirectives().length],
    ['fields', each(fields.length, types.length)],
    ['args', each(sum(fields.map(({ args }) => args.length)), fields.length)],
    [
      'inputFields',
      each(sum(types.filter(isInputObjectType).map((type) => Object.keys(type.getFields()).length)), types.length),
    ],
    ['enumValues', each(sum(types.filter(isEnumType).map((type) => type.getValues().length)), types.length)],
    [
      'possibleTypes',
      each(sum(types.filter(isAbstractType).map((type) => schema.getPossibleTypes(type).length)), types.length),
    ],
    ['interfaces', each(sum(types.filter(isObjectType).map((type) => type.getInterfaces().length)), types.length)],
  ]);
}

type Fragments = ReadonlyMap<string, FragmentDefinitionNode>;

function introspectionCost(
  { selectionSet }: OperationDefinitionNode,
  { items, fragments }: { items: ReadonlyMap<string, number>; fragments: Fragments },
): number {
  const inSchema = createSum(fragments, ({ name, selectionSet: set }) =>
    set ? 1 + inSchema(set) * (items.get(name.value) ?? 1) : 1,
  );
  const ofRoot = createSum(fragments, ({ name, selectionSet: set }) => {
    if (!set || (name.value !== '__schema' && name.value !== '__type')) return 0;
    return 1 + inSchema(set) * (name.value === '__type' ? LARGEST : 1);
  });
  return ofRoot(selectionSet);
}

function fragmentsOf(document: DocumentNode): Fragments {
  const fragments = document.definitions.filter((node) => node.kind === Kind.FRAGMENT_DEFINITION);
  return new Map(fragments.map((node) => [node.name.value, node]));
}

/**
 * Returns a function that sums the weights of a set's fields, fragments included. It visits each set once; a recursive
 * set, which validation rejects, weighs nothing.
 */
function createSum(fragments: Fragments, weigh: (field: FieldNode) => number): (set: SelectionSetNode) => number {
  const done = new Map<SelectionSetNode, number>();
  const sum = (set: SelectionSetNode): number => {
    const before = done.get(set);
    if (before !== undefined) return before;
    done.set(set, 0);
    let total = 0;
    for (const selection of set.selections) {
      if (selection.kind === Kind.FIELD) total += weigh(selection);
      else if (selection.kind === Kind.INLINE_FRAGMENT) total += sum(selection.selectionSet);
      else total += sum(fragments.get(selection.name.value)?.selectionSet ?? EMPTY);
    }
    done.set(set, total);
    return total;
  };
  return sum;
}

const EMPTY: SelectionSetNode = { kind: Kind.SELECTION_SET, selections: [] };

type Limits = Context['config']['limits'];

/** `limit` is the setting, if there is one. */
interface Excess {
  limit?: string;
  found: number;
  allowed: number;
}

/** @param message with both figures */
export function tooLarge(message: string, { limit, found, allowed }: Excess): GraphQLError {
  const figures = { ...(limit !== undefined && { limit }), found, allowed };
  // the same status as for invalid documents
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

/** Operations within the limits for any variables. */
const within = new WeakMap<Limits, WeakSet<OperationDefinitionNode>>();

/** Only page sizes change the cost of a field. */
const SIZES = new Set(['first', 'last']);

/** Whether any page size is a variable. */
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

/** @returns the cost; undefined if it cannot be measured */
function measure(
  operation: OperationDefinitionNode,
  { schema, document, variableValues, contextValue }: ExecutionArgs,
  limits: Limits,
): GraphQLError | number | undefined {
  const given = variableValues ?? {};
  // the executor reports invalid variables
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
