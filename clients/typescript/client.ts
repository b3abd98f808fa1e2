/**
 * A Tapegate client for Node.js and browsers: requests, files and quotas with the types of the schema, and progress as an iterator that
 * reconnects after a gateway restarts. Sizes are bigints in bytes, times are RFC 3339 strings in UTC.
 */
import * as sent from '../../src/generated/operations.js';
import { type FailedFile, Incomplete, NotOnDisk, Refused, UnexpectedResponse, Unreachable } from './errors.js';
import { type Done, type Page, type Payload, present, unwrap } from './responses.js';
import { type Operation, Transport } from './transport.js';

export * from '../../src/generated/operations.js';
export { type FailedFile, Incomplete, NotOnDisk, present, Refused, UnexpectedResponse, Unreachable, unwrap };

export interface ClientOptions {
  /** URL of the gateway. Default: TAPEGATE_URL, or port 8080 of this host. */
  url?: string | undefined;
  /** An API token, or a function that returns a token for each call. Default: TAPEGATE_TOKEN. */
  token?: string | (() => Promise<string | undefined> | string | undefined) | undefined;
  fetch?: typeof fetch | undefined;
}

export type Request = sent.RequestFragment & { restoredBelow: string[] };
export type RequestInDetail = NonNullable<sent.RequestQuery['request']>;
export type RequestFile = NonNullable<sent.RequestFilesQuery['request']>['files']['edges'][number]['node'];
export type TapeFile = NonNullable<sent.FilesQuery['list']>['edges'][number]['node'];
export type Quota = sent.QuotaRowFragment;
export type Progress = sent.RequestProgressSubscription['requestProgress'];
export type Estimate = sent.EstimateFragment;

/** The argument for the variables of an operation, which may be omitted if all variables are optional. */
type Arguments<Variables> = Record<never, never> extends Variables ? [variables?: Variables] : [variables: Variables];

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
        return await this.change(sent.CreateRequestDocument, { input });
      } catch (error) {
        const pauseMs = REPEAT_PAUSES_MS[n];
        if (pauseMs === undefined || !mayRepeat(error)) throw error;
        await pause(pauseMs, undefined);
      }
    }
  }

  /** Estimates a request, without creating it. */
  async estimate(input: sent.CreateRequestInput): Promise<Estimate> {
    return await this.change(sent.EstimateRequestDocument, { input });
  }

  /** @returns undefined if it does not exist, or the caller is not allowed to see it */
  async request(id: number): Promise<RequestInDetail | undefined> {
    return (await this.query(sent.RequestDocument, { id })).request ?? undefined;
  }

  /** Yields all requests that the caller may see, oldest first. */
  async *requests(which: { quota?: string; states?: sent.RequestState[] } = {}): AsyncGenerator<Request> {
    const requests = this.pages(sent.RequestsDocument, { ...which, directories: true }, ({ list }) => list);
    for await (const request of requests) yield withDirectories(request);
  }

  /** Changes the label, retention, limits or email addresses of a request. */
  async update(input: sent.UpdateRequestInput): Promise<Request> {
    return withDirectories(await this.change(sent.UpdateRequestDocument, { input, directories: true }));
  }

  /** Changes the retention of a request. */
  async extend(id: number, until: Date | string): Promise<Request> {
    return await this.update({ requestId: id, retention: typeof until === 'string' ? until : until.toISOString() });
  }

  /** Retries the failed files of a request. */
  async retry(id: number): Promise<Request> {
    const input = { requestId: id };
    return withDirectories(await this.change(sent.RetryRequestDocument, { input, directories: true }));
  }

  /** Releases files before the request ends: files whose path contains a text, or the given paths. */
  async release(id: number, which: { match: string } | { paths: string[] }): Promise<Request> {
    const input = { requestId: id, ...which };
    return withDirectories(await this.change(sent.ReleaseFilesDocument, { input, directories: true }));
  }

  /** Cancels a request and removes its files from disk. */
  async cancel(id: number): Promise<Request> {
    return withDirectories(await this.change(sent.CancelRequestDocument, { id, directories: true }));
  }

  /** Yields the files of a request, each with its state. */
  async *requestFiles(id: number, states?: sent.RequestFileState[]): AsyncGenerator<RequestFile> {
    yield* this.pages(sent.RequestFilesDocument, { id, states }, ({ request }) => existing(id, request).files);
  }

  /** Yields the failed files of a request. */
  async *failedFiles(id: number): AsyncGenerator<FailedFile> {
    for await (const { file, errorClass, error } of this.requestFiles(id, ['FAILED'])) {
      yield { path: file.path, errorClass, error };
    }
  }

  /** Yields the paths on disk of a request's files. @throws NotOnDisk at the end, if files are released or no longer on disk */
  async *restoredPaths(id: number): AsyncGenerator<string> {
    let state = '';
    const lost: string[] = [];
    const files = this.pages(sent.FilesOnDiskDocument, { id }, ({ request }) => {
      state = existing(id, request).state;
      return existing(id, request).files;
    });
    for await (const { file } of files) {
      const path = file.isAtPrimaryPath ? file.path : file.restoredPath;
      if (path === null || isReleased(state)) lost.push(file.path);
      else yield path;
    }
    if (lost.length === 0) return;
    const count = lost.length === 1 ? '1 file' : `${lost.length} files`;
    const why = isReleased(state) ? `released because the request is ${state.toLowerCase()}` : 'no longer on disk';
    throw new NotOnDisk(`${count} of request ${id} ${lost.length === 1 ? 'is' : 'are'} ${why}`, lost);
  }

  /** Requests files, and yields `arrivals` of the new request. */
  async *restore(
    input: sent.CreateRequestInput,
    options: { signal?: AbortSignal | undefined } = {},
  ): AsyncGenerator<string> {
    const { requestId } = await this.createRequest(input);
    yield* this.arrivals(requestId, options);
  }

  /**
   * Yields the path on disk of each file of a request when the file arrives, until the request has finished. Reconnects
   * like `follow`.
   * @throws Incomplete at the end, if files failed or are missing; NotOnDisk at the end, if files are no longer on disk
   */
  async *arrivals(id: number, { signal }: { signal?: AbortSignal | undefined } = {}): AsyncGenerator<string> {
    const seen = new Set<string>();
    let lost: NotOnDisk | undefined;
    for (let mustSkip = true; mustSkip; ) {
      mustSkip = false;
      for await (const { state } of this.follow(id, { signal })) {
        const began = Date.now();
        const restored = await persist(() => this.listRestored(id), signal);
        lost = restored.lost;
        for (const path of restored.paths) if (!seen.has(path)) yield path;
        for (const path of restored.paths) seen.add(path);
        const tookMs = restored.endedAt - began;
        mustSkip = tookMs > 1000 && !isFinished(state);
        if (!mustSkip) continue;
        // skip the steps of the meantime: a new subscription begins with the current step
        await pause(Math.min(9 * tookMs, LONGEST_PAUSE_MS), signal);
        break;
      }
    }
    await persist(() => this.requireComplete(id), signal);
    if (lost) throw lost;
  }

  private async listRestored(id: number): Promise<{ paths: string[]; lost?: NotOnDisk; endedAt: number }> {
    const paths: string[] = [];
    try {
      for await (const path of this.restoredPaths(id)) paths.push(path);
      return { paths, endedAt: Date.now() };
    } catch (error) {
      if (error instanceof NotOnDisk) return { paths, lost: error, endedAt: Date.now() };
      throw error;
    }
  }

  /** @throws Incomplete if a request has ended without all of its files */
  private async requireComplete(id: number): Promise<void> {
    const { state, filesFailed, filesTotal, filesUnknown, filesRefused } = existing(
      id,
      (await this.request(id)) ?? null,
    );
    if (state === 'PARTIAL') {
      const failed: FailedFile[] = [];
      for await (const file of this.failedFiles(id)) failed.push(file);
      throw new Incomplete(`${filesFailed} of ${filesTotal} files of request ${id} failed`, failed);
    }
    if (state !== 'COMPLETED') throw new Incomplete(`request ${id} is ${state.toLowerCase()}`);
    if (filesUnknown + filesRefused === 0) return;
    const missing = `${filesUnknown} not in the catalogue, ${filesRefused} over the quota`;
    throw new Incomplete(`request ${id} does not contain all requested files: ${missing}`);
  }

  /** Yields the files in the catalogue whose path contains a text, ordered by path. */
  async *files(match?: string, stages?: sent.Stage[]): AsyncGenerator<TapeFile> {
    yield* this.pages(sent.FilesDocument, { match, stages }, ({ list }) => list);
  }

  /** @returns undefined if it does not exist, or the caller is not allowed to see it */
  async quota(user: string): Promise<Quota | undefined> {
    return (await this.query(sent.QuotaDocument, { user })).quota ?? undefined;
  }

  /**
   * Yields each step of a request until the request has finished. Reconnects after network errors and failures of the
   * gateway, without missing or repeating a step.
   * @param options.signal ends the iteration with the signal's reason
   * @throws Refused; UnexpectedResponse, because another attempt would fail as well
   */
  async *follow(id: number, { signal }: { signal?: AbortSignal | undefined } = {}): AsyncGenerator<Progress> {
    let after: bigint | undefined;
    for (let tries = 0; ; tries++) {
      try {
        const steps = this.transport.subscribe(sent.RequestProgressDocument, { id, after }, signal);
        for await (const { requestProgress } of steps) {
          after = requestProgress.eventId;
          tries = 0;
          yield requestProgress;
        }
        return;
      } catch (error) {
        if (!isPassing(error)) throw error; // otherwise, the gateway may be restarting
      }
      await pause(pauseAfter(tries), signal);
    }
  }

  /** Returns the data of a query or mutation, with the types of a document of this package. `unwrap` reads a mutation's result. */
  query<Data, Variables>(
    document: sent.TypedDocumentString<Data, Variables>,
    ...[variables]: Arguments<Variables>
  ): Promise<Data>;
  query<Data = unknown>(document: string, variables?: object): Promise<Data>;
  async query<Data>(document: Operation<Data, object>, variables: object = {}): Promise<Data> {
    return await this.transport.ask(document, variables);
  }

  /** Yields each result of a subscription until the gateway completes it. */
  subscribe<Data, Variables>(
    document: sent.TypedDocumentString<Data, Variables>,
    variables: Variables,
    signal?: AbortSignal,
  ): AsyncGenerator<Data>;
  subscribe<Data = unknown>(document: string, variables?: object, signal?: AbortSignal): AsyncGenerator<Data>;
  subscribe<Data>(
    document: Operation<Data, object>,
    variables: object = {},
    signal?: AbortSignal,
  ): AsyncGenerator<Data> {
    return this.transport.subscribe(document, variables, signal);
  }

  /** Returns the result of an operation with a payload. @throws Refused for an error in the payload */
  private async change<Result extends Payload, Variables>(
    document: sent.TypedDocumentString<{ result: Result | null }, Variables>,
    variables: Variables,
  ): Promise<Done<Result>> {
    return unwrap((await this.transport.ask(document, variables)).result);
  }

  private async *pages<Data, Variables extends { first?: unknown; after?: unknown }, Node>(
    document: sent.TypedDocumentString<Data, Variables>,
    variables: Omit<Variables, 'first' | 'after'>,
    pageOf: (data: Data) => Page<Node> | null,
  ): AsyncGenerator<Node> {
    for (let after: string | null = null; ; ) {
      const page = { ...variables, first: PAGE, after } as unknown as Variables;
      const { edges, pageInfo }: Page<Node> = present(pageOf(await this.transport.ask(document, page)));
      for (const { node } of edges) yield node;
      if (!pageInfo.hasNextPage) return;
      after = pageInfo.endCursor;
    }
  }
}

/** @throws Refused if the response contains no request */
function existing<Found>(id: number, request: Found | null): Found {
  if (request) return request;
  throw new Refused(`there is no request ${id}, or you are not allowed to see it`, 'NOT_FOUND');
}

/** Returns a request whose operation had the variable `directories`. */
const withDirectories = (request: sent.RequestFragment): Request => ({
  ...request,
  restoredBelow: request.restoredBelow ?? [],
});

/** Pause before a call is repeated because the gateway did not respond. */
const pauseAfter = (tries: number): number => Math.min(LONGEST_PAUSE_MS, 250 * 2 ** tries);

/** Repeats a call until the gateway responds. */
async function persist<Result>(call: () => Promise<Result>, signal: AbortSignal | undefined): Promise<Result> {
  for (let tries = 0; ; tries++) {
    try {
      return await call();
    } catch (error) {
      if (!isPassing(error)) throw error;
    }
    await pause(pauseAfter(tries), signal);
  }
}

const isFinished = (state: string): boolean => state !== 'QUEUED' && state !== 'RESTORING';

const isReleased = (state: string): boolean => state === 'CANCELLED' || state === 'EXPIRED';

const isPassing = (error: unknown) => error instanceof Unreachable && !(error instanceof UnexpectedResponse);

/** Returns whether a repetition of a change with the same idempotency key may succeed. */
const mayRepeat = (error: unknown) => isPassing(error) || (error instanceof Refused && error.code === 'UNCONFIRMED');

/** Returns a random key. `crypto.randomUUID` is missing in browsers without TLS. */
function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
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
