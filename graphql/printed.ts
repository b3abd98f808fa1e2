/** The schema as text: in an order that does not depend on how the code is arranged, and as the formatter wants it. */
import { type GraphQLSchema, lexicographicSortSchema, printSchema } from 'graphql';

export function printSorted(schema: GraphQLSchema): string {
  const text = printSchema(lexicographicSortSchema(schema));
  return `${text.replace(/^( *)"""(.+)"""$/gm, '$1"""\n$1$2\n$1"""')}\n`;
}
