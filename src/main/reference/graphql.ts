/** Generates the lists of operations and of query costs in docs/reference/graphql.md from the schema. */
import { schema } from '../../../graphql/schema/schema.js';

type ObjectType = ReturnType<typeof schema.getQueryType>;

/** Topics of operations, with the same names as the groups of commands. The first topic that matches a name contains it. */
const TOPICS: [topic: string, names: RegExp][] = [
  ['Requests', /request|priority|releaseFiles|stageChanges/i],
  ['Catalogue', /tapeFile|Files$|directory|verif/i],
  ['Quotas and access', /quota|member|token|webhook|pathRule|caller|user/i],
  ['Tape system', /drive|volume|librar|disk|suspen|^resume$|plan$|recalls/i],
  ['Operations', /./],
];

const topicOf = (name: string) => TOPICS.findIndex(([, names]) => names.test(name));

/** Lists the names of a type's fields, with one line for each topic. */
function formatType(type: ObjectType): string {
  const names = Object.keys(type?.getFields() ?? {}).sort();
  return TOPICS.map(([topic], index) => [topic, names.filter((name) => topicOf(name) === index)] as const)
    .filter(([, found]) => found.length > 0)
    .map(([topic, found]) => `- ${topic}: ${found.map((name) => `\`${name}\``).join(', ')}`)
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
