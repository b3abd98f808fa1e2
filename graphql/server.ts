/**
 * GraphQL over HTTP: Yoga at /graphql (its own SSE and GraphiQL included) and graphql-sse at /graphql/stream, both of
 * its modes, through one pipeline: the same parser, validation, context, execution and error mask.
 */
import { renderGraphiQL } from '@graphql-yoga/render-graphiql';
import type { Request, RequestHandler, Response } from 'express';
import { GraphQLError, parse } from 'graphql';
import { createYoga, type Plugin } from 'graphql-yoga';
import type { Context } from '../src/context.js';
import { HttpError, readJsonBody } from '../src/http-body.js';
import { createErrorMask } from './errors.js';
import { schema } from './schema.js';
import type { Pipeline } from './sse-operations.js';
import { createStreamHandler } from './sse-stream.js';

/** A query of honest size has some hundred tokens; one of millions keeps the parser busy for seconds. */
const MAX_TOKENS = 10_000;

export interface GraphqlHandlers {
  /** For /graphql, in this order. */
  handlers: RequestHandler[];
  /** Ends the streams that would go on, after the feed has ended their subscriptions. */
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
  const prepare: Pipeline['prepare'] = (input) => yoga.getEnveloped(input as never) as never;
  const stream = createStreamHandler({ prepare, maskError });

  return {
    handlers: [
      readBody,
      (req, res, next) => (req.path === '/stream' ? stream.handler(req, res, next) : next()),
      yoga as unknown as RequestHandler,
    ],
    close: () => stream.close(),
  };
}

/** Sets `req.body`, which Yoga and graphql-sse both take as it is. */
const readBody: RequestHandler = async (req, res, next) => {
  if (req.method !== 'POST' || !req.is('json')) return next();
  try {
    req.body = await readJsonBody(req);
    const isQuery = Array.isArray(req.body) || typeof req.body?.query === 'string';
    if (!isQuery) throw new HttpError(400, 'the body must be a JSON object with a "query"');
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

/** The parser's own limits, so that no query keeps it busy or breaks it. */
const limitTokens: Plugin = {
  onParse: ({ setParseFn }) => {
    setParseFn((source: string) => {
      try {
        return parse(source, { maxTokens: MAX_TOKENS });
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        throw new GraphQLError('the query is nested too deeply'); // the parser ran out of stack
      }
    });
  },
};
