/**
 * Serves GraphQL over HTTP. Yoga serves queries and mutations at /graphql; graphql-sse serves event streams at /graphql
 * and /graphql/stream.
 */
import type { ErrorRequestHandler, Request, RequestHandler, Response } from 'express';
import { type ExecutionArgs, type ExecutionResult, GraphQLError, getOperationAST, subscribe } from 'graphql';
import { createYoga, type Plugin, type YogaServerInstance } from 'graphql-yoga';
import { describeCaller } from '../src/core/caller.js';
import { UnavailableError } from '../src/core/errors.js';
import { count, secondsSince, time } from '../src/core/signals.js';
import type { Context } from '../src/domain/context.js';
import { withSlot } from '../src/domain/turn.js';
import { sendEncoded } from '../src/gateway/http/encodings.js';
import { checkMethod, HttpError } from '../src/gateway/http/http-body.js';
import { limitStreams } from '../src/gateway/limits/limits.js';
import { createErrorMask, logStrayErrors, rememberContext } from './schema/errors.js';
import { schema } from './schema/schema.js';
import { checkOperation, limitOperations } from './server/costs.js';
import {
  type CheckedDocument,
  checkDocument,
  createDocumentCache,
  findOperation,
  ownRules,
  parseDocument,
} from './server/documents.js';
import { createGraphiql } from './server/graphiql.js';
import {
  acceptedOf,
  createErrorHandler,
  notAcceptable,
  type Params,
  readParams,
  streamRequired,
} from './server/http.js';
import { openDocuments } from './server/persisted.js';
import { createSdl, SDL_PATH } from './server/sdl.js';
import { EVENT_STREAM, EventStreams, type Pipeline } from './subscriptions/event-streams.js';

export interface GraphqlHandlers {
  handler: RequestHandler;
  onError: ErrorRequestHandler;
  /** Ends all streams without the event `complete`, so that clients reconnect. */
  close(): void;
}

interface HttpContext {
  req: Request;
  res: Response;
}

export function createGraphqlHandlers(
  contextOf: (req: Request) => Context,
  { config, log }: Pick<Context, 'config' | 'log'>,
): GraphqlHandlers {
  const maskError = createErrorMask(log);
  const yoga = createYoga<HttpContext, Context>({
    schema,
    graphqlEndpoint: '/graphql',
    context: ({ req }) => contextOf(req),
    cors: false,
    graphiql: false,
    landingPage: false,
    logging: false,
    multipart: false,
    maxRequestBodySize: false, // the gateway has already limited the body's size
    parserAndValidationCache: false, // Tapegate has its own document cache
    maskedErrors: { maskError },
    plugins: [takeParams, takeChecked, limitOperations(config.limits), observeExecution()],
  });
  const prepare: Pipeline['prepare'] = (input) => {
    const steps: ReturnType<Pipeline['prepare']> = yoga.getEnveloped(input as never) as never;
    return { ...steps, subscribe: (args) => subscribeWithin(config.limits, args) };
  };
  const documents = openDocuments(config);
  const check = createCheck(contextOf, config);
  const pipeline: Pipeline = {
    readParams: (req) => readParams(req, (given) => documents.find(given, contextOf(req).caller)),
    check,
    prepare,
    maskError,
  };
  const ownerOf = (req: Request) => describeCaller(contextOf(req).caller);
  const streamLimits = { ...limitStreams(config), operations: config.limits.streamOperations };
  const streams = new EventStreams(pipeline, ownerOf, streamLimits);
  const stopLogging = logStrayErrors(log);
  const graphiql = config.graphiql ? createGraphiql(config.publicUrl) : undefined;
  const sdl = createSdl(config.introspection);
  return {
    handler: (req, res) =>
      req.path === SDL_PATH ? sdl(req, res) : answer(req, res, { yoga, pipeline, streams, graphiql }),
    onError: createErrorHandler(log),
    close: () => {
      streams.close();
      stopLogging();
    },
  };
}

interface Handlers {
  yoga: YogaServerInstance<HttpContext, Context>;
  pipeline: Pipeline;
  streams: EventStreams;
  graphiql: ((res: Response) => Promise<void>) | undefined;
}

const RESULT_TYPES = ['application/json', 'application/graphql-response+json', EVENT_STREAM];

async function answer(req: Request, res: Response, { yoga, pipeline, streams, graphiql }: Handlers): Promise<void> {
  if (req.path === '/stream') return await streams.exchange(req, res);
  if (req.path !== '/') throw new HttpError(404, `there is nothing at ${req.originalUrl.split('?')[0]}`);
  checkMethod(req, ['GET', 'POST']);
  const page = req.method === 'GET' ? graphiql : undefined;
  const type = acceptedOf(req, page ? [...RESULT_TYPES, 'text/html'] : RESULT_TYPES);
  if (page && type === 'text/html') return await page(res);
  const params = await pipeline.readParams(req);
  await pipeline.check?.(req, params.query);
  const needsStream = isSubscription(req, params);
  const isStreamed = type === EVENT_STREAM || needsStream;
  if (isStreamed && acceptedOf(req, [EVENT_STREAM])) return await streams.answerAlone(req, res, params);
  if (needsStream) throw streamRequired('a subscription', 'use the single connection mode of /graphql/stream');
  if (type === undefined) throw notAcceptable(...RESULT_TYPES);
  req.headers.accept = type; // pass only the preferred media type to Yoga, which ignores quality values
  req.body = params;
  const response = await yoga.handleNodeRequestAndResponse(req, res, { req, res });
  res.status(response.status).setHeaders(response.headers);
  sendEncoded(res, Buffer.from(await response.arrayBuffer()), { isSecret: res.locals.isMutation === true });
}

function isSubscription(req: Request, { operationName }: Params): boolean {
  const document = checked.get(req)?.document;
  return document !== undefined && getOperationAST(document, operationName)?.operation === 'subscription';
}

const checked = new WeakMap<Request, CheckedDocument>();

/**
 * Returns a function that parses and validates a request's document. During validation, the request occupies a slot of
 * the caller's limiter, so that a caller's documents cannot delay other callers.
 */
function createCheck(contextOf: (req: Request) => Context, config: Context['config']) {
  const cache = createDocumentCache();
  const rules = ownRules(config);
  return async (req: Request, text: string): Promise<void> => {
    const known = cache.get(text);
    if (known) return void checked.set(req, known);
    const found = await withSlot(contextOf(req), 'queries', async () => checkDocument(text, schema, rules));
    checked.set(req, found);
    if (found.document) cache.set(text, found);
  };
}

const takeChecked: Plugin<object, HttpContext> = {
  onParse: ({ context, params, setParseFn }) => {
    const { req } = context as Partial<HttpContext>;
    const found = req && checked.get(req);
    setParseFn((source: string) => {
      const isChecked = found?.text === String(params.source);
      if (isChecked && !found.document) throw found.faults[0];
      const document = (isChecked && found.document) || parseDocument(source);
      findOperation(document, (context as { params?: Params }).params?.operationName);
      return document;
    });
  },
  onValidate: ({ context, params, setResult }) => {
    const { req } = context as Partial<HttpContext>;
    const found = req && checked.get(req);
    if (found?.document === undefined || found.document !== params.documentAST) return;
    if (found.faults.length > 0) count('tapegate_errors_total', { class: 'GRAPHQL' });
    setResult(found.faults as GraphQLError[]);
  },
};

const takeParams: Plugin<object, HttpContext> = {
  onRequestParse: ({ serverContext, setRequestParser }) => setRequestParser(() => serverContext.req.body),
};

function observeExecution(): Plugin<object, HttpContext> {
  return {
    onExecute: ({ args, executeFn, setExecuteFn }) => {
      const { res } = args.contextValue as Partial<HttpContext>;
      const operation = getOperationAST(args.document, args.operationName);
      // do not compress a mutation's result, because the compressed size could reveal a new token
      if (res) res.locals.isMutation = operation?.operation === 'mutation';
      const execute = limitQueries(async (given) => await executeFn(given));
      setExecuteFn((given: ExecutionArgs) => timeOperation(given, execute));
    },
  };
}

/** Executes subscriptions with graphql-js instead of Yoga's executor, which uses more CPU time for each event. */
async function subscribeWithin(limits: Context['config']['limits'], args: ExecutionArgs) {
  const { error, report } = checkOperation(args, limits);
  if (error) return { errors: [error], ...report };
  return (await subscribe(args)) as ExecutionResult | AsyncGenerator<ExecutionResult>;
}

type Execute = (args: ExecutionArgs) => Promise<ExecutionResult> | ExecutionResult;

/**
 * Limits a caller's concurrent queries. If no slot of the caller's limiter becomes free in time, the response has
 * status 503 and a `Retry-After` header. Mutations are limited separately (src/domain/audit/audited.ts), because they
 * can wait much longer for locks.
 */
export function limitQueries(execute: Execute): Execute {
  return async (args) => {
    const operation = getOperationAST(args.document, args.operationName)?.operation;
    if (operation !== 'query') return await execute(args);
    return await withSlot(args.contextValue as Context, 'queries', async () => await execute(args)).catch((error) => {
      if (!(error instanceof UnavailableError)) throw error;
      const { message, retryAfterSeconds } = error;
      const http = { status: 503, headers: { 'Retry-After': String(retryAfterSeconds) } };
      const extensions = { code: 'UNAVAILABLE', retryAfterSeconds, http };
      return { errors: [new GraphQLError(message, { extensions })] };
    });
  };
}

/**
 * Records the duration of an operation in a metric. The metric's label is the name of the operation's top-level field,
 * or `several` if the operation has several top-level fields.
 */
async function timeOperation(args: ExecutionArgs, execute: Execute): Promise<ExecutionResult> {
  const startedAt = performance.now();
  const result = await execute(args);
  const operation = getOperationAST(args.document, args.operationName);
  if (operation) {
    const [first, ...others] = operation.selectionSet.selections;
    const field = first?.kind === 'Field' && others.length === 0 ? first.name.value : 'several';
    time('tapegate_graphql_operation_seconds', { type: operation.operation, field }, secondsSince(startedAt));
  }
  if (result.errors) rememberContext(result.errors, args.contextValue as Context);
  return result;
}
