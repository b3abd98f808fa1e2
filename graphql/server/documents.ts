/** Parses GraphQL operations, validates them, and limits their size and cost. */

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
  Kind,
  NoSchemaIntrospectionCustomRule,
  type OperationDefinitionNode,
  parse,
  type SelectionNode,
  type SelectionSetNode,
  specifiedRules,
  type ValidationContext,
  type ValidationRule,
  validate,
} from 'graphql';
import type { Plugin } from 'graphql-yoga';
import { LRUCache } from 'lru-cache';
import type { Context } from '../../src/domain/context.js';

/** Maximum number of tokens in a document. Parsing millions of tokens would take seconds. */
const MAX_TOKENS = 10_000;

const PARSE_FAILED = { code: 'GRAPHQL_PARSE_FAILED', http: { spec: true, status: 400 } };

/**
 * Maximum number of characters in a document. This limit is necessary because comments and commas do not count as
 * tokens.
 */
const MAX_TEXT = 256 * 1024;

/**
 * Maximum number of fields and fragment spreads in a document. The limit bounds the time for validation, which compares
 * fields with each other.
 */
const MAX_SELECTIONS = 500;
const MAX_FRAGMENTS = 50;

/**
 * Maximum number of fields in a document that have the same alias or name. The limit bounds the time for validation,
 * which compares each pair of these fields. Fields that have neither arguments nor subfields do not count.
 */
const MAX_REPEATS = 50;

/**
 * Parses a document. Limits the document's size, so that validation takes only a few milliseconds.
 * @throws GraphQLError
 */
export function parseDocument(text: string): DocumentNode {
  try {
    if (text.length > MAX_TEXT)
      throw tooLarge(`the query has ${text.length} characters, but at most ${MAX_TEXT} are allowed`, {
        found: text.length,
        allowed: MAX_TEXT,
      });
    const document = parse(text, { maxTokens: MAX_TOKENS });
    const excess = findExcessOfText(document);
    if (excess) throw excess;
    return document;
  } catch (error) {
    // a deeply nested query overflows the parser's stack
    const fault = error instanceof RangeError ? new GraphQLError('the query is nested too deeply') : error;
    if (fault instanceof GraphQLError && fault.extensions.code === undefined)
      Object.assign(fault.extensions, PARSE_FAILED);
    throw fault;
  }
}

/** Counts the nodes of a fragment only once, even if the document uses the fragment several times. */
function findExcessOfText({ definitions }: DocumentNode): GraphQLError | undefined {
  const repeats = new Map<string, number>();
  let selections = 0;
  const visit = (set: SelectionSetNode | undefined): void => {
    for (const selection of set?.selections ?? []) {
      selections++;
      if (selection.kind === Kind.FRAGMENT_SPREAD) continue;
      visit(selection.selectionSet);
      if (selection.kind !== Kind.FIELD || !(selection.selectionSet || selection.arguments?.length)) continue;
      const name = (selection.alias ?? selection.name).value;
      repeats.set(name, (repeats.get(name) ?? 0) + 1);
    }
  };
  for (const definition of definitions) if ('selectionSet' in definition) visit(definition.selectionSet);
  const most = Math.max(0, ...repeats.values());
  const exceeds = (found: number, allowed: number, what: string) =>
    found > allowed
      ? tooLarge(`the query has ${found} ${what}, but at most ${allowed} are allowed`, { found, allowed })
      : undefined;
  return (
    exceeds(selections, MAX_SELECTIONS, 'fields and fragment spreads') ??
    exceeds(definitions.length, MAX_FRAGMENTS, 'operations and fragments') ??
    exceeds(most, MAX_REPEATS, 'fields with the same alias or name that have arguments or subfields')
  );
}

export interface CheckedDocument {
  text: string;
  document: DocumentNode | undefined;
  faults: readonly Error[];
}

/** Parses and validates a document. Returns errors instead of throwing them. */
export function checkDocument(text: string, schema: GraphQLSchema, rules: readonly ValidationRule[]): CheckedDocument {
  try {
    const document = parseDocument(text);
    return { text, document, faults: validate(schema, document, [...specifiedRules, ...rules]) };
  } catch (error) {
    return { text, document: undefined, faults: [error as Error] };
  }
}

/** Returns the validation rules that Tapegate adds to those of the GraphQL specification. */
export function ownRules({ introspection }: { introspection: boolean }): ValidationRule[] {
  const rules: ValidationRule[] = [refuseOptionalSubscription, limitIntrospection, limitCounts];
  return introspection ? rules : [...rules, NoSchemaIntrospectionCustomRule];
}

/**
 * Maximum total length of the cached documents, in characters. A parsed document uses up to 235 bytes of memory per
 * character, so the cache uses at most 24 MB.
 */
const MAX_CHARACTERS = 100_000;
/** Maximum length of a cached document, in characters. A longer document would evict most other documents. */
const MAX_DOCUMENT = 10_000;

/** Creates a cache for parsed documents. The cache is limited, because clients can send any number of documents. */
export function createDocumentCache(): LRUCache<string, CheckedDocument> {
  return new LRUCache({
    maxSize: MAX_CHARACTERS,
    maxEntrySize: MAX_DOCUMENT,
    sizeCalculation: (_document, text) => Math.max(text.length, 1),
  });
}

/**
 * Rejects `@skip` and `@include` in a subscription. These directives could remove the subscription's only field, and
 * executors expect exactly one field.
 */
function refuseOptionalSubscription(context: ValidationContext): ASTVisitor {
  const check = (selection: SelectionNode) => {
    const optional = selection.directives?.find(({ name }) => name.value === 'skip' || name.value === 'include');
    if (!optional || context.getParentType() !== context.getSchema().getSubscriptionType()) return;
    const what = selection.kind === Kind.FIELD ? `"${selection.name.value}"` : 'a fragment';
    const message = `@${optional.name.value} is not allowed on ${what}: a subscription must always have exactly one root field`;
    context.reportError(new GraphQLError(message, { nodes: optional }));
  };
  return { Field: check, InlineFragment: check, FragmentSpread: check };
}

const COUNTS = new Set(['totalCount', 'isCountEstimated']);

/** Maximum number of fields, such as `totalCount`, that count the items of a list. Each count might scan all files. */
const MAX_COUNTS = 25;

function limitCounts(context: ValidationContext): ASTVisitor {
  return {
    OperationDefinition: ({ selectionSet }) => {
      const fragments = fragmentsOf(context.getDocument());
      const inList = createSum(fragments, ({ name }) => (COUNTS.has(name.value) ? 1 : 0));
      const ofRoot = createSum(fragments, (field) => (field.selectionSet ? inList(field.selectionSet) : 0));
      const found = ofRoot(selectionSet);
      const says = `the query requests the total counts of ${found} top-level lists, but at most ${MAX_COUNTS} are allowed`;
      if (found > MAX_COUNTS) context.reportError(tooLarge(says, { found, allowed: MAX_COUNTS }));
    },
  };
}

/**
 * For each list field of the introspection schema, the approximate number of items in the list. A field that is not in
 * the map counts as one item.
 */
const ITEMS = new Map([
  ['__type', 10],
  ['types', 200],
  ['directives', 6],
  ['fields', 3],
]);

/** Charges each alias of `__schema` separately, because the executor repeats the introspection for each alias. */
function introspectionCost({ selectionSet }: OperationDefinitionNode, fragments: Fragments): number {
  const costOf = ({ name, selectionSet: set }: FieldNode): number =>
    1 + (set ? below(set) * (ITEMS.get(name.value) ?? 1) : 0);
  const below = createSum(fragments, costOf);
  const isOfSchema = ({ name }: FieldNode) => name.value === '__schema' || name.value === '__type';
  return createSum(fragments, (field) => (isOfSchema(field) ? costOf(field) : 0))(selectionSet);
}

// allow three times the cost of the full introspection query, which GraphiQL and other tools send
const whole = parse(getIntrospectionQuery({ specifiedByUrl: true, inputValueDeprecation: true, oneOf: true }));
const MOST_OF_SCHEMA = 3 * introspectionCost(whole.definitions[0] as OperationDefinitionNode, fragmentsOf(whole));

function limitIntrospection(context: ValidationContext): ASTVisitor {
  return {
    OperationDefinition: (operation) => {
      const found = introspectionCost(operation, fragmentsOf(context.getDocument()));
      const says = `the introspection in the query has a cost of ${found}, but at most ${MOST_OF_SCHEMA} is allowed`;
      if (found > MOST_OF_SCHEMA) context.reportError(tooLarge(says, { found, allowed: MOST_OF_SCHEMA }));
    },
  };
}

type Fragments = ReadonlyMap<string, FragmentDefinitionNode>;

function fragmentsOf(document: DocumentNode): Fragments {
  const fragments = document.definitions.filter((node) => node.kind === Kind.FRAGMENT_DEFINITION);
  return new Map(fragments.map((node) => [node.name.value, node]));
}

/**
 * Returns a function that adds up the weights of all fields in a selection set, including its fragments. Counts a
 * recursive use of a selection set as 0, because validation rejects recursive documents.
 */
function createSum(fragments: Fragments, weigh: (field: FieldNode) => number): (set: SelectionSetNode) => number {
  const done = new Map<SelectionSetNode, number>();
  const sum = (set: SelectionSetNode): number => {
    const before = done.get(set);
    if (before !== undefined) return before;
    done.set(set, 0);
    let total = 0;
    for (const selection of set.selections) {
      if (selection.kind === Kind.FIELD) {
        total += weigh(selection);
        continue;
      }
      const { selectionSet } =
        selection.kind === Kind.INLINE_FRAGMENT ? selection : (fragments.get(selection.name.value) ?? {});
      if (selectionSet) total += sum(selectionSet);
    }
    done.set(set, total);
    return total;
  };
  return sum;
}

type Limits = Context['config']['limits'];

/**
 * A limit that a document exceeds. `limit` is the name of the setting that configures the limit, if there is such a
 * setting.
 */
interface Excess {
  limit?: string;
  found: number;
  allowed: number;
}

function tooLarge(message: string, { limit, found, allowed }: Excess): GraphQLError {
  const figures = { ...(limit !== undefined && { limit }), found, allowed };
  return new GraphQLError(message, {
    extensions: { code: 'TOO_LARGE', ...figures, http: { spec: true, status: 400 } },
  });
}

export function limitOperations(limits: Limits): Plugin {
  const check = ({ args, setResultAndStopExecution }: Hook) => {
    const error = findExcess(args, limits);
    if (error) setResultAndStopExecution({ errors: [error] });
  };
  return { onExecute: check };
}

interface Hook {
  args: ExecutionArgs;
  setResultAndStopExecution(result: { errors: GraphQLError[] }): void;
}

/** Returns an error if an operation exceeds a limit or has invalid variables. */
export function findExcess(
  { schema, document, operationName, variableValues, contextValue }: ExecutionArgs,
  limits: Limits,
): GraphQLError | undefined {
  const operation = getOperationAST(document, operationName);
  const given = variableValues ?? {};
  if (!operation) return undefined;
  const [invalid] = readVariables(schema, operation, given).errors ?? [];
  if (invalid) return invalid;
  const fragments = document.definitions.filter(({ kind }) => kind === Kind.FRAGMENT_DEFINITION);
  const { depth, breadth, complexity } = complexityFromQuery(
    { kind: Kind.DOCUMENT, definitions: [operation, ...fragments] },
    { schema, ctx: contextValue as object, variables: given },
  );
  return (
    exceed('GRAPHQL_DEPTH', depth, limits.graphqlDepth, (n) => `nests fields ${n} levels deep`) ??
    exceed('GRAPHQL_BREADTH', breadth, limits.graphqlBreadth, (n) => `has ${n} fields`) ??
    exceed('GRAPHQL_COMPLEXITY', complexity, limits.graphqlComplexity, (n) => `has a cost of ${n}`)
  );
}

/**
 * Maximum number of keys in any object in an operation's variables. If an object has more keys, an error message about
 * the object would be too long.
 */
const MAX_KEYS = 100;
const MAX_MESSAGE_LENGTH = 500;

/**
 * Returns the variables' values. If several values are invalid, returns only the first error, because each message
 * contains the whole invalid value.
 */
export function readVariables(
  schema: GraphQLSchema,
  { variableDefinitions = [] }: OperationDefinitionNode,
  given: Record<string, unknown>,
): { coerced: Record<string, unknown>; errors?: never } | { coerced?: never; errors: GraphQLError[] } {
  const found = countKeys(Object.values(given));
  if (found > MAX_KEYS) {
    const message = `an object in the variables has ${found} keys, but at most ${MAX_KEYS} are allowed`;
    return { errors: [tooLarge(message, { found, allowed: MAX_KEYS })] };
  }
  const read = getVariableValues(schema, variableDefinitions, given, { maxErrors: 1 });
  return read.errors ? { errors: read.errors.slice(0, 1).map(shorten) } : read;
}

function countKeys(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  const items = Object.values(value);
  let most = Array.isArray(value) ? 0 : items.length;
  for (const item of items) most = Math.max(most, countKeys(item));
  return most;
}

function shorten(error: GraphQLError): GraphQLError {
  const { message, nodes = null } = error;
  const shown = message.length > MAX_MESSAGE_LENGTH ? `${message.slice(0, MAX_MESSAGE_LENGTH)}…` : message;
  return new GraphQLError(shown, { nodes, extensions: { code: 'INVALID_INPUT', http: { status: 400 } } });
}

function exceed(limit: string, found: number, allowed: number, say: (found: number) => string) {
  if (found <= allowed) return undefined;
  return tooLarge(`the operation ${say(Math.ceil(found))}, but the maximum is ${allowed} (${limit})`, {
    limit,
    found,
    allowed,
  });
}
