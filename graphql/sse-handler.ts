/**
 * GraphQL over server-sent events, by the protocol of graphql-sse in both of its modes. The handler of that package is
 * not used: it tells clients that an operation is complete when the server stops, never frees a stream that is reserved
 * and not opened, lets a slow reader pile up results in memory, and breaks a stream, with all the operations on it, when
 * one of them throws.
 */
import { randomUUID } from 'node:crypto';
import type { Request, Response } from 'express';
import { endTurn, keepTurn } from '../src/access/limits/turns.js';
import { HttpError } from '../src/http-body.js';
import { acceptedOf, checkMethod, notAcceptable, type Params, sendErrors } from './http.js';
import { type Pipeline, prepareOperation, type Results, resultsOf, sizeOf } from './sse-operations.js';
import { EventStream, type Operation } from './sse-stream.js';
import { Watchers } from './sse-watchers.js';

export interface StreamHandler {
  /** Answers at the address of both modes. */
  exchange(req: Request, res: Response): Promise<void>;
  /** Answers with a stream of one operation. */
  tellAlone(req: Request, res: Response, params: Params): Promise<void>;
  /** It is a subscription that others have begun, and known without a look at it. */
  isWatched(params: Params): boolean;
  /** Ends all streams, without telling that anything is complete, and opens no more. @returns when the last bytes of those that are shared have gone */
  close(): Promise<void>;
}

const TOKEN_HEADER = 'x-graphql-event-stream-token';
export const EVENT_STREAM = 'text/event-stream';
/** A client opens the stream that it has reserved at once. */
const RESERVATION_MS = 60_000;

/** What streams may be; none of it has a bound unless it is given. */
export interface StreamLimits {
  reservationMs?: number;
  /** Takes one of the streams that a caller may have. @returns what gives it back. @throws HttpError 429, 503 */
  take?: (req: Request) => () => void;
  /** The same of streams that are reserved and not opened, which take none of the others' places. */
  reserve?: (req: Request) => () => void;
  /** The same of what subscriptions say, in characters: it is kept for as long as they go on. */
  keep?: (req: Request, characters: number) => () => void;
  /** On one stream. */
  operations?: number;
  /** For so long a reader may take nothing of what waits for it. */
  readerSeconds?: number;
}

/** What is to be known of callers. */
export interface CallerKeys {
  /** Names the caller of a request: a stream is for whoever has reserved it. */
  ownerOf(req: Request): string;
  /** The same for callers who may be told the same; undefined for one who shares with nobody. */
  rightsOf(req: Request): string | undefined;
}

export function createStreamHandler(pipeline: Pipeline, callers: CallerKeys, limits: StreamLimits = {}): StreamHandler {
  return new EventStreams(pipeline, callers, limits);
}

/** What a stream has taken, as a reservation or as what it is. */
class Place {
  private giveBack: () => void;

  constructor(give: () => void) {
    this.giveBack = give;
  }

  give(): void {
    this.giveBack();
  }

  move(give: () => void): void {
    this.giveBack();
    this.giveBack = give;
  }
}

class EventStreams implements StreamHandler {
  private readonly pipeline: Pipeline;
  private readonly callers: CallerKeys;
  private readonly limits: Required<StreamLimits>;
  private readonly streams = new Set<EventStream>();
  private readonly watchers: Watchers;
  /** Those of single connection mode. */
  private readonly reserved = new Map<string, { stream: EventStream; owner: string; place: Place }>();
  private isClosed = false;

  constructor(pipeline: Pipeline, callers: CallerKeys, limits: StreamLimits) {
    this.pipeline = pipeline;
    this.callers = callers;
    this.limits = {
      reservationMs: RESERVATION_MS,
      take: () => () => {},
      reserve: () => () => {},
      keep: () => () => {},
      operations: Number.POSITIVE_INFINITY,
      readerSeconds: Number.POSITIVE_INFINITY,
      ...limits,
    };
    const take = (req: Request, params: Params) => this.takeWith(req, sizeOf(req, params));
    this.watchers = new Watchers({ take, readerSeconds: this.limits.readerSeconds });
  }

  async exchange(req: Request, res: Response): Promise<void> {
    this.refuseWhenClosed();
    checkMethod(req, ['GET', 'POST', 'PUT', 'DELETE']);
    if (req.method === 'PUT') return this.reserve(req, res);
    const token = req.get(TOKEN_HEADER) ?? searchOf(req).get('token') ?? '';
    const reserved = this.reserved.get(token);
    const stream = reserved?.owner === this.callers.ownerOf(req) ? reserved.stream : undefined;
    if (req.method === 'DELETE') return this.drop(req, res, stream);
    const accept = req.get('accept');
    const chosen = acceptedOf(req, stream ? ['application/json', EVENT_STREAM] : [EVENT_STREAM]);
    if (chosen === EVENT_STREAM && accept?.toLowerCase().includes(EVENT_STREAM)) {
      if (!stream) return await this.tellAlone(req, res, await this.pipeline.readParams(req));
      if (stream.isOpen) throw new HttpError(409, 'Stream already open');
      reserved?.place.move(this.limits.take(req));
      endTurn(res);
      return stream.open(res);
    }
    if (!stream) throw new HttpError(404, 'Stream not found');
    if (chosen === undefined) throw notAcceptable('application/json');
    await this.tellWithOthers(req, res, stream);
  }

  async tellAlone(req: Request, res: Response, params: Params): Promise<void> {
    this.refuseWhenClosed();
    const rights = this.callers.rightsOf(req);
    const wish = { params, rights, lastEventId: req.get('last-event-id') };
    if (this.watchers.join(req, res, wish)) return;
    const prepared = await prepareOperation(this.pipeline, { req, res, params });
    this.refuseWhenClosed();
    if ('begin' in prepared && this.watchers.begin(req, res, wish, prepared)) return;
    const characters = 'begin' in prepared && prepared.isSubscription ? sizeOf(req, params) : 0;
    const stream = this.create(new Place(this.takeWith(req, characters)));
    endTurn(res);
    const operation = stream.reserve('') as Operation; // the only one
    stream.open(res);
    await stream.tell(operation, 'errors' in prepared ? resultsOf(prepared) : await prepared.begin());
    stream.end();
  }

  isWatched(params: Params): boolean {
    return this.watchers.knows(params);
  }

  async close(): Promise<void> {
    this.isClosed = true;
    for (const stream of this.streams) stream.end();
    await this.watchers.close();
  }

  private async tellWithOthers(req: Request, res: Response, stream: EventStream): Promise<void> {
    const params = await this.pipeline.readParams(req);
    const id = String(params.extensions?.operationId ?? '');
    if (!id) throw new HttpError(400, 'Operation ID is missing');
    if (stream.size >= this.limits.operations) {
      const message = `the stream has ${stream.size} operations already: try again later`;
      throw new HttpError(429, message, { 'Retry-After': '5' });
    }
    const operation = stream.reserve(id);
    if (!operation) throw new HttpError(409, 'Operation with ID already exists');
    try {
      const reader = operation.gone.signal; // and not that of the request, which is answered before it is begun
      const prepared = await prepareOperation(this.pipeline, { req, res, params, reader });
      if ('errors' in prepared) {
        stream.drop(operation);
        return sendErrors(res, 400, prepared.errors);
      }
      if (!stream.has(operation)) return void res.status(204).end();
      if (prepared.isSubscription) await this.tellKept(stream, operation, { req, params, begin: prepared.begin });
      else void tellOnce(stream, operation, prepared.begin).finally(keepTurn(res));
      res.status(stream.has(operation) ? 202 : 204).end();
    } catch (error) {
      stream.drop(operation);
      throw error;
    }
  }

  /** Begins a subscription beside others. What it says counts until it has ended, however it does. */
  private async tellKept(
    stream: EventStream,
    operation: Operation,
    { req, params, begin }: { req: Request; params: Params; begin: () => Promise<Results> },
  ): Promise<void> {
    const give = this.limits.keep(req, sizeOf(req, params));
    operation.gone.signal.addEventListener('abort', give, { once: true });
    try {
      void stream.tell(operation, await begin()).finally(give);
    } catch (error) {
      give();
      throw error;
    }
  }

  /** Takes a stream, and what its one operation says. */
  private takeWith(req: Request, characters: number): () => void {
    const giveText = this.limits.keep(req, characters);
    try {
      const give = this.limits.take(req);
      return () => {
        give();
        giveText();
      };
    } catch (error) {
      giveText();
      throw error;
    }
  }

  private reserve(req: Request, res: Response): void {
    if (!acceptedOf(req, ['text/plain'])) throw notAcceptable('text/plain');
    const token = randomUUID(); // never the client's to choose
    const place = new Place(this.limits.reserve(req));
    const stream = this.create(place, () => this.reserved.delete(token));
    this.reserved.set(token, { stream, owner: this.callers.ownerOf(req), place });
    setTimeout(() => {
      if (!stream.isOpen) stream.end();
    }, this.limits.reservationMs).unref();
    res.status(201).type('text/plain').send(token);
  }

  private drop(req: Request, res: Response, stream: EventStream | undefined): void {
    if (!stream) throw new HttpError(404, 'Stream not found');
    const id = searchOf(req).get('operationId');
    if (!id) throw new HttpError(400, 'Operation ID is missing');
    const operation = stream.find(id);
    if (operation) stream.drop(operation);
    res.status(200).end();
  }

  private create(place: Place, onEnd = () => {}): EventStream {
    const stream = new EventStream(() => {
      place.give();
      this.streams.delete(stream);
      onEnd();
    });
    this.streams.add(stream);
    return stream;
  }

  private refuseWhenClosed(): void {
    if (this.isClosed) throw new HttpError(503, 'the gateway stops', { 'Retry-After': '1', Connection: 'close' });
  }
}

/**
 * What is answered once is not run before somebody reads the answer, which would be kept for whoever never comes; until then it is
 * a request that is in hand.
 */
async function tellOnce(stream: EventStream, operation: Operation, begin: () => Promise<Results>): Promise<void> {
  if (await stream.awaitReader(operation)) await stream.tell(operation, await begin());
}

const searchOf = (req: Request) => new URL(req.url, 'http://localhost').searchParams;
