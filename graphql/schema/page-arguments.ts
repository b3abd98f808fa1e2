/**
 * A Pothos plugin that checks the page arguments of all connections. For an empty page, the plugin returns the client's
 * own cursor, so that the client can continue from there.
 */
import SchemaBuilder, {
  BasePlugin,
  type PothosOutputFieldConfig,
  PothosValidationError,
  type SchemaTypes,
} from '@pothos/core';
import type { DefaultConnectionArguments } from '@pothos/plugin-relay';
import type { GraphQLFieldResolver } from 'graphql';
import { InvalidInputError, quote } from '../../src/core/errors.js';

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

class PageArgumentsPlugin<Types extends SchemaTypes> extends BasePlugin<Types> {
  override onOutputFieldConfig(field: PothosOutputFieldConfig<Types>): PothosOutputFieldConfig<Types> {
    if (field.name !== 'totalCount') return field;
    return {
      ...field,
      description:
        'The total number of items in the list. The database counts the items only if a query selects this field.',
    };
  }

  override wrapResolve(
    resolver: GraphQLFieldResolver<unknown, Types['Context'], object>,
    { args }: PothosOutputFieldConfig<Types>,
  ): GraphQLFieldResolver<unknown, Types['Context'], object> {
    if (!('first' in args && 'last' in args)) return resolver;
    return async (root, given: DefaultConnectionArguments, ctx, info) => {
      if (given.first != null && given.last != null) {
        throw new InvalidInputError('first', 'and last cannot be combined: give only one');
      }
      for (const name of ['first', 'last'] as const) {
        const value = given[name];
        if (value != null && value < 0) throw new InvalidInputError(name, `must be 0 or more, not ${value}`);
      }
      const page = await withInvalidInput(given, () => resolver(root, given, ctx, info) as Promise<ConnectionShape>);
      if (page.edges.length === 0) {
        // return the client's own cursor for an empty page, because a client that sends a null cursor gets the first
        // page
        // (if path rules hide all items of a page, its cursors are those of the hidden items)
        const own = given.after ?? given.before ?? null;
        page.pageInfo.startCursor ||= own;
        page.pageInfo.endCursor ||= own;
      }
      return page;
    };
  }
}

/** @throws InvalidInputError if Pothos rejects the page arguments */
async function withInvalidInput<Page>(given: DefaultConnectionArguments, read: () => Promise<Page>): Promise<Page> {
  try {
    return await read();
  } catch (error) {
    throw error instanceof PothosValidationError ? describeFault(given) : error;
  }
}

/** Returns an error for page arguments that Pothos rejects: conflicting arguments, or a malformed cursor. */
function describeFault({ before, after, first, last }: DefaultConnectionArguments): InvalidInputError {
  const excluded = before == null ? last != null && 'last' : after != null ? 'after' : first != null && 'first';
  const argument = before == null ? 'after' : 'before';
  if (!excluded) return invalidCursor(argument, before ?? after ?? '');
  return new InvalidInputError(
    argument,
    `and ${excluded} cannot be combined: pass first and after, or last and before`,
  );
}

export function invalidCursor(argument: 'after' | 'before', cursor: string): InvalidInputError {
  return new InvalidInputError(argument, `must be a cursor of this list, not ${quote(cursor)}`);
}

SchemaBuilder.registerPlugin(PAGE_ARGUMENTS, PageArgumentsPlugin);
