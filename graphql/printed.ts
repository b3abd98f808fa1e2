/** The schema as text: in an order that does not depend on how the code is arranged, and as the formatter wants it. */
import { type GraphQLSchema, lexicographicSortSchema, printSchema } from 'graphql';

const LINE_WIDTH = 120;

export function printSorted(schema: GraphQLSchema): string {
  const text = printSchema(lexicographicSortSchema(schema))
    .replace(/^( *)"""(.+)"""$/gm, '$1"""\n$1$2\n$1"""')
    .replace(/^union \w+ = .+$/gm, wrapUnion);
  return `${text}\n`;
}

function wrapUnion(line: string): string {
  return line.length <= LINE_WIDTH ? line : line.replace(' = ', ' =\n  | ').replaceAll(/(?<=\w) \| /g, '\n  | ');
}
