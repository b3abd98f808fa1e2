/**
 * A Tapegate client for Node.js and browsers: requests, files and quotas with the types of the schema, and progress as an iterator that
 * reconnects after a gateway restarts. Sizes are bigints in bytes, times are RFC 3339 strings in UTC.
 */
import * as sent from '../../src/generated/client-operations.js';
import { NotOnDisk, Refused, UnexpectedResponse, Unreachable } from './errors.js';
import { Transport } from './transport.js';

export type * from '../../src/generated/client-operations.js';
export { NotOnDisk, Refused, UnexpectedResponse, Unreachable };

export interface ClientOptions {
  /** URL of the gateway. Default: TAPEGATE_URL, or port 8080 of this host. */
  url?: string | undefined;
  /** An API token, or a function that returns a token for each call. Default: TAPEGATE_TOKEN. */
  token?: string | (() => Promise<string | undefined> | string | undefined) | undefined;
  fetch?: typeof fetch | undefined;
}

export type RequestState = sent.RequestState;
export type Request = sent.RequestFragment;
export type RequestInDetail = NonNullable<sent.RequestQuery['request']>;
export type RequestFile = NonNullable<sent.RequestFilesQuery['request']>['files']['edges'][number]['node'];
export type TapeFile = NonNullable<sent.FilesQuery['tapeFiles']>['edges'][number]['node'];
export type Quota = NonNullable<sent.QuotaQuery['quota']>;
export type Progress = sent.ProgressSubscription['requestProgress'];
type Failure = { message: string; code: sent.FailureCode };
export type Estimate = NonNullable<NonNullable<sent.EstimateQuery['estimateRequest']>['estimate']>;

/** Page sizes of lists. */
const PAGE = 500;
const LONGEST_PAUSE_MS = 30_000;

/** Pauses before a call is repeated for the first and the second time. */
const REPEAT_PAUSES_MS = [1000, 5000];

export function createClient(options: ClientOptions = {}): Client {
  return new Client(options);
}

/** A connection to one gateway with one token. All methods throw `Refused`, `Unreachable` and its `UnexpectedResponse`. */
export class Client {
  readonly url: string;
  private readonly transport: Transport;

  constructor({ url, token, fetch: ask = globalThis.fetch.bind(globalThis) }: ClientOptions) {
    const env = (globalThis as { process?: { env: Record<string, string | undefined> } }).process?.env ?? {};
    this.url = (url ?? (env.TAPEGATE_URL || 'http://127.0.0.1:8080')).replace(/\/+$/, '');
    const shown = token ?? env.TAPEGATE_TOKEN;
    this.transport = new Transport({
      url: this.url,
      token: typeof shown === 'function' ? shown : () => shown,
      fetch: ask,
    });
  }

  /**
   * Requests files by path, or all present and future files whose path contains a pattern. Repeats the call twice if no
   * response arrives. The call has a random idempotency key, so that it creates only one request.
   */
  async createRequest(given: sent.CreateRequestInput): Promise<Request> {
    const input = { ...given, idempotencyKey: given.idempotencyKey ?? randomKey() };
    for (let n = 0; ; n++) {
      try {
        const answer = await this.ask<sent.CreateRequestMutation>(sent.CreateRequestText, { input });
        return present(accepted(answer.createRequest).request);
      } catch (error) {
        const pauseMs = REPEAT_PAUSES_MS[n];
        if (pauseMs === undefined || !mayRepeat(error)) throw error;
        await pause(pauseMs, undefined);
      }
    }
  }

  /** Estimates a request, without creating it. */
  async estimate(input: sent.CreateRequestInput): Promise<Estimate> {
    const { estimateRequest } = await this.ask<sent.EstimateQuery>(sent.EstimateText, { input });
    return present(accepted(estimateRequest).estimate);
  }

  /** @returns undefined if it does not exist, or the caller is not allowed to see it */
  async request(id: number): Promise<RequestInDetail | undefined> {
    return (await this.ask<sent.RequestQuery>(sent.RequestText, { id })).request ?? undefined;
  }

  /** Yields all requests that the caller may see, oldest first. */
  async *requests(which: { quota?: string; states?: RequestState[] } = {}): AsyncGenerator<Request> {
    yield* this.pages<sent.RequestsQuery, Request>(sent.RequestsText, which, (data) => data.requests);
  }

  /** Changes the label, retention, limits or email addresses of a request. */
  async update(input: sent.UpdateRequestInput): Promise<Request> {
    return present(
      accepted((await this.ask<sent.UpdateRequestMutation>(sent.UpdateRequestText, { input })).updateRequest).request,
    );
  }

  /** Changes the retention of a request. */
  async extend(id: number, until: Date | string): Promise<Request> {
    return await this.update({ requestId: id, retention: typeof until === 'string' ? until : until.toISOString() });
  }

  /** Retries the failed files of a request. */
  async retry(id: number): Promise<Request> {
    const answer = await this.ask<sent.RetryRequestMutation>(sent.RetryRequestText, { input: { requestId: id } });
    return present(accepted(answer.retryRequest).request);
  }

  /** Releases files before the request ends: files whose path contains a text, or the given paths. */
  async release(id: number, which: { match: string } | { paths: string[] }): Promise<Request> {
    const answer = await this.ask<sent.ReleaseFilesMutation>(sent.ReleaseFilesText, {
      input: { requestId: id, ...which },
    });
    return present(accepted(answer.releaseFiles).request);
  }

  /** Cancels a request and removes its files from disk. */
  async cancel(id: number): Promise<Request> {
    return present(
      accepted((await this.ask<sent.CancelRequestMutation>(sent.CancelRequestText, { id })).cancelRequest).request,
    );
  }

  /** Yields the files of a request, each with its state. */
  async *requestFiles(id: number, states?: sent.RequestFileState[]): AsyncGenerator<RequestFile> {
    yield* this.pages<sent.RequestFilesQuery, RequestFile>(sent.RequestFilesText, { id, states }, ({ request }) => {
      if (!request) throw new Refused(`there is no request ${id}, or you are not allowed to see it`, 'NOT_FOUND');
      return request.files;
    });
  }

  /** Yields the failed files of a request. */
  async *failedFiles(id: number): AsyncGenerator<{ path: string; errorClass: string | null; error: string | null }> {
    for await (const { file, errorClass, error } of this.requestFiles(id, ['FAILED'])) {
      yield { path: file.path, errorClass, error };
    }
  }

  /** Yields the paths on disk of a request's files. @throws NotOnDisk at the end, if files are released or no longer on disk */
  async *restoredPaths(id: number): AsyncGenerator<string> {
    const { request } = await this.ask<sent.RequestStateQuery>(sent.RequestStateText, { id });
    const state = request?.state ?? '';
    const isReleased = state === 'CANCELLED' || state === 'EXPIRED';
    const lost: string[] = [];
    for await (const { file } of this.requestFiles(id, ['ON_DISK'])) {
      const path = file.isAtPrimaryPath ? file.path : file.restoredPath;
      if (path === null || isReleased) lost.push(file.path);
      else yield path;
    }
    if (lost.length === 0) return;
    const files = lost.length === 1 ? '1 file' : `${lost.length} files`;
    const why = isReleased ? `released because the request is ${state.toLowerCase()}` : 'no longer on disk';
    throw new NotOnDisk(`${files} of request ${id} ${lost.length === 1 ? 'is' : 'are'} ${why}`, lost);
  }

  /** Yields the files in the catalogue whose path contains a text, ordered by path. */
  async *files(match?: string, stages?: sent.Stage[]): AsyncGenerator<TapeFile> {
    yield* this.pages<sent.FilesQuery, TapeFile>(sent.FilesText, { match, stages }, (data) => data.tapeFiles);
  }

  /** @returns undefined if it does not exist, or the caller is not allowed to see it */
  async quota(user: string): Promise<Quota | undefined> {
    return (await this.ask<sent.QuotaQuery>(sent.QuotaText, { user })).quota ?? undefined;
  }

  /**
   * Yields each step of a request until the request has finished. Reconnects after network errors and failures of the
   * gateway, without missing or repeating a step.
   * @param options.signal ends the iteration with the signal's reason
   * @throws Refused; UnexpectedResponse, because another attempt would fail as well
   */
  async *follow(id: number, { signal }: { signal?: AbortSignal } = {}): AsyncGenerator<Progress> {
    let after: bigint | undefined;
    for (let tries = 0; ; tries++) {
      try {
        const steps = this.transport.subscribe<sent.ProgressSubscription>(sent.ProgressText, { id, after }, signal);
        for await (const { requestProgress } of steps) {
          after = requestProgress.eventId;
          tries = 0;
          yield requestProgress;
        }
        return;
      } catch (error) {
        if (!isPassing(error)) throw error; // otherwise, the gateway may be restarting
      }
      await pause(Math.min(LONGEST_PAUSE_MS, 250 * 2 ** tries), signal);
    }
  }

  /** Returns the data of a query or mutation. */
  async query<Data = unknown>(document: string, variables: object = {}): Promise<Data> {
    return await this.ask<Data>(document, variables);
  }

  /** Yields each result of a subscription until the gateway completes it. */
  subscribe<Data = unknown>(document: string, variables: object = {}, signal?: AbortSignal): AsyncGenerator<Data> {
    return this.transport.subscribe<Data>(document, variables, signal);
  }

  private ask<Data>(document: string, variables: object): Promise<Data> {
    return this.transport.ask<Data>(document, variables);
  }

  private async *pages<Data, Node>(
    document: string,
    variables: object,
    pageOf: (data: Data) => {
      pageInfo: { hasNextPage: boolean; endCursor: string | null };
      edges: readonly { node: Node }[];
    } | null,
  ): AsyncGenerator<Node> {
    for (let after: string | null = null; ; ) {
      const answer: Data = await this.ask<Data>(document, { ...variables, first: PAGE, after });
      const { edges, pageInfo } = present(pageOf(answer));
      for (const { node } of edges) yield node;
      if (!pageInfo.hasNextPage) return;
      after = pageInfo.endCursor;
    }
  }
}

const isPassing = (error: unknown) => error instanceof Unreachable && !(error instanceof UnexpectedResponse);

/** Returns whether a repetition of a change with the same idempotency key may succeed. */
const mayRepeat = (error: unknown) => isPassing(error) || (error instanceof Refused && error.code === 'UNCONFIRMED');

/** Returns a random key. `crypto.randomUUID` is missing in browsers without TLS. */
function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Returns a field that is null only if its query failed. `ask` has already thrown the error of a failed query. */
function present<Value>(value: Value | null): Value {
  if (value === null) throw new TypeError('the gateway returned null without an error');
  return value;
}

/** Returns a mutation's payload. @throws Refused for the first error in the payload */
function accepted<Payload extends { errors: readonly Failure[] }>(payload: Payload | null): Payload {
  const [failure] = present(payload).errors;
  if (failure) throw new Refused(failure.message, failure.code, failure);
  return present(payload);
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', abort);
      resolve();
    }, ms);
    signal?.addEventListener('abort', abort, { once: true });
  });
}
