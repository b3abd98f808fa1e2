/**
 * Serves subscriptions over server-sent events, in both modes of graphql-sse.
 * - In single connection mode, tokens are signed and not stored. A stream exists only while its client is connected.
 * - A slow reader pauses the stream's operations, so each operation keeps only one result in memory. The response to a
 *   POST waits until the client has read all earlier results. `dropStalled` in app.ts disconnects a client that stops
 *   reading.
 * - If an event source fails, its operation ends with an error result. Other operations of the stream continue.
 * - A gateway that stops ends its streams without the event `complete`, so that clients reconnect.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Request, Response } from 'express';
import { type DocumentNode, type ExecutionArgs, type ExecutionResult, GraphQLError, type GraphQLSchema } from 'graphql';
import { createHandler, type OperationResult, type Response as SseResponse } from 'graphql-sse';
import { checkMethod, HttpError, sizeOfBody } from '../../src/gateway/http/http-body.js';
import { disconnectSignalOf } from '../../src/gateway/http/unfinished-responses.js';
import { holdLimits, stopCountingRequest } from '../../src/gateway/limits/limits.js';
import type { EventCursor } from '../schema/event-cursor.js';
import { findOperation, readVariables } from '../server/documents.js';
import { acceptedOf, notAcceptable, type Params, streamRequired } from '../server/http.js';

type Result = ExecutionResult | AsyncGenerator<ExecutionResult>;
type Execute = (args: ExecutionArgs) => Promise<Result> | Result;

export interface Pipeline {
  /**
   * @returns a request's parameters, with a persisted document's id replaced by the document's text
   * @throws HttpError
   */
  readParams(req: Request): Promise<Params>;
  /**
   * Parses and validates a document. Takes one of the caller's limiter slots during this work.
   * @throws UnavailableError
   */
  check?(req: Request, query: string): Promise<void>;
  prepare(input: { req: Request; res: Response; params: object; cursor?: EventCursor; request?: { method: string } }): {
    schema: GraphQLSchema;
    parse(query: string): DocumentNode;
    validate(schema: GraphQLSchema, document: DocumentNode): readonly GraphQLError[];
    contextFactory(): Promise<object> | object;
    execute: Execute;
    /**
     * Executes a subscription. The caller must remove internal details from the errors in the results with `maskError`.
     */
    subscribe: Execute;
  };
  maskError(error: unknown): Error;
}

/**
 * Limits for streams. Without `take`, the number of streams is unlimited. Without `keep`, the total length of the
 * subscriptions is unlimited.
 */
export interface StreamLimits {
  /**
   * Counts a stream against the caller's limit.
   * @returns a function that stops counting the stream
   * @throws HttpError 429, 503
   */
  take?: (req: Request) => () => void;
  /**
   * Counts the characters of a subscription against the caller's limit, because the subscription's text stays in
   * memory.
   * @returns a function that stops counting the characters
   */
  keep?: (req: Request, characters: number) => () => void;
  operations?: number;
}

/** An event stream. In distinct connections mode, a stream has exactly one operation. */
interface Stream {
  res: Response;
  /** The caller's name in single connection mode. In distinct connections mode, `owner` and `token` are empty. */
  owner: string;
  token: string;
  /** For each active operation, a function that stops counting the operation against the caller's limits. */
  operations: Set<() => void>;
  /** Event ids of the unsent results, in distinct connections mode only. */
  eventIds: (bigint | undefined)[];
  drained?: Promise<void> | undefined;
}

interface StreamCall {
  req: Request;
  res: Response;
  /** The stream that the client opened with the token; undefined if the client has not opened the stream yet. */
  stream: Stream | undefined;
  params: Params;
  cursor: EventCursor;
  end(): void;
}

const TOKEN_HEADER = 'x-graphql-event-stream-token';
export const EVENT_STREAM = 'text/event-stream';
const JSON_TYPE = 'application/json';
/** Time in milliseconds that a client has to open its stream after the gateway has issued the stream's token. */
const TOKEN_MS = 60_000;
const PING = ':\n\n';
const MAX_SUBSCRIPTION_BYTES = 16 * 1024;

const run = ({ rootValue }: ExecutionArgs) => (rootValue as () => OperationResult)();

export class EventStreams {
  private readonly pipeline: Pipeline;
  private readonly ownerOf: (req: Request) => string;
  private readonly limits: Required<StreamLimits>;
  private readonly secret = randomBytes(32);
  private readonly open = new Set<Response>();
  private readonly shared = new Map<string, Stream>();
  private isClosed = false;

  private readonly handle = createHandler<Request, StreamCall, Record<PropertyKey, unknown>>({
    authenticate: ({ method, raw, context }) => context.stream?.token ?? (method === 'PUT' ? this.issue(raw) : ''),
    onSubscribe: ({ context }) => this.prepare(context),
    onOperation: (_ctx, { context }, _args, result) => this.adapt(context, result as Result),
    validate: () => [],
    execute: run,
    subscribe: run,
  });

  /** @param ownerOf returns the caller's name; a token is valid only for the caller that requested it */
  constructor(pipeline: Pipeline, ownerOf: (req: Request) => string, limits: StreamLimits = {}) {
    this.pipeline = pipeline;
    this.ownerOf = ownerOf;
    this.limits = { take: () => () => {}, keep: () => () => {}, operations: Number.POSITIVE_INFINITY, ...limits };
  }

  async exchange(req: Request, res: Response): Promise<void> {
    this.refuseWhenClosed();
    checkMethod(req, ['GET', 'POST', 'PUT', 'DELETE']);
    if (req.method === 'PUT') {
      if (!acceptedOf(req, ['text/plain'])) throw notAcceptable('text/plain');
      return await this.answer(exchangeOf(req, res, undefined), req);
    }
    const owner = this.ownerOf(req);
    const token = req.get(TOKEN_HEADER) ?? searchOf(req).get('token') ?? '';
    const known = this.shared.get(token);
    const stream = known?.owner === owner ? known : undefined;
    if (req.method === 'DELETE') return await this.answer(exchangeOf(req, res, stream), req);
    if (!wantsStream(req, stream)) {
      if (token === '') throw streamRequired('/graphql/stream', "send a stream's token");
      return await this.answerBeside(req, res, stream);
    }
    if (stream) throw new HttpError(409, 'Stream already open');
    if (this.isIssued(token, owner)) return await this.connect(req, res, { owner, token });
    await this.answerAlone(req, res, await this.pipeline.readParams(req));
  }

  async answerAlone(req: Request, res: Response, params: Params): Promise<void> {
    this.refuseWhenClosed();
    const stream = this.create(req, res, { owner: '', token: '' });
    await this.answer(exchangeOf(req, res, stream, params), { method: 'POST', accept: EVENT_STREAM });
  }

  /** Ends all streams without the event `complete`, and refuses new streams. */
  close(): void {
    this.isClosed = true;
    for (const res of this.open) res.end();
  }

  private issue(req: Request): SseResponse {
    const claim = `${(Date.now() + TOKEN_MS).toString(36)}.${randomBytes(16).toString('base64url')}`;
    const token = `${claim}.${this.sign(claim, this.ownerOf(req))}`;
    return [token, { status: 201, statusText: 'Created', headers: { 'content-type': 'text/plain; charset=utf-8' } }];
  }

  private isIssued(token: string, owner: string): boolean {
    const [expires = '', random = '', signature = ''] = token.split('.');
    const given = Buffer.from(signature);
    const expected = Buffer.from(this.sign(`${expires}.${random}`, owner));
    const isSigned = given.length === expected.length && timingSafeEqual(given, expected);
    return isSigned && Number.parseInt(expires, 36) > Date.now();
  }

  private sign(claim: string, owner: string): string {
    return createHmac('sha256', this.secret).update(`${claim}.${owner}`).digest('base64url');
  }

  private async connect(req: Request, res: Response, whose: { owner: string; token: string }): Promise<void> {
    const stream = this.create(req, res, whose);
    this.shared.set(stream.token, stream);
    whenClosed(res, () => this.shared.delete(stream.token));
    const exchange = exchangeOf(req, res, stream);
    await this.ask(exchange, { method: 'PUT' });
    await this.answer(exchange, { method: 'GET', accept: EVENT_STREAM });
  }

  /** @throws HttpError if the caller has too many streams */
  private create(req: Request, res: Response, whose: { owner: string; token: string }): Stream {
    const give = this.limits.take(req);
    const stream: Stream = { res, ...whose, operations: new Set(), eventIds: [] };
    whenClosed(res, () => {
      give();
      for (const end of stream.operations) end();
    });
    return stream;
  }

  private async answerBeside(req: Request, res: Response, stream: Stream | undefined): Promise<void> {
    if (stream && !acceptedOf(req, [JSON_TYPE])) throw notAcceptable(JSON_TYPE);
    const params = stream && (await this.pipeline.readParams(req));
    const exchange = exchangeOf(req, res, stream, params);
    // graphql-sse does not free the id of a rejected operation
    const search = new URLSearchParams({ operationId: String(params?.extensions?.operationId ?? '') });
    const free = () => this.ask(exchange, { method: 'DELETE', url: `/?${search}` });
    try {
      await this.answer(exchange, { method: 'POST' });
      if (res.statusCode === 400) await free();
    } catch (error) {
      await free();
      throw error;
    }
  }

  private async answer(exchange: StreamCall, as: { method: string; accept?: string }): Promise<void> {
    const { res, stream } = exchange;
    const [body, { status, headers = {} }] = await this.ask(exchange, as);
    if (!stream || body === null || typeof body === 'string') res.status(status).set(headers).end(body);
    else this.send(stream, body, headers);
  }

  /** Passes a request to graphql-sse, always as a POST, because `readParams` has already read the parameters. */
  private async ask(
    context: StreamCall,
    { method, url = context.req.url, accept = '*/*' }: { method: string; url?: string; accept?: string },
  ): Promise<SseResponse> {
    const { req: raw, params } = context;
    const get = (name: string) => ({ accept, 'content-type': JSON_TYPE })[name] ?? raw.get(name);
    return await this.handle({ method, url, headers: { get }, body: { ...params }, raw, context });
  }

  private async prepare(exchange: StreamCall) {
    const { req, res, params, cursor, stream } = exchange;
    const { schema, ...steps } = this.pipeline.prepare({ req, res, params, cursor });
    try {
      await this.pipeline.check?.(req, params.query);
      const document = steps.parse(params.query);
      const faults = steps.validate(schema, document);
      if (faults.length > 0) return refuse(exchange, faults);
      const operation = findOperation(document, params.operationName);
      if (operation.operation === 'mutation' && req.method === 'GET') {
        throw new HttpError(405, 'mutations are not allowed over GET: use POST', { Allow: 'POST' });
      }
      const variables = readVariables(schema, operation, params.variables ?? {});
      if (variables.errors) return refuse(exchange, variables.errors);
      const contextValue = (await steps.contextFactory()) as Record<PropertyKey, unknown>;
      // abort the operation when the stream ends, not when the POST ends, because the POST ends earlier
      if (stream?.token) Object.assign(contextValue, { reader: disconnectSignalOf(stream.res) });
      const { operationName = null, variables: variableValues = null } = params;
      const args = { schema, document, contextValue, operationName, variableValues };
      const isSubscription = operation.operation === 'subscription';
      const rootValue = async (): Promise<Result> => {
        if (isSubscription) this.admit(exchange);
        // count the query against the caller's limit even after a disconnect, because the query continues and uses
        // memory
        const end = isSubscription ? undefined : holdLimits(res);
        try {
          if (!isSubscription) {
            const result = await steps.execute(args);
            // count the query against the caller's limit until the client has read the result, because the result uses
            // memory
            if (stream?.token) await untilTaken(stream);
            return result;
          }
          const result = await steps.subscribe(args);
          return 'next' in result ? result : this.masked(result);
        } catch (error) {
          return this.toResult(error);
        } finally {
          end?.();
        }
      };
      return { ...args, rootValue };
    } catch (error) {
      if (error instanceof HttpError) throw error;
      return refuse(exchange, [this.pipeline.maskError(error)]);
    }
  }

  private readonly masked = (result: ExecutionResult): ExecutionResult =>
    result.errors
      ? { ...result, errors: result.errors.map((error) => toPlain(this.pipeline.maskError(error))) }
      : result;

  private readonly toResult = (error: unknown): ExecutionResult => ({
    errors: [toPlain(this.pipeline.maskError(error))],
  });

  private admit(exchange: StreamCall): void {
    const { req, stream, params } = exchange;
    // the document can be larger than the body, because the body might contain only the id of a persisted document
    const size = Math.max(sizeOfBody(req), params.query.length);
    if (size > MAX_SUBSCRIPTION_BYTES) {
      throw new HttpError(413, `a subscription must have at most ${MAX_SUBSCRIPTION_BYTES} bytes`);
    }
    const operations = stream?.operations ?? new Set();
    if (operations.size >= this.limits.operations) {
      const message = `the stream already has ${operations.size} operations, which is the maximum: try again when one of them has ended`;
      throw new HttpError(429, message, { 'Retry-After': '5' });
    }
    const give = this.limits.keep(req, size);
    exchange.end = () => {
      if (operations.delete(exchange.end)) give();
    };
    operations.add(exchange.end);
  }

  private adapt(exchange: StreamCall, result: Result): Result {
    const { stream } = exchange;
    if (stream && 'next' in result)
      return paced(result, { exchange, stream, masked: this.masked, toResult: this.toResult });
    exchange.end();
    return withPlainErrors(result as ExecutionResult);
  }

  private send(stream: Stream, messages: AsyncGenerator<string, void>, headers: Record<string, string>): void {
    const { res } = stream;
    this.open.add(res);
    stopCountingRequest(res);
    res.locals.isStream = true; // open-responses.ts ends streams when the caller's rights change
    whenClosed(res, () => {
      this.open.delete(res);
      void messages.return();
    });
    // ignore write errors after a disconnect, because the event 'close' also ends the stream
    res.on('error', () => {});
    if (res.closed || res.locals.isStale) res.destroy();
    else res.writeHead(200, headers);
    if (this.isClosed) res.end();
    void write(stream, messages).catch(() => res.destroy());
  }

  private refuseWhenClosed(): void {
    if (this.isClosed)
      throw new HttpError(503, 'the gateway is stopping: reconnect', { 'Retry-After': '1', Connection: 'close' });
  }
}

function exchangeOf(
  req: Request,
  res: Response,
  stream: Stream | undefined,
  params: Params = { query: '' },
): StreamCall {
  const cursor = { lastEventId: req.get('last-event-id') || undefined };
  return { req, res, stream, params, cursor, end: () => {} };
}

async function write({ res, token, eventIds }: Stream, messages: AsyncIterable<string>): Promise<void> {
  for await (const message of messages) {
    if (isOver(res)) return;
    // do not send pings while the client does not read, because an unread ping would make the connection look alive
    if (message === PING && res.writableLength > 0) continue;
    const eventId = token === '' && message.startsWith('event: next') ? eventIds.shift() : undefined;
    res.write(eventId === undefined ? message : message.replace('data:', `id: ${eventId}\ndata:`));
  }
  if (!isOver(res)) res.end();
}

function paced(
  source: AsyncGenerator<ExecutionResult>,
  {
    exchange,
    stream,
    masked,
    toResult,
  }: {
    exchange: StreamCall;
    stream: Stream;
    masked(result: ExecutionResult): ExecutionResult;
    toResult(error: unknown): ExecutionResult;
  },
): AsyncGenerator<ExecutionResult> {
  let isFirst = true;
  let hasFailed = false;
  const read = async (): Promise<ExecutionResult | undefined> => {
    if (!isFirst) await untilTaken(stream);
    isFirst = false;
    if (hasFailed || isOver(stream.res)) return undefined;
    try {
      const { done, value } = await source.next();
      return done ? undefined : masked(value);
    } catch (error) {
      hasFailed = true;
      return toResult(error);
    }
  };
  const end = async (): Promise<IteratorReturnResult<undefined>> => {
    exchange.end();
    void source.return(undefined).catch(() => {}); // the operation has ended, so ignore the source's errors
    return { done: true, value: undefined };
  };
  return {
    next: async () => {
      const value = await read();
      if (!value) return await end();
      // end the stream if the database is unavailable, so that the client reconnects and tries again
      if (value.errors?.some(({ extensions }) => extensions.code === 'UNAVAILABLE')) {
        stream.res.end();
        return await end();
      }
      if (stream.token === '') stream.eventIds.push(exchange.cursor.eventId);
      return { done: false, value };
    },
    return: end,
    throw: end,
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}

let turn: Promise<void> | undefined;

async function untilTaken(stream: Stream): Promise<void> {
  const { res } = stream;
  turn ??= new Promise((resolve) => {
    setImmediate(() => {
      turn = undefined;
      resolve();
    });
  });
  await turn;
  if (!res.writableNeedDrain || isOver(res)) return;
  stream.drained ??= new Promise((resolve) => {
    const go = () => {
      res.off('drain', go).off('close', go);
      stream.drained = undefined;
      resolve();
    };
    res.on('drain', go).on('close', go);
  });
  await stream.drained;
}

const isOver = (res: Response) => res.writableEnded || res.destroyed;

function whenClosed(res: Response, act: () => void): void {
  if (res.closed) act();
  else res.once('close', act);
}

/**
 * Rejects an operation. In single connection mode, sends the errors in the response to the POST. In distinct
 * connections mode, sends the errors as a result in the event stream.
 */
function refuse({ stream }: StreamCall, errors: readonly Error[]): SseResponse | AsyncGenerator<ExecutionResult> {
  const result = { errors: errors.map(toPlain) };
  if (!stream?.token) return only(result);
  return [JSON.stringify(result), { status: 400, statusText: 'Bad Request', headers: { 'content-type': JSON_TYPE } }];
}

async function* only(result: ExecutionResult): AsyncGenerator<ExecutionResult> {
  yield result;
}

/** Removes HTTP status and headers from errors, because the response header has already been sent. */
function withPlainErrors(result: ExecutionResult): ExecutionResult {
  return result.errors ? { ...result, errors: result.errors.map(toPlain) } : result;
}

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

const searchOf = (req: Request) => new URL(req.url, 'http://localhost').searchParams;

/**
 * Returns whether the client wants an event stream. The `Accept` header must contain `text/event-stream`. A wildcard
 * such as `text/*` is not enough.
 */
function wantsStream(req: Request, stream: Stream | undefined): boolean {
  const types = stream ? [JSON_TYPE, EVENT_STREAM] : [EVENT_STREAM];
  return /text\/event-stream/i.test(req.get('accept') ?? '') && acceptedOf(req, types) === EVENT_STREAM;
}
