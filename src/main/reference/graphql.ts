/** Generates the lists of operations in docs/reference/graphql.md from the schema. */
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
