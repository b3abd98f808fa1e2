/**
 * GraphQL over HTTP: Yoga at /graphql (its own SSE and GraphiQL included) and graphql-sse at /graphql/stream, both of
 * its modes, through one pipeline: the same parser, validation, context, execution and error mask.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { renderGraphiQL } from '@graphql-yoga/render-graphiql';
import type { Request, RequestHandler, Response } from 'express';
import { type ExecutionArgs, type ExecutionResult, GraphQLError, parse } from 'graphql';
import { createHandler } from 'graphql-sse/lib/use/express';
import { createYoga, type Plugin } from 'graphql-yoga';
import type { Context } from '../src/context.js';
import { HttpError, readJsonBody } from '../src/http-body.js';
import { createErrorMask } from './errors.js';
import { schema } from './schema.js';

/** A query of honest size has some hundred tokens; one of millions keeps the parser busy for seconds. */
const MAX_TOKENS = 10_000;

export interface GraphqlHandlers {
  /** For /graphql, in this order. */
  handlers: RequestHandler[];
  /** Ends the streams that are open, after the feed has ended their subscriptions. */
  close(): Promise<void>;
}

export function createGraphqlHandlers(ctx: Context): GraphqlHandlers {
  const maskError = createErrorMask(ctx.log);
  const yoga = createYoga<{ req: Request; res: Response }, Context>({
    schema,
    graphqlEndpoint: '/graphql',
    context: () => ctx,
    cors: false,
    graphiql: { title: 'Tapegate' },
    renderGraphiQL,
    landingPage: false,
    logging: false,
    maskedErrors: { maskError },
    plugins: [limitTokens],
  });

  type Run = { execute: (args: ExecutionArgs) => never; subscribe: (args: ExecutionArgs) => never };
  const handler = createHandler({
    onSubscribe: async (req, params) => {
      const pipeline = yoga.getEnveloped({ req: req.raw, res: req.context.res, params } as never);
      try {
        const document = pipeline.parse(params.query as string);
        const errors = pipeline.validate(pipeline.schema, document) as GraphQLError[];
        if (errors.length > 0) return refuse(errors);
        const run: Run = { execute: pipeline.execute as never, subscribe: pipeline.subscribe as never };
        return {
          schema: pipeline.schema,
          document,
          operationName: params.operationName ?? null,
          variableValues: params.variables ?? null,
          contextValue: await pipeline.contextFactory(),
          run,
        } as never;
      } catch (error) {
        return refuse([maskError(error) as GraphQLError]);
      }
    },
    validate: () => [], // done above, with Yoga's rules
    execute: (args) => (args as unknown as { run: Run }).run.execute(args as ExecutionArgs),
    subscribe: (args) => (args as unknown as { run: Run }).run.subscribe(args as ExecutionArgs),
    authenticate: (req) =>
      req.headers.get('x-graphql-event-stream-token') ??
      new URL(req.url, 'http://localhost').searchParams.get('token') ??
      randomUUID(),
  });

  const streams = new Set<Response>();
  const stream: RequestHandler = (req, res, next) => {
    if (req.path !== '/stream') return next();
    if (req.headers.accept?.includes('text/event-stream')) {
      streams.add(res);
      res.once('close', () => streams.delete(res));
    }
    handler(req, res).catch(() => res.destroy()); // a write to a client that went away
  };
  return {
    handlers: [readBody, stream, yoga as unknown as RequestHandler],
    close: async () => {
      await sleep(50); // lets the last messages out
      for (const res of streams) res.end(); // a stream in single connection mode would wait for more operations
    },
  };
}

/** graphql-sse takes a result only if it has `data`; how it is refused is for the body to say, not for HTTP. */
function refuse(errors: readonly GraphQLError[]): ExecutionResult {
  const plain = errors.map((error) => {
    const { http: _, ...extensions } = error.extensions ?? {};
    return new GraphQLError(error.message, { nodes: error.nodes ?? null, path: error.path ?? null, extensions });
  });
  return { data: null, errors: plain };
}

/** Sets `req.body`, which Yoga and graphql-sse both take as it is. */
const readBody: RequestHandler = async (req, res, next) => {
  if (req.method !== 'POST' || !req.is('json')) return next();
  try {
    req.body = await readJsonBody(req);
    if (typeof req.body !== 'object' || req.body === null) throw new HttpError(400, 'the body must be a JSON object');
  } catch (error) {
    const known = error instanceof HttpError ? error : new HttpError(400, 'the body broke off');
    res
      .status(known.status)
      .set(known.headers)
      .json({ errors: [{ message: known.message }] });
    return;
  }
  next();
};

const limitTokens: Plugin = {
  onParse: ({ setParseFn }) => {
    setParseFn((source: string) => parse(source, { maxTokens: MAX_TOKENS }));
  },
};
