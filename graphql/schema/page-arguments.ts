/**
 * A Pothos plugin for all connections. The plugin checks page arguments, and gives an empty page a cursor from which
 * the client can continue.
 */
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

/** Wraps every field with `first` and `last`, and describes `totalCount`. */
class PageArgumentsPlugin<Types extends SchemaTypes> extends BasePlugin<Types> {
  override onOutputFieldConfig(field: PothosOutputFieldConfig<Types>): PothosOutputFieldConfig<Types> {
    if (field.name !== 'totalCount') return field;
    return { ...field, description: 'The total number of items in the list, counted only if selected.' };
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
        if (value != null && value < 0) throw badArgument(`${name} must not be negative, not ${value}`);
      }
      const page = (await resolver(root, given, ctx, info)) as ConnectionShape;
      if (page.edges.length === 0) {
        // from this cursor a client gets only newer items instead of the whole list
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
