/** Adds a cost for the values in list arguments to the cost of a query. */
import { type GraphQLSchema, isObjectType } from 'graphql';

type Cost = number | { field?: number; multiplier?: number };

/**
 * Adds 0.1 to a field's query cost for each value in its list arguments. If a query selects the field several times
 * under different aliases, each selection is charged.
 */
export function chargeLists(schema: GraphQLSchema): GraphQLSchema {
  for (const type of Object.values(schema.getTypeMap())) {
    if (!isObjectType(type)) continue;
    for (const field of Object.values(type.getFields())) {
      if (field.args.length === 0) continue;
      const own = field.extensions.complexity as Cost | ((...given: unknown[]) => Cost) | undefined;
      const complexity = (...given: unknown[]) => {
        const cost = typeof own === 'function' ? own(...given) : own;
        const { field: base = 1, ...rest } = typeof cost === 'object' ? cost : { field: cost };
        return { ...rest, field: base + countValues(given[0]) / 10 };
      };
      field.extensions = { ...field.extensions, complexity };
    }
  }
  return schema;
}

function countValues(args: unknown): number {
  if (Array.isArray(args)) return args.length;
  if (typeof args !== 'object' || args === null) return 0;
  return Object.values(args).reduce((sum: number, value) => sum + countValues(value), 0);
}
