/** Whether a response is one of GraphQL: as the standard has it, and with what the operation has asked for, in the types of the schema. */
import {
  type DocumentNode,
  type FragmentDefinitionNode,
  type GraphQLField,
  type GraphQLNamedType,
  type GraphQLOutputType,
  getNamedType,
  isEnumType,
  isInterfaceType,
  isListType,
  isNonNullType,
  isObjectType,
  isScalarType,
  Kind,
  parse,
  SchemaMetaFieldDef,
  type SelectionNode,
  TypeMetaFieldDef,
} from 'graphql';
import { schema } from '../../graphql/schema.js';
import { parseJson } from '../../src/json.js';

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/**
 * @param query the operation, when its data is to be compared with it
 * @returns what is wrong
 */
export function checkGraphqlBody(body: unknown, query: string | undefined): string | undefined {
  if (!isObject(body)) return 'the response is no object';
  const { data, errors, extensions: _, ...others } = body;
  if (Object.keys(others).length > 0) return `the response has ${Object.keys(others)}`;
  if (data === undefined && errors === undefined) return 'the response has neither data nor errors';
  if (errors !== undefined) {
    if (!Array.isArray(errors) || errors.length === 0) return 'errors is no list of some';
    const wrong = errors.find((error) => !isObject(error) || typeof error.message !== 'string' || error.message === '');
    if (wrong) return `an error without a message: ${JSON.stringify(wrong)}`;
    if (data === undefined || data === null) return undefined;
  }
  if (!isObject(data)) return data === null ? 'data is null, and nothing says why' : 'data is no object';
  return query === undefined ? undefined : checkData(data, query);
}

/** Messages of graphql-sse: events and comments. The last one may have been cut. */
export function checkEventStream(text: string): string | undefined {
  const messages = text.split('\n\n').slice(0, -1);
  for (const message of messages) {
    if (message === ':') continue;
    const [, event, data = ''] = /^event: (next|complete)\n(?:id: \d+\n)?data:([^\n]*)$/.exec(message) ?? [];
    if (event === undefined) return `no event: ${message.slice(0, 200)}`;
    if (data === '') continue;
    const value: unknown = parseJson(data);
    if (!isObject(value)) return `no object: ${message.slice(0, 200)}`;
    const problem = 'id' in value ? undefined : checkGraphqlBody(value, undefined);
    if (problem !== undefined) return `${problem}: ${message.slice(0, 300)}`;
  }
  return undefined;
}

/** Where a number is filled in when it is sent: see known.ts. */
const MARK = /~i\d+~/g;

function checkData(data: Record<string, unknown>, query: string): string | undefined {
  const document = parse(query.replace(MARK, '1'));
  const fragments = new Map<string, FragmentDefinitionNode>();
  for (const each of document.definitions)
    if (each.kind === Kind.FRAGMENT_DEFINITION) fragments.set(each.name.value, each);
  const operation = operationOf(document);
  const root = schema.getRootType(operation.operation);
  if (!root) return undefined;
  return checkObject(data, [{ type: root, selections: operation.selectionSet.selections }], {
    fragments,
    path: 'data',
  });
}

function operationOf(document: DocumentNode) {
  const operation = document.definitions.find((each) => each.kind === Kind.OPERATION_DEFINITION);
  if (!operation) throw new Error('there is data of no operation');
  return operation;
}

interface Selected {
  type: GraphQLNamedType;
  selections: readonly SelectionNode[];
}

interface Place {
  fragments: ReadonlyMap<string, FragmentDefinitionNode>;
  path: string;
}

/** Types that an object may have are not told apart: whatever any fragment names may be there. */
function checkObject(object: Record<string, unknown>, selected: readonly Selected[], place: Place): string | undefined {
  const fields = new Map<string, { field: GraphQLField<unknown, unknown> | undefined; below: Selected[] }>();
  for (const each of selected) collect(each, place, fields);
  for (const [name, value] of Object.entries(object)) {
    const known = fields.get(name);
    const path = `${place.path}.${name}`;
    if (!known) return `${path} was not asked for`;
    if (!known.field) {
      if (typeof value !== 'string') return `${path} is ${JSON.stringify(value)}, and no name of a type`;
      continue;
    }
    const problem = checkValue(value, known.field.type, known.below, { ...place, path });
    if (problem !== undefined) return problem;
  }
  return undefined;
}

function collect(
  { type, selections }: Selected,
  place: Place,
  fields: Map<string, { field: GraphQLField<unknown, unknown> | undefined; below: Selected[] }>,
): void {
  for (const node of selections) {
    if (node.kind === Kind.FIELD) {
      const field = fieldOf(type, node.name.value);
      const name = node.alias?.value ?? node.name.value;
      const known = fields.get(name) ?? { field, below: [] };
      if (field && node.selectionSet) {
        known.below.push({ type: getNamedType(field.type), selections: node.selectionSet.selections });
      }
      fields.set(name, known);
      continue;
    }
    const fragment = node.kind === Kind.FRAGMENT_SPREAD ? place.fragments.get(node.name.value) : node;
    if (!fragment) continue;
    const on = fragment.typeCondition && schema.getType(fragment.typeCondition.name.value);
    collect({ type: on ?? type, selections: fragment.selectionSet.selections }, place, fields);
  }
}

function fieldOf(type: GraphQLNamedType, name: string): GraphQLField<unknown, unknown> | undefined {
  if (name === '__schema') return SchemaMetaFieldDef;
  if (name === '__type') return TypeMetaFieldDef;
  return isObjectType(type) || isInterfaceType(type) ? type.getFields()[name] : undefined;
}

function checkValue(
  value: unknown,
  type: GraphQLOutputType,
  below: readonly Selected[],
  place: Place,
): string | undefined {
  if (isNonNullType(type)) {
    return value === null ? `${place.path} is null` : checkValue(value, type.ofType, below, place);
  }
  if (value === null) return undefined;
  if (isListType(type)) {
    if (!Array.isArray(value)) return `${place.path} is no list`;
    for (const item of value) {
      const problem = checkValue(item, type.ofType, below, place);
      if (problem !== undefined) return problem;
    }
    return undefined;
  }
  if (isScalarType(type) || isEnumType(type)) {
    const isRight = isEnumType(type) ? type.getValue(String(value)) !== undefined : SCALARS[type.name]?.(value);
    return isRight ? undefined : `${place.path} is ${JSON.stringify(value)}, and no ${type.name}`;
  }
  return isObject(value) ? checkObject(value, below, place) : `${place.path} is no object`;
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z$/;
const SCALARS: Record<string, (value: unknown) => boolean> = {
  Int: (value) => Number.isInteger(value) && Math.abs(value as number) <= 2 ** 31,
  Float: (value) => typeof value === 'number',
  String: (value) => typeof value === 'string',
  ID: (value) => typeof value === 'string',
  Boolean: (value) => typeof value === 'boolean',
  BigInt: (value) => typeof value === 'string' && /^-?\d{1,19}$/.test(value),
  DateTime: (value) => typeof value === 'string' && TIME.test(value),
};
