/** Rules for what a query may ask, as far as no field counts it: of the schema itself, and counts of long lists. */
import {
  type ASTVisitor,
  type DocumentNode,
  type FieldNode,
  type FragmentDefinitionNode,
  type GraphQLSchema,
  getIntrospectionQuery,
  isAbstractType,
  isEnumType,
  isInputObjectType,
  isInterfaceType,
  isObjectType,
  Kind,
  type OperationDefinitionNode,
  parse,
  type SelectionSetNode,
  type ValidationContext,
} from 'graphql';
import { tooLarge } from './operation-limits.js';

const COUNTS = new Set(['totalCount', 'isCountEstimated']);

/** Each may be a search through all files. */
const MAX_COUNTS = 25;

/** So often a query may ask the whole of what GraphiQL and tools ask of the schema. */
const WHOLES = 3;

/** The largest type has about so many times the fields of the average one. */
const LARGEST = 10;

/** A list that hangs on nothing may have to be searched through for its count. */
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
 * An alias of `__schema` gives all of it again. The cost is about the number of fields in the answer, from how much this schema
 * has of each kind.
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
 * A function that sums up what the fields of a set weigh, those of its fragments included. Each set is gone through once, however
 * often it is named; one that is within itself, which is refused elsewhere, weighs nothing there.
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
