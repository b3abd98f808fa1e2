/**
 * What an operation asks for, worked out once for all who ask it: its fields by the types that they are asked of, with what resolves
 * and what completes each. Kept with the document, so that it goes when the document does.
 */
import {
  type DocumentNode,
  type FieldNode,
  type FragmentDefinitionNode,
  GraphQLError,
  type GraphQLField,
  type GraphQLFieldResolver,
  GraphQLIncludeDirective,
  type GraphQLObjectType,
  type GraphQLOutputType,
  type GraphQLResolveInfo,
  type GraphQLSchema,
  GraphQLSkipDirective,
  getArgumentValues,
  getDirectiveValues,
  isAbstractType,
  isObjectType,
  Kind,
  type OperationDefinitionNode,
  SchemaMetaFieldDef,
  type SelectionNode,
  type SelectionSetNode,
  TypeMetaFieldDef,
  TypeNameMetaFieldDef,
  visit,
} from 'graphql';
import { shapeOf, type TypeShape } from './type-shape.js';

export type Variables = Record<string, unknown>;

export interface FieldPlan {
  /** In the result. */
  key: string;
  name: string;
  nodes: readonly FieldNode[];
  parentType: GraphQLObjectType;
  type: GraphQLOutputType;
  shape: TypeShape;
  resolve: GraphQLFieldResolver<unknown, unknown>;
  /** Is it no more than a property of its parent? Its name. */
  property: string | undefined;
  extensions: GraphQLField<unknown, unknown>['extensions'];
  /** @throws GraphQLError */
  argsOf(variables: Variables): Record<string, unknown>;
  /** What is asked of its value where that is of this type. @throws GraphQLError */
  fieldsOf(type: GraphQLObjectType): readonly FieldPlan[];
}

/** Of one operation of a document, with the same fields left out by `@skip` and `@include`. */
export interface OperationPlan {
  operation: OperationDefinitionNode;
  fragments: Record<string, FragmentDefinitionNode>;
  /** @throws GraphQLError */
  fieldsOf(type: GraphQLObjectType): readonly FieldPlan[];
}

/** Ways to leave out fields that are kept of one operation, since each keeps a plan of all of it; others are worked out each time. */
const MAX_CHOICES = 1;

/**
 * Of a plan that is kept. Each takes a kilobyte, and fragments within fragments make thousands of them of some hundred characters, which is what
 * the documents that are kept are bounded by. What may ask so much (cost-rules.ts) is planned anew each time.
 */
const MAX_FIELDS = 300;

const known = new WeakMap<OperationDefinitionNode, { choices: string[]; plans: Map<string, OperationPlan> }>();

/** @param variables as they are after coercion */
export function planOperation(
  schema: GraphQLSchema,
  document: DocumentNode,
  operation: OperationDefinitionNode,
  variables: Variables,
): OperationPlan {
  let kept = known.get(operation);
  if (!kept) {
    kept = { choices: choicesOf(document), plans: new Map() };
    known.set(operation, kept);
  }
  const choice = kept.choices.map((name) => String(decisionOf(variables[name]))).join();
  const plan =
    kept.plans.get(choice) ?? new Planner(schema, document, variables, () => known.delete(operation)).plan(operation);
  if (kept.plans.size < MAX_CHOICES) kept.plans.set(choice, plan);
  return plan;
}

/** In another operation of the document a variable of the same name may be anything, of any length, and is not to be kept with the plan. */
function decisionOf(value: unknown): boolean | null | undefined {
  return typeof value === 'boolean' || value === null ? value : undefined;
}

/** The variables that decide which fields are there. */
function choicesOf(document: DocumentNode): string[] {
  const names = new Set<string>();
  visit(document, {
    Directive: ({ arguments: given = [] }) => {
      for (const { value } of given) if (value.kind === Kind.VARIABLE) names.add(value.name.value);
    },
  });
  return [...names];
}

const plans = new WeakMap<readonly FieldNode[], FieldPlan>();

/** Of the field that is resolved; undefined where another executor does it. */
export function planOf({ fieldNodes }: GraphQLResolveInfo): FieldPlan | undefined {
  return plans.get(fieldNodes);
}

type Groups = Map<string, FieldNode[]>;

class Planner {
  private readonly schema: GraphQLSchema;
  private readonly fragments: Record<string, FragmentDefinitionNode> = Object.create(null);
  /** Of those that decide which fields are there, and of no other. */
  private readonly variables: Variables;
  private readonly onLarge: () => void;
  private fields = 0;

  /** @param onLarge is told when the plan has become too large to be kept, which only running it shows */
  constructor(schema: GraphQLSchema, document: DocumentNode, variables: Variables, onLarge: () => void) {
    this.schema = schema;
    this.onLarge = onLarge;
    for (const each of document.definitions) {
      if (each.kind === Kind.FRAGMENT_DEFINITION) this.fragments[each.name.value] = each;
    }
    this.variables = Object.fromEntries(choicesOf(document).flatMap((name) => entryOf(variables, name)));
  }

  plan(operation: OperationDefinitionNode): OperationPlan {
    const fieldsOf = this.createFields([operation.selectionSet]);
    return { operation, fragments: this.fragments, fieldsOf };
  }

  private createFields(sets: readonly SelectionSetNode[]): FieldPlan['fieldsOf'] {
    const byType = new Map<GraphQLObjectType, readonly FieldPlan[]>();
    return (type) => {
      let fields = byType.get(type);
      if (!fields) {
        const groups: Groups = new Map();
        const seen = new Set<string>();
        for (const { selections } of sets) this.collect(type, selections, groups, seen);
        fields = [...groups].flatMap(([key, nodes]) => this.planField(type, key, nodes) ?? []);
        byType.set(type, fields);
      }
      return fields;
    };
  }

  private collect(
    type: GraphQLObjectType,
    selections: readonly SelectionNode[],
    groups: Groups,
    seen: Set<string>,
  ): void {
    for (const selection of selections) {
      if (!this.isIncluded(selection)) continue;
      if (selection.kind === Kind.FIELD) {
        const key = (selection.alias ?? selection.name).value;
        const nodes = groups.get(key);
        if (nodes) nodes.push(selection);
        else groups.set(key, [selection]);
        continue;
      }
      const isSpread = selection.kind === Kind.FRAGMENT_SPREAD;
      if (isSpread && seen.has(selection.name.value)) continue;
      if (isSpread) seen.add(selection.name.value);
      const fragment = isSpread ? this.fragments[selection.name.value] : selection;
      if (fragment && this.isOf(type, fragment.typeCondition?.name.value)) {
        this.collect(type, fragment.selectionSet.selections, groups, seen);
      }
    }
  }

  private isIncluded(selection: SelectionNode): boolean {
    if (!selection.directives?.length) return true;
    if (getDirectiveValues(GraphQLSkipDirective, selection, this.variables)?.if === true) return false;
    return getDirectiveValues(GraphQLIncludeDirective, selection, this.variables)?.if !== false;
  }

  private isOf(type: GraphQLObjectType, name: string | undefined): boolean {
    if (name === undefined || name === type.name) return true;
    const condition = this.schema.getType(name);
    return isAbstractType(condition) && this.schema.isSubType(condition, type);
  }

  private planField(parentType: GraphQLObjectType, key: string, nodes: readonly FieldNode[]): FieldPlan | undefined {
    const [node] = nodes;
    const field = node && this.findField(parentType, node.name.value);
    if (!field) return undefined;
    if (++this.fields > MAX_FIELDS) this.onLarge();
    const { name, type, extensions, resolve = defaultResolver } = field;
    const plan: FieldPlan = {
      ...{ key, nodes, parentType, name, type, extensions, resolve, shape: shapeOf(type) },
      property: propertyOf(parentType, field),
      argsOf: createArguments(field, node),
      fieldsOf: this.createFields(nodes.flatMap(({ selectionSet }) => selectionSet ?? [])),
    };
    plans.set(nodes, plan);
    return plan;
  }

  private findField(type: GraphQLObjectType, name: string): GraphQLField<unknown, unknown> | undefined {
    const isQuery = type === this.schema.getQueryType();
    if (name === TypeNameMetaFieldDef.name) return TypeNameMetaFieldDef;
    if (isQuery && name === SchemaMetaFieldDef.name) return SchemaMetaFieldDef;
    if (isQuery && name === TypeMetaFieldDef.name) return TypeMetaFieldDef;
    return type.getFields()[name];
  }
}

function entryOf(variables: Variables, name: string): [string, unknown][] {
  const decision = Object.hasOwn(variables, name) ? decisionOf(variables[name]) : undefined;
  return decision === undefined ? [] : [[name, decision]];
}

const defaultResolver: GraphQLFieldResolver<unknown, unknown> = (source, args, context, info) => {
  const property = (source as Record<string, unknown> | null)?.[info.fieldName];
  return typeof property === 'function' ? property.call(source, args, context, info) : property;
};

/** A field that Pothos exposes, and that nothing else looks after: neither a scope of its own nor one of its type. */
function propertyOf(
  parent: GraphQLObjectType,
  { extensions, args }: GraphQLField<unknown, unknown>,
): string | undefined {
  const { pothosExposedField, pothosPrismaSelect, pothosOptions } = extensions;
  const isGuarded = [pothosOptions, parent.extensions.pothosOptions].some(
    (options) => (options as { authScopes?: unknown } | undefined)?.authScopes !== undefined,
  );
  if (typeof pothosExposedField !== 'string' || pothosPrismaSelect || isGuarded || args.length > 0) return undefined;
  return pothosExposedField;
}

function createArguments(field: GraphQLField<unknown, unknown>, node: FieldNode): FieldPlan['argsOf'] {
  if (field.args.length === 0) return () => ({});
  const given = node.arguments ?? [];
  const isConstant = given.every(({ value: { kind } }) => CONSTANT.has(kind));
  if (!isConstant) return (variables) => getArgumentValues(field, node, variables);
  let values: Record<string, unknown> | undefined;
  return () => {
    values ??= getArgumentValues(field, node);
    return { ...values };
  };
}

/** Values that nobody can change. */
const CONSTANT: ReadonlySet<Kind> = new Set([
  ...[Kind.INT, Kind.FLOAT, Kind.STRING, Kind.BOOLEAN, Kind.NULL, Kind.ENUM],
]);

/** The operation that is meant. @throws GraphQLError */
export function findOperation(document: DocumentNode, name: string | null | undefined): OperationDefinitionNode {
  const operations = document.definitions.filter((each) => each.kind === Kind.OPERATION_DEFINITION);
  const found = name == null ? operations : operations.filter((each) => each.name?.value === name);
  const [operation] = found;
  if (operation && found.length === 1) return operation;
  throw new GraphQLError('Could not determine what operation to execute.');
}

/** @throws GraphQLError where the schema has no such operations */
export function rootTypeOf(schema: GraphQLSchema, { operation }: OperationDefinitionNode): GraphQLObjectType {
  const type = schema.getRootType(operation);
  if (isObjectType(type)) return type;
  throw new GraphQLError(`Schema is not configured to execute ${operation} operation.`);
}
