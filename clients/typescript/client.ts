/**
 * A client of Tapegate for Node.js and browsers: requests, files and quotas, typed by the schema, and progress as an iterator that survives
 * gateways which are restarted. Sizes are bigints of bytes, times texts of RFC 3339 in UTC.
 */
import * as sent from '../../src/generated/client-operations.js';
import { NotOnDisk, Refused, Unreachable } from './errors.js';
import { Transport } from './transport.js';

export type * from '../../src/generated/client-operations.js';
export { NotOnDisk, Refused, Unreachable };

export interface ClientOptions {
  /** Of the gateway; TAPEGATE_URL, or this host's, unless given. */
  url?: string | undefined;
  /** An API token, or what gives one for each call; TAPEGATE_TOKEN unless given. */
  token?: string | (() => Promise<string | undefined> | string | undefined) | undefined;
  fetch?: typeof fetch | undefined;
}

export type RequestState = sent.RequestState;
export type Request = sent.RequestFragment;
export type RequestInDetail = NonNullable<sent.RequestQuery['request']>;
export type RequestFile = NonNullable<sent.RequestFilesQuery['request']>['files']['edges'][number]['node'];
export type TapeFile = sent.FilesQuery['tapeFiles']['edges'][number]['node'];
export type Quota = NonNullable<sent.QuotaQuery['quota']>;
export type Progress = sent.ProgressSubscription['requestProgress'];
export type Estimate = Extract<sent.EstimateQuery['estimateRequest'], { mounts: number }>;

/** Pages of lists; a page of files may be long. */
const PAGE = 500;
const LONGEST_PAUSE_MS = 30_000;

export function createClient(options: ClientOptions = {}): Client {
  return new Client(options);
}

/** One gateway, as one caller. All of it throws `Refused` and `Unreachable`. */
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

  /** Asks for files by their paths, or for all whose path contains a text, now and later. Not repeated where no answer comes. */
  async createRequest(input: sent.CreateRequestInput): Promise<Request> {
    return unlessRefused<Request>(
      (await this.ask<sent.CreateRequestMutation>(sent.CreateRequestText, { input })).createRequest,
    );
  }

  /** What that would take, and when it may be done; nothing is asked for. */
  async estimate(input: sent.CreateRequestInput): Promise<Estimate> {
    return unlessRefused<Estimate>((await this.ask<sent.EstimateQuery>(sent.EstimateText, { input })).estimateRequest);
  }

  /** Undefined where there is none that the caller may see. */
  async request(id: number): Promise<RequestInDetail | undefined> {
    return (await this.ask<sent.RequestQuery>(sent.RequestText, { id })).request ?? undefined;
  }

  /** All that the caller may see, the oldest first. */
  async *requests(which: { quota?: string; states?: RequestState[] } = {}): AsyncGenerator<Request> {
    yield* this.pages<sent.RequestsQuery, Request>(sent.RequestsText, which, (data) => data.requests);
  }

  /** Another label, retention or limit; another address for mail. */
  async update(input: sent.UpdateRequestInput): Promise<Request> {
    return unlessRefused<Request>(
      (await this.ask<sent.UpdateRequestMutation>(sent.UpdateRequestText, { input })).updateRequest,
    );
  }

  /** Keeps its files until then. */
  async extend(id: number, until: Date | string): Promise<Request> {
    return await this.update({ id, retention: typeof until === 'string' ? until : until.toISOString() });
  }

  /** Tries again what has failed. */
  async retry(id: number): Promise<Request> {
    const answer = await this.ask<sent.RetryRequestMutation>(sent.RetryRequestText, { input: { id } });
    return unlessRefused<Request>(answer.retryRequest);
  }

  /** Lets files go before the request ends: those whose path contains a text, or these. */
  async release(id: number, which: { match: string } | { paths: string[] }): Promise<Request> {
    const answer = await this.ask<sent.ReleaseFilesMutation>(sent.ReleaseFilesText, { input: { id, ...which } });
    return unlessRefused<Request>(answer.releaseFiles);
  }

  /** Ends it now; its files leave the disk. */
  async cancel(id: number): Promise<Request> {
    return unlessRefused<Request>(
      (await this.ask<sent.CancelRequestMutation>(sent.CancelRequestText, { id })).cancelRequest,
    );
  }

  /** Yields the files of a request, each with its state. */
  async *requestFiles(id: number, states?: sent.RequestFileState[]): AsyncGenerator<RequestFile> {
    yield* this.pages<sent.RequestFilesQuery, RequestFile>(sent.RequestFilesText, { id, states }, ({ request }) => {
      if (!request) throw new Refused(`there is no request ${id}`, 'NOT_FOUND');
      return request.files;
    });
  }

  /** Yields the paths of a request's files that are on disk now. @throws NotOnDisk at the end, for files that no longer are */
  async *restoredPaths(id: number): AsyncGenerator<string> {
    const lost: string[] = [];
    for await (const { file } of this.requestFiles(id, ['ON_DISK'])) {
      const path = file.isAtPrimaryPlace ? file.path : file.restoredPath;
      if (path === null) lost.push(file.path);
      else yield path;
    }
    if (lost.length === 0) return;
    const files = lost.length === 1 ? '1 file' : `${lost.length} files`;
    throw new NotOnDisk(`${files} of request ${id} ${lost.length === 1 ? 'is' : 'are'} no longer on disk`, lost);
  }

  /** Files of the catalogue whose path contains a text, in the order of their paths. */
  async *files(match?: string, stages?: sent.Stage[]): AsyncGenerator<TapeFile> {
    yield* this.pages<sent.FilesQuery, TapeFile>(sent.FilesText, { match, stages }, (data) => data.tapeFiles);
  }

  /** Undefined where there is none that the caller may see. */
  async quota(user: string): Promise<Quota | undefined> {
    return (await this.ask<sent.QuotaQuery>(sent.QuotaText, { user })).quota ?? undefined;
  }

  /**
   * Each step of a request until nothing is left to do, whatever breaks off meanwhile: none is missed, and none told twice.
   * @param options.signal ends it, with what the signal says
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
        if (!(error instanceof Unreachable)) throw error; // a gateway that is restarted is back in a moment
      }
      await pause(Math.min(LONGEST_PAUSE_MS, 250 * 2 ** tries), signal);
    }
  }

  /** The data of any query or mutation. */
  async query<Data = unknown>(document: string, variables: object = {}): Promise<Data> {
    return await this.ask<Data>(document, variables);
  }

  /** Each result of any subscription, until the gateway says that it is complete. */
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
    },
  ): AsyncGenerator<Node> {
    for (let after: string | null = null; ; ) {
      const page = pageOf(await this.ask<Data>(document, { ...variables, first: PAGE, after }));
      for (const { node } of page.edges) yield node;
      if (!page.pageInfo.hasNextPage) return;
      after = page.pageInfo.endCursor;
    }
  }
}

/** Of a result that is a failure in another case. */
function unlessRefused<Done extends object>(result: Done | { code: string; message: string }): Done {
  if ('code' in result) throw new Refused(result.message, result.code, result);
  return result;
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
