/**
 * Errors of fields that nobody would hear, and that Node.js would end the process for. Where an item of a list fails at once, the
 * executor leaves the list, and nobody waits any more for what the items before it are about to fail with.
 */
import { GraphQLError, type GraphQLFieldResolver, type GraphQLSchema, isObjectType } from 'graphql';
import type { Logger } from 'pino';

/** Has all fields fail late, which the executor waits for: it leaves no list in the middle then. */
export function failLate(schema: GraphQLSchema): GraphQLSchema {
  for (const type of Object.values(schema.getTypeMap())) {
    if (!isObjectType(type) || type.name.startsWith('__')) continue;
    for (const field of Object.values(type.getFields())) if (field.resolve) field.resolve = makeLate(field.resolve);
  }
  return schema;
}

type Resolver = GraphQLFieldResolver<unknown, unknown>;

function makeLate(resolve: Resolver): Resolver {
  return (...given) => {
    try {
      return resolve(...given);
    } catch (error) {
      return Promise.reject(error);
    }
  };
}

/**
 * Hears what fails in another way, as an argument that is null by a variable: it was told to whoever asked, or the first error was.
 * Whatever is no error of a field ends the process as before.
 * @returns what ends the hearing
 */
export function hearStrayErrors(log: Logger): () => void {
  const hear = (reason: unknown) => {
    if (!(reason instanceof GraphQLError)) throw reason;
    log.error({ err: reason }, `unhandled error of a field: ${reason.message}`);
  };
  process.on('unhandledRejection', hear);
  return () => void process.off('unhandledRejection', hear);
}
