/** What all connections have in common: arguments that say two things are refused, and an empty page leads on. */
import SchemaBuilder, { BasePlugin, type PothosOutputFieldConfig, type SchemaTypes } from '@pothos/core';
import type { DefaultConnectionArguments } from '@pothos/plugin-relay';
import { GraphQLError, type GraphQLFieldResolver } from 'graphql';

export const PAGE_ARGUMENTS = 'pageArguments';

declare global {
  export namespace PothosSchemaTypes {
    export interface Plugins<Types extends SchemaTypes> {
      [PAGE_ARGUMENTS]: PageArgumentsPlugin<Types>;
    }
  }
}

interface ConnectionShape {
  edges: readonly unknown[];
  pageInfo: { startCursor: unknown; endCursor: unknown };
}

/** Wraps every field that takes `first` and `last`, and describes `totalCount`, which its makers do not. */
class PageArgumentsPlugin<Types extends SchemaTypes> extends BasePlugin<Types> {
  override onOutputFieldConfig(field: PothosOutputFieldConfig<Types>): PothosOutputFieldConfig<Types> {
    if (field.name !== 'totalCount') return field;
    return { ...field, description: 'How many there are on all pages; counted only where it is asked for.' };
  }

  override wrapResolve(
    resolver: GraphQLFieldResolver<unknown, Types['Context'], object>,
    { args }: PothosOutputFieldConfig<Types>,
  ): GraphQLFieldResolver<unknown, Types['Context'], object> {
    if (!('first' in args && 'last' in args)) return resolver;
    return async (root, given: DefaultConnectionArguments, ctx, info) => {
      if (given.first != null && given.last != null) {
        throw badArgument('first and last exclude each other: give one of them');
      }
      for (const name of ['first', 'last'] as const) {
        const value = given[name];
        if (value != null && value < 0) throw badArgument(`${name} must not be negative, as ${value} is`);
      }
      const page = (await resolver(root, given, ctx, info)) as ConnectionShape;
      if (page.edges.length === 0) {
        // who asks again from here gets what has come meanwhile, and not the whole list
        page.pageInfo.startCursor = page.pageInfo.endCursor = given.after ?? given.before ?? null;
      }
      return page;
    };
  }
}

function badArgument(message: string): GraphQLError {
  return new GraphQLError(message, { extensions: { code: 'BAD_USER_INPUT' } });
}

SchemaBuilder.registerPlugin(PAGE_ARGUMENTS, PageArgumentsPlugin);
