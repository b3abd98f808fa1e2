/** Generates the lists of operations and of query costs in docs/reference/graphql.md from the schema. */
import { schema } from '../../../graphql/schema/schema.js';

type ObjectType = ReturnType<typeof schema.getQueryType>;
type Field = ReturnType<NonNullable<ObjectType>['getFields']>[string];

const PAGE = ['before', 'after', 'first', 'last'];

function firstSentence(description: string | null | undefined): string {
  const [sentence = ''] = /^[\s\S]*?\.(?=\s|$)|^[\s\S]*$/.exec(description ?? '') ?? [];
  return sentence.replace(/\s+/g, ' ').trim();
}

function formatField({ name, args, description }: Field): string {
  const names = args.map((arg) => arg.name);
  const isConnection = PAGE.every((name) => names.includes(name));
  const own = names.filter((name) => !isConnection || !PAGE.includes(name));
  const given = own.length > 0 || isConnection ? `(${[...own, ...(isConnection ? ['…'] : [])].join(', ')})` : '';
  return `- \`${name}${given}\`: ${firstSentence(description)}`;
}

function formatType(type: ObjectType): string {
  const fields = Object.values(type?.getFields() ?? {});
  return fields
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map(formatField)
    .join('\n');
}

export const formatQueries = (): string => formatType(schema.getQueryType());
export const formatMutations = (): string => formatType(schema.getMutationType());
export const formatSubscriptions = (): string => formatType(schema.getSubscriptionType());

/** Lists the fields whose descriptions state a query cost, the highest cost first. */
export function formatCosts(): string {
  const names = new Map<string, string[]>();
  for (const type of Object.values(schema.getTypeMap())) {
    if (!('getFields' in type)) continue;
    for (const { name, description } of Object.values(type.getFields())) {
      const [, cost] = /Query cost: (.+)\.$/.exec(description ?? '') ?? [];
      if (cost) names.set(cost, [...(names.get(cost) ?? []), `\`${type.name}.${name}\``]);
    }
  }
  return [...names]
    .sort(([a], [b]) => Number.parseInt(b, 10) - Number.parseInt(a, 10))
    .map(([cost, fields]) => `- ${cost}: ${fields.sort().join(', ')}`)
    .join('\n');
}
