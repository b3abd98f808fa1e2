/**
 * Which columns an operation asks of a row, so that no others are read, and by one statement; and the rows that are read so. Where it asks for more than
 * columns and what belongs to a row, Prisma reads it, as Pothos plans it.
 */
import SchemaBuilder, { BasePlugin, type PothosOutputFieldConfig, type SchemaTypes } from '@pothos/core';
import {
  type GraphQLFieldResolver,
  type GraphQLObjectType,
  type GraphQLResolveInfo,
  getNamedType,
  isObjectType,
} from 'graphql';
import { type Choice, ChosenRow } from '../src/operations/chosen-columns.js';
import { type FieldPlan, planOf } from './operation-plan.js';

const choices = new WeakMap<FieldPlan, Map<string, Choice | null>>();

/**
 * @param path from the field that is resolved to the rows; none where they are its own value
 * @param always columns that are read anyway, the same ones wherever a field is resolved
 * @returns undefined where more is asked for than columns
 */
export function choiceOf(
  info: GraphQLResolveInfo,
  path: readonly string[] = [],
  always: readonly string[] = [],
): Choice | undefined {
  const plan = planOf(info);
  if (!plan) return undefined;
  const known = choices.get(plan) ?? new Map<string, Choice | null>();
  choices.set(plan, known);
  const name = path.join('.');
  let choice = known.get(name);
  if (choice === undefined) {
    choice = choose(plansAt([plan], path), always) ?? null;
    known.set(name, choice);
  }
  return choice ?? undefined;
}

function plansAt(plans: readonly FieldPlan[], [name, ...rest]: readonly string[]): readonly FieldPlan[] {
  if (name === undefined) return plans;
  const inner = plans.flatMap((plan) => fieldsOf(plan)).filter((field) => field.name === name);
  return plansAt(inner, rest);
}

function fieldsOf(plan: FieldPlan): readonly FieldPlan[] {
  const type = getNamedType(plan.type);
  return isObjectType(type) ? plan.fieldsOf(type as GraphQLObjectType) : [];
}

/** What several fields ask of the same rows. */
function choose(plans: readonly FieldPlan[], always: readonly string[] = []): Choice | undefined {
  const columns = new Set<string>(always);
  const inner = new Map<string, FieldPlan[]>();
  for (const field of plans.flatMap((plan) => fieldsOf(plan))) {
    if (field.name === '__typename') continue;
    const wanted = columnsOf(field);
    for (const name of wanted ?? []) columns.add(name);
    if (wanted) continue;
    const { pothosPrismaRelationField: relation } = field.extensions as {
      pothosPrismaRelationField?: { name: string; isList: boolean };
    };
    if (!relation || relation.isList || field.name !== relation.name) return undefined;
    inner.set(relation.name, [...(inner.get(relation.name) ?? []), field]);
  }
  const of: Record<string, Choice> = {};
  for (const [name, fields] of inner) {
    const choice = choose(fields);
    if (!choice) return undefined;
    of[name] = choice;
  }
  return { columns: [...columns], of };
}

/** Of a field that is made of columns of its row alone. */
function columnsOf({ name, property, extensions }: FieldPlan): string[] | undefined {
  if (property !== undefined) return [property];
  if (name === 'id') return ['id'];
  const { pothosPrismaSelect: select } = extensions;
  if (typeof select !== 'object' || select === null) return undefined;
  return Object.values(select).every((each) => each === true) ? Object.keys(select) : undefined;
}

export const CHOSEN_ROWS = 'chosenRows';

declare global {
  export namespace PothosSchemaTypes {
    export interface Plugins<Types extends SchemaTypes> {
      [CHOSEN_ROWS]: ChosenRowsPlugin<Types>;
    }
  }
}

/** Of rows that were not read by Prisma its plugin knows nothing, and would read them again. What a field needs of them they have. */
class ChosenRowsPlugin<Types extends SchemaTypes> extends BasePlugin<Types> {
  override wrapResolve(
    resolver: GraphQLFieldResolver<unknown, Types['Context'], object>,
    { resolve, extensions }: PothosOutputFieldConfig<Types>,
  ): GraphQLFieldResolver<unknown, Types['Context'], object> {
    if (!resolve || !extensions?.pothosPrismaSelect) return resolver;
    return (row, args, ctx, info) => (row instanceof ChosenRow ? resolve : resolver)(row, args, ctx, info);
  }
}

SchemaBuilder.registerPlugin(CHOSEN_ROWS, ChosenRowsPlugin);
