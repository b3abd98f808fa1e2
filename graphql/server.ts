/**
 * GraphQL over HTTP, through one pipeline, which is Yoga's: the same parser, validation, context, execution and error mask. Results as JSON
 * are written by results.ts; event streams are our own, too, at /graphql for one operation each and at /graphql/stream by the
 * protocol of graphql-sse. What a request says is checked here for all of them.
 */
import type { ErrorRequestHandler, Request, RequestHandler, Response } from 'express';
import { type ExecutionArgs, GraphQLError, getOperationAST, NoSchemaIntrospectionCustomRule, parse } from 'graphql';
import { createYoga, type Plugin } from 'graphql-yoga';
import { limitStreams } from '../src/access/limits/limits.js';
import { describeCaller } from '../src/caller.js';
import type { Context } from '../src/context.js';
import { HttpError } from '../src/http-body.js';
import { rightsKey } from '../src/operations/policy.js';
import { chooseType } from './accept.js';
import { limitCounts, limitIntrospection } from './cost-rules.js';
import { DocumentCache, noCache } from './document-cache.js';
import { createErrorMask } from './errors.js';
import { createGraphiql } from './graphiql.js';
import { checkMethod, createErrorHandler, readParams } from './http.js';
import { costOf, limitOperations } from './operation-limits.js';
import { timeOperation } from './operation-times.js';
import { openDocuments } from './persisted.js';
import { RESULT_TYPES, type Read, readOperation, tellResult } from './results.js';
import { schema } from './schema.js';
import { createSdl, SDL_PATH } from './sdl.js';
import { createStreamHandler, EVENT_STREAM, notAcceptable, type StreamHandler } from './sse-handler.js';
import type { Pipeline } from './sse-operations.js';
import { hearStrayErrors } from './stray-errors.js';
import { refuseOptionalSubscription } from './subscription-rule.js';
import { WorkTurns } from './work-turns.js';

/** A query of honest size has some hundred tokens; one of millions keeps the parser busy for seconds. */
const MAX_TOKENS = 10_000;

export interface GraphqlHandlers {
  /** For /graphql. */
  handler: RequestHandler;
  onError: ErrorRequestHandler;
  /** Ends all streams where they are; their clients come back. @returns when they have been told */
  close(): Promise<void>;
}

/** @param contextOf gives the context in which a request is served */
export function createGraphqlHandlers(
  contextOf: (req: Request) => Context,
  { config, log }: Pick<Context, 'config' | 'log'>,
): GraphqlHandlers {
  const maskError = createErrorMask(log);
  const yoga = createYoga<{ req: Request; res: Response }, Context>({
    schema,
    graphqlEndpoint: '/graphql',
    context: ({ req }) => contextOf(req),
    cors: false,
    graphiql: false,
    landingPage: false,
    logging: false,
    multipart: false,
    parserAndValidationCache: { documentCache: new DocumentCache(), errorCache: noCache },
    maskedErrors: { maskError },
    plugins: [
      ...[limitTokens, checkSubscriptions, limitOperations(config.limits), executeByPlan(config.limits)],
      ...(config.introspection ? [] : [refuseIntrospection]),
    ],
  });
  const prepare: Pipeline['prepare'] = (input) => yoga.getEnveloped(input as never) as never;
  const ownerOf = (req: Request) => describeCaller(contextOf(req).caller);
  const rightsOf = (req: Request) => rightsKey(contextOf(req).caller);
  const streamLimits = {
    ...limitStreams(config),
    operations: config.limits.streamOperations,
    readerSeconds: config.readerSeconds,
  };
  const documents = openDocuments(config);
  const pipeline: Pipeline = {
    readParams: (req) => readParams(req, (given) => documents.find(given, contextOf(req).caller)),
    prepare,
    maskError,
  };
  const streams = createStreamHandler(pipeline, { ownerOf, rightsOf }, streamLimits);
  const endHearing = hearStrayErrors(log);
  const graphiql = config.graphiql ? createGraphiql(config.publicUrl) : undefined;
  const sdl = createSdl(config.introspection);
  return {
    handler: (req, res) => (req.path === SDL_PATH ? sdl(req, res) : answer(req, res, { pipeline, streams, graphiql })),
    onError: createErrorHandler(log),
    close: async () => {
      const ended = streams.close();
      endHearing();
      await ended;
    },
  };
}

interface Ways {
  pipeline: Pipeline;
  streams: StreamHandler;
  /** Unless it is off. */
  graphiql: ((res: Response) => Promise<void>) | undefined;
}

const TYPES = [...RESULT_TYPES, EVENT_STREAM];
const TYPES_WITH_PAGE = [...TYPES, 'text/html'];
const STREAM_ALONE = [EVENT_STREAM];

/** What a request asks for decides who answers it, and what it accepts decides in which form. */
async function answer(req: Request, res: Response, { pipeline, streams, graphiql }: Ways): Promise<void> {
  if (req.path === '/stream') return await streams.exchange(req, res);
  if (req.path !== '/') throw new HttpError(404, `there is nothing at ${req.originalUrl.split('?')[0]}`);
  checkMethod(req, ['GET', 'POST']);
  const accept = req.get('accept');
  const page = req.method === 'GET' ? graphiql : undefined;
  const types = page ? TYPES_WITH_PAGE : TYPES;
  let type = chooseType(accept, types);
  if (page && type === 'text/html') return await page(res);
  const params = await pipeline.readParams(req);
  if (streams.isWatched(params) && chooseType(accept, STREAM_ALONE)) return await streams.tellAlone(req, res, params);
  const read = readOperation(pipeline, { req, res, params });
  // of what it accepts, the one thing that a subscription can be
  if (isSubscription(read, params.operationName)) type = chooseType(accept, STREAM_ALONE);
  if (type === EVENT_STREAM) return await streams.tellAlone(req, res, params);
  if (type === undefined) throw notAcceptable(...types);
  await tellResult(pipeline, read, { res, params, type });
}

function isSubscription(read: Read, operationName: string | null | undefined): boolean {
  return 'document' in read && getOperationAST(read.document, operationName)?.operation === 'subscription';
}

/** Yoga's executor is for subscriptions alone. What changes something has turns of its own, in which it may wait for long. */
function executeByPlan({ graphqlWork, callerGraphqlWork }: Context['config']['limits']): Plugin {
  const turns = new WorkTurns({ all: graphqlWork, one: callerGraphqlWork });
  const execute = async (args: ExecutionArgs) => {
    const ctx = args.contextValue as Context;
    const { share } = ctx;
    const operation = getOperationAST(args.document, args.operationName)?.operation;
    if (share === undefined || operation !== 'query') return await timeOperation(args);
    const end = await turns.begin(share, costOf(ctx), () => ctx.reader);
    try {
      return await timeOperation(args);
    } finally {
      end();
    }
  };
  return { onExecute: ({ setExecuteFn }) => setExecuteFn(execute) };
}

const checkSubscriptions: Plugin = {
  onValidate: ({ addValidationRule }) => {
    addValidationRule(refuseOptionalSubscription);
    addValidationRule(limitIntrospection);
    addValidationRule(limitCounts);
  },
};

/** For everybody, on all ways: who may ask has the schema from elsewhere. `__typename` tells nothing of it. */
const refuseIntrospection: Plugin = {
  onValidate: ({ addValidationRule }) => addValidationRule(NoSchemaIntrospectionCustomRule),
};

/** The parser's own limits, so that no query keeps it busy or breaks it. */
const limitTokens: Plugin = {
  onParse: ({ setParseFn }) => {
    setParseFn((source: string) => {
      try {
        return parse(source, { maxTokens: MAX_TOKENS });
      } catch (error) {
        // a parser that runs out of stack has met a query that is nested too deeply
        const fault = error instanceof RangeError ? new GraphQLError('the query is nested too deeply') : error;
        // Yoga adds this for its own requests alone, and keeps what others have met for them as it is
        if (fault instanceof GraphQLError) Object.assign(fault.extensions, PARSE_FAILED);
        throw fault;
      }
    });
  },
};

const PARSE_FAILED = { code: 'GRAPHQL_PARSE_FAILED', http: { spec: true, status: 400 } };
