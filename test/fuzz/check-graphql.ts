/** Checks GraphQL responses: their form, and that their data is what the operation selects, in the types of the schema. */
import {
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
import { parseJson } from '../support/exact-json.js';

type JsonObject = Record<string, unknown>;

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Returns the first problem of a response, or undefined. @param query the operation that the data must match */
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
  if (!isObject(data)) return data === null ? 'data is null without an error' : 'data is no object';
  return query === undefined ? undefined : checkData(data, query);
}

/** Checks events and comments of graphql-sse. The last one may be incomplete. */
export function checkEventStream(text: string): string | undefined {
  for (const message of text.split('\n\n').slice(0, -1)) {
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

/** A number that is filled in when the input is sent, see known.ts. */
export const NUMBER_MARK = /~i\d+~/g;

interface Selected {
  type: GraphQLNamedType;
  selections: readonly SelectionNode[];
}

function checkData(data: JsonObject, query: string): string | undefined {
  const { definitions } = parse(query.replace(NUMBER_MARK, '1'));
  const fragments = new Map<string, FragmentDefinitionNode>();
  for (const each of definitions) if (each.kind === Kind.FRAGMENT_DEFINITION) fragments.set(each.name.value, each);
  const operation = definitions.find((each) => each.kind === Kind.OPERATION_DEFINITION);
  const type = operation && schema.getRootType(operation.operation);
  if (!type) return 'there is data without an operation';
  return checkObject(data, [{ type, selections: operation.selectionSet.selections }], fragments, 'data');
}

type Fragments = ReadonlyMap<string, FragmentDefinitionNode>;
type Fields = Map<string, { field: GraphQLField<unknown, unknown> | undefined; below: Selected[] }>;

/** The possible types of an object are not distinguished: it may have the fields of any fragment. */
function checkObject(
  object: JsonObject,
  selected: readonly Selected[],
  fragments: Fragments,
  at: string,
): string | undefined {
  const fields: Fields = new Map();
  for (const each of selected) collect(each, fragments, fields);
  for (const [name, value] of Object.entries(object)) {
    const known = fields.get(name);
    const path = `${at}.${name}`;
    if (!known) return `${path} was not selected`;
    const problem = known.field
      ? checkValue(value, known.field.type, known.below, fragments, path)
      : typeof value !== 'string' && `${path} is ${JSON.stringify(value)}, and no name of a type`;
    if (problem) return problem;
  }
  return undefined;
}

function collect({ type, selections }: Selected, fragments: Fragments, fields: Fields): void {
  for (const node of selections) {
    if (node.kind === Kind.FIELD) {
      const field = fieldOf(type, node.name.value);
      const name = node.alias?.value ?? node.name.value;
      const known = fields.get(name) ?? { field, below: [] };
      const below = node.selectionSet?.selections;
      if (field && below) known.below.push({ type: getNamedType(field.type), selections: below });
      fields.set(name, known);
      continue;
    }
    const fragment = node.kind === Kind.FRAGMENT_SPREAD ? fragments.get(node.name.value) : node;
    if (!fragment) continue;
    const on = fragment.typeCondition && schema.getType(fragment.typeCondition.name.value);
    collect({ type: on ?? type, selections: fragment.selectionSet.selections }, fragments, fields);
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
  fragments: Fragments,
  path: string,
): string | undefined {
  if (isNonNullType(type))
    return value === null ? `${path} is null` : checkValue(value, type.ofType, below, fragments, path);
  if (value === null) return undefined;
  if (isListType(type)) {
    if (!Array.isArray(value)) return `${path} is no list`;
    for (const item of value) {
      const problem = checkValue(item, type.ofType, below, fragments, path);
      if (problem !== undefined) return problem;
    }
    return undefined;
  }
  if (isScalarType(type) || isEnumType(type)) {
    const isRight = isEnumType(type) ? type.getValue(String(value)) !== undefined : SCALARS[type.name]?.(value);
    return isRight ? undefined : `${path} is ${JSON.stringify(value)}, and no ${type.name}`;
  }
  return isObject(value) ? checkObject(value, below, fragments, path) : `${path} is no object`;
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z$/;
const isString = (value: unknown) => typeof value === 'string';
const SCALARS: Record<string, (value: unknown) => boolean> = {
  Int: (value) => Number.isInteger(value) && Math.abs(value as number) <= 2 ** 31,
  Float: (value) => typeof value === 'number',
  String: isString,
  ID: isString,
  Boolean: (value) => typeof value === 'boolean',
  BigInt: (value) => typeof value === 'string' && /^-?\d{1,19}$/.test(value),
  DateTime: (value) => typeof value === 'string' && TIME.test(value),
};
