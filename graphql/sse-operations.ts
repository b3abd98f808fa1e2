/** Operations on event streams, through the same pipeline as all others: prepared, begun, and told one by one. */
import type { Request, Response } from 'express';
import {
  type DocumentNode,
  type ExecutionArgs,
  type ExecutionResult,
  GraphQLError,
  type GraphQLSchema,
  getOperationAST,
  getVariableValues,
} from 'graphql';
import { HttpError, sizeOfBody } from '../src/http-body.js';
import type { EventPlace } from './event-place.js';
import type { Params } from './http.js';
import { type SharedShape, shapeOf } from './shared-shape.js';

type Result = ExecutionResult | AsyncGenerator<ExecutionResult>;
type Run = (args: ExecutionArgs) => Promise<Result> | Result;

/** Parser, validation, context and execution for one request, and the mask of errors. */
export interface Pipeline {
  /** What a request says, with the text of what it names. @throws HttpError */
  readParams(req: Request): Promise<Params>;
  prepare(input: { req: Request; res: Response; params: object; place?: EventPlace; request?: { method: string } }): {
    schema: GraphQLSchema;
    parse(query: string): DocumentNode;
    validate(schema: GraphQLSchema, document: DocumentNode): readonly GraphQLError[];
    contextFactory(): Promise<object> | object;
    execute: Run;
    subscribe: Run;
  };
  maskError(error: unknown): Error;
}

/** One result, and the place of its event. */
export interface Told extends Pick<EventPlace, 'eventId' | 'isPast' | 'isApart'> {
  result: ExecutionResult;
  isBroken?: boolean;
}

/** What an operation says, one result after another. */
export interface Results {
  /** Undefined once it is complete; `isBroken` where it can only be begun anew, later. */
  next(): Promise<Told | undefined>;
  /** Ends a `next` that waits. */
  stop(): void;
}

/** What is wrong with a request, or how it is begun. */
export type Prepared = { errors: readonly GraphQLError[] } | Runnable;

/** Begins an operation where a reader stands. @param place an id of an event, or empty */
export type Begin = (place: string, gone: AbortSignal) => Promise<Results>;

export interface Runnable {
  begin(): Promise<Results>;
  /** Begins the same where others stand, who have the same rights. @param variables without one that says where its reader stands */
  share(variables: Record<string, unknown>): Begin;
  /** It has many results, one after another. */
  isSubscription: boolean;
  /** What a subscription shares with others, where it does. */
  shape: SharedShape | undefined;
}

/** What a subscription says is kept for as long as it goes on. */
const MAX_SUBSCRIPTION_BYTES = 16 * 1024;

/** How long that is. The text of a document that was named is in no body. */
export const sizeOf = (req: Request, { query }: Params): number => Math.max(sizeOfBody(req), query.length);

/**
 * Parses and checks an operation; nothing of it has run.
 * @param input.reader aborts when nobody is told any more; unless given, that is so when the response has closed
 * @throws HttpError 405 for a mutation by GET, 413 for a subscription that is too long
 */
export async function prepareOperation(
  pipeline: Pipeline,
  { reader, ...input }: { req: Request; res: Response; params: Params; reader?: AbortSignal },
): Promise<Prepared> {
  const { req, params } = input;
  const place: EventPlace = { lastEventId: req.get('last-event-id') || undefined };
  const { schema, ...steps } = pipeline.prepare({ ...input, place });
  try {
    const document = steps.parse(params.query);
    const faults = steps.validate(schema, document);
    if (faults.length > 0) return { errors: faults.map(toPlain) };
    const operation = getOperationAST(document, params.operationName);
    if (!operation) return { errors: [new GraphQLError('Could not determine what operation to execute.')] };
    if (operation.operation === 'mutation' && req.method === 'GET') {
      throw new HttpError(405, 'a mutation is not allowed by GET, only by POST', { Allow: 'POST' });
    }
    const isSubscription = operation.operation === 'subscription';
    if (isSubscription && sizeOf(req, params) > MAX_SUBSCRIPTION_BYTES) {
      throw new HttpError(413, `a subscription must have at most ${MAX_SUBSCRIPTION_BYTES} bytes`);
    }
    const variables = getVariableValues(schema, operation.variableDefinitions ?? [], params.variables ?? {});
    if (variables.errors) return { errors: variables.errors.map(toPlain) };
    const args = {
      schema,
      document,
      operationName: params.operationName ?? null,
      variableValues: params.variables ?? null,
    };
    const contextValue = Object.assign(await steps.contextFactory(), reader && { reader });
    const run = isSubscription ? steps.subscribe : steps.execute;
    const start = (context: object, from: EventPlace, given = args.variableValues) =>
      begin(() => run({ ...args, variableValues: given, contextValue: context }), from, pipeline.maskError);
    return {
      begin: () => start(contextValue, place),
      share: (given) => {
        const context = { ...contextValue, ...FORGOTTEN }; // nothing of whoever began it first is kept for the others
        return async (id, gone) => {
          const own: EventPlace = { lastEventId: id || undefined };
          return await start({ ...context, place: own, reader: gone }, own, given);
        };
      },
      isSubscription,
      shape: isSubscription ? shapeOf(document, operation) : undefined,
    };
  } catch (error) {
    if (error instanceof HttpError) throw error;
    return { errors: [toPlain(pipeline.maskError(error))] };
  }
}

const FORGOTTEN = { req: undefined, res: undefined, params: undefined, request: undefined, keep: undefined };

/** What an operation would be that is only known by its errors. */
export function resultsOf(result: ExecutionResult): Results {
  const results = [{ result }];
  return { next: async () => results.shift(), stop: () => {} };
}

async function begin(
  run: () => Promise<Result> | Result,
  place: EventPlace,
  maskError: Pipeline['maskError'],
): Promise<Results> {
  let source: Result;
  try {
    source = await run();
  } catch (error) {
    source = { errors: [toPlain(maskError(error))] };
  }
  if (!('next' in source)) {
    const { errors } = source;
    return resultsOf(errors ? { ...source, errors: errors.map(toPlain) } : source);
  }
  const stream = source;
  let hasFailed = false;
  return {
    next: async () => {
      if (hasFailed) return undefined;
      try {
        const { done, value } = await stream.next();
        if (done) return undefined;
        // the source is asked only when a result is, so that the place is that of this result
        const { eventId, isPast = false, isApart = false } = place;
        return { result: value, eventId, isPast, isApart, isBroken: isPassing(value.errors) };
      } catch (error) {
        hasFailed = true; // no other operation of the stream is to suffer for it
        const errors = [toPlain(maskError(error))];
        return { result: { errors }, isBroken: isPassing(errors) };
      }
    },
    stop: () => void stream.return(undefined).catch(() => {}), // it was told to end, and how it does is of no interest
  };
}

/** The database is away, say: the operation is not over, and who comes back may find it there. */
function isPassing(errors: readonly GraphQLError[] | undefined): boolean {
  return errors?.some(({ extensions }) => extensions.code === 'UNAVAILABLE') ?? false;
}

/** How a request is refused is for its body to say here, not for HTTP. */
function toPlain(error: Error): GraphQLError {
  const {
    nodes = null,
    path = null,
    source = null,
    positions = null,
    extensions = {},
  } = error as Partial<GraphQLError>;
  const { http: _, ...others } = extensions;
  return new GraphQLError(error.message, { nodes, path, source, positions, extensions: others });
}
