/** The operations on the streams of graphql-sse, through the same pipeline as /graphql. */
import type { Request, Response } from 'express';
import { type DocumentNode, type ExecutionArgs, type ExecutionResult, GraphQLError, type GraphQLSchema } from 'graphql';
import { createHandler } from 'graphql-sse';
import type { Flow } from './sse-flow.js';

type Result = ExecutionResult | AsyncGenerator<ExecutionResult>;
type Run = (args: ExecutionArgs) => Promise<Result> | Result;

/** Parser, validation, context and execution for one request, and the mask of errors. */
export interface Pipeline {
  prepare(input: { req: Request | undefined; res: Response | undefined; params: object }): {
    schema: GraphQLSchema;
    parse(query: string): DocumentNode;
    validate(schema: GraphQLSchema, document: DocumentNode): readonly GraphQLError[];
    contextFactory(): Promise<object> | object;
    execute: Run;
    subscribe: Run;
  };
  maskError(error: unknown): Error;
}

/** What belongs to one HTTP request. */
export interface Exchange {
  /** Of its stream; a new one when it names none. */
  token: string;
  flow: Flow;
  res?: Response;
}

type Prepared = ExecutionArgs & { run: { execute: Run; subscribe: Run } };

/** The handler of graphql-sse: it knows no host. */
export function createOperations(pipeline: Pipeline) {
  const { maskError } = pipeline;
  return createHandler<Request | undefined, Exchange>({
    authenticate: ({ context }) => context.token,
    onSubscribe: async ({ raw, context }, params) => {
      const { schema, ...steps } = pipeline.prepare({ req: raw, res: context.res, params });
      try {
        const document = steps.parse(params.query);
        const errors = steps.validate(schema, document);
        if (errors.length > 0) return refuse(errors);
        const prepared: Prepared = {
          schema,
          document,
          operationName: params.operationName ?? null,
          variableValues: params.variables ?? null,
          contextValue: await steps.contextFactory(),
          run: steps,
        };
        return prepared as never;
      } catch (error) {
        return refuse([maskError(error)]);
      }
    },
    validate: () => [], // done above, with the rules of the pipeline
    execute: (args) => (args as unknown as Prepared).run.execute(args),
    subscribe: async (args) => {
      try {
        const result = await (args as unknown as Prepared).run.subscribe(args);
        return 'next' in result ? endWithError(result, maskError) : result;
      } catch (error) {
        return refuse([maskError(error)]);
      }
    },
    onOperation: async (_context, req, _args, result) => {
      const { flow } = req.context;
      if (!('return' in result)) return;
      flow.begin(req);
      // the stream ended while the operation was prepared: nobody would end it any more
      if (flow.isClosed) await result.return(undefined);
    },
    onNext: (_context, { context }) => context.flow.take(),
    onComplete: (_context, req) => req.context.flow.end(req),
  });
}

/** Makes an error of the source the last result: graphql-sse would break the stream, and all other operations with it. */
function endWithError(
  results: AsyncGenerator<ExecutionResult>,
  maskError: Pipeline['maskError'],
): AsyncGenerator<ExecutionResult> {
  const outer: AsyncGenerator<ExecutionResult> = {
    next: async () => {
      try {
        return await results.next();
      } catch (error) {
        return { done: false, value: refuse([maskError(error)]) };
      }
    },
    return: (value) => results.return(value),
    throw: (error) => results.throw(error),
    [Symbol.asyncIterator]: () => outer,
  };
  return outer;
}

/** graphql-sse takes a result only if it has `data`; how it is refused is for the body to say, not for HTTP. */
function refuse(errors: readonly Error[]): ExecutionResult {
  const plain = errors.map((error) => {
    const { nodes = null, path = null, extensions = {} } = error as Partial<GraphQLError>;
    const { http: _, ...others } = extensions;
    return new GraphQLError(error.message, { nodes, path, extensions: others });
  });
  return { data: null, errors: plain };
}
