/** Adds a cost for the values in list arguments to the cost of a query, and adds high costs to the descriptions. */
import { type GraphQLField, type GraphQLSchema, getNullableType, isListType, isObjectType } from 'graphql';
import { pageComplexity } from './builder.js';

type Cost = number | { field?: number; multiplier?: number };
type Field = GraphQLField<unknown, unknown>;

/**
 * Multiplies the cost of a connection's fields by a tenth of its page size, unless the connection has its own factor.
 * Adds 0.1 to a field's query cost for each value in its list arguments. If a query selects the field several times
 * under different aliases, each selection is charged. Adds a field's own cost to its description unless the cost is 1.
 */
export function chargeLists(schema: GraphQLSchema): GraphQLSchema {
  for (const type of Object.values(schema.getTypeMap())) {
    if (!isObjectType(type) || type.name.startsWith('__')) continue;
    for (const field of Object.values(type.getFields())) {
      field.description = describeCost(field);
      if (field.args.length > 0) chargeField(field);
    }
  }
  return schema;
}

function chargeField(field: Field): void {
  const read = costOf(field);
  const complexity = (...given: unknown[]) => {
    const { field: base, ...rest } = read(...given);
    return { ...rest, field: base + countValues(given[0]) / 10 };
  };
  field.extensions = { ...field.extensions, complexity };
}

const isConnection = ({ args }: Field): boolean => args.some(({ name }) => name === 'first');

function costOf(field: Field): (...given: unknown[]) => { field: number; multiplier?: number } {
  const own = field.extensions.complexity as Cost | ((...given: unknown[]) => Cost) | undefined;
  return (...given) => {
    const cost = typeof own === 'function' ? own(...given) : own;
    const page = isConnection(field) && pageComplexity(given[0] as object);
    return { field: 1, ...page, ...(typeof cost === 'object' ? cost : cost !== undefined && { field: cost }) };
  };
}

function describeCost(field: Field): string | null | undefined {
  const lists = field.args.filter(({ type }) => isListType(getNullableType(type)));
  const args = Object.fromEntries(lists.map(({ name }) => [name, []]));
  const { field: base, multiplier = 1 } = costOf(field)(args);
  if (base === 1) return field.description;
  const hasOwnFactor = multiplier > 1 && !isConnection(field) && !isListType(getNullableType(field.type));
  const below = hasOwnFactor ? `, plus ${multiplier} times the cost of the selected fields` : '';
  return `${field.description ?? ''} Query cost: ${base}${below}.`.trimStart();
}

function countValues(args: unknown): number {
  if (Array.isArray(args)) return args.length;
  if (typeof args !== 'object' || args === null) return 0;
  return Object.values(args).reduce((sum: number, value) => sum + countValues(value), 0);
}
