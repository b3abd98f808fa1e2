/**
 * The requests that an S3 library makes: signed and counted, each with a limit of time. Amazon's client is loaded by the first one, and by
 * no process that has no such library.
 */
import type {
  GetObjectCommandInput,
  GetObjectCommandOutput,
  HeadObjectCommandInput,
  HeadObjectCommandOutput,
  ListObjectsV2CommandInput,
  ListObjectsV2CommandOutput,
  RestoreObjectCommandInput,
  RestoreObjectCommandOutput,
  S3Client,
} from '@aws-sdk/client-s3';
import { BlockCalls } from '../http/blocks.js';
import type { Usage } from '../staging.js';
import { BlockBody } from './body.js';
import { type CredentialsEnvironment, createCredentials } from './credentials.js';
import { isBrokenConnection } from './failures.js';
import type { S3Settings } from './settings.js';

type Sdk = typeof import('@aws-sdk/client-s3');

/** What is used of a request as the client has made and signed it. */
interface SignedRequest {
  protocol: string;
  hostname: string;
  port?: number;
  path: string;
  query?: Record<string, string>;
  headers: Record<string, string>;
}

/** The authorities that the system trusts, and no certificate of one's own. */
const SYSTEM = {};

/** Of a host that is there at all. */
const CONNECT_MS = 10_000;

/** A connection that breaks before its answer is tried once again, at once: idle ones are closed from afar at any moment. */
const ATTEMPTS = 2;

/** Less than a provider keeps a connection that rests. */
const REST_MS = 4000;

/** Readers of one process for which there are connections; more wait for one another. */
const READERS = 16;

/** Whose answers have a checksum of the object where there is one. */
const CHECKED = ['GetObjectCommand', 'HeadObjectCommand'];

export class S3Calls {
  /** By the names of requests in the provider's documentation: `RestoreObject`. */
  readonly usage: Record<string, Usage> = {};
  private readonly settings: S3Settings;
  private readonly env: CredentialsEnvironment;
  private readonly blocks: BlockCalls;
  private opened: Promise<{ sdk: Sdk; client: S3Client }> | undefined;

  constructor(settings: S3Settings, env: CredentialsEnvironment) {
    this.settings = settings;
    this.env = env;
    const ms = settings.timeoutSeconds * 1000;
    const limits = { connectMs: Math.min(CONNECT_MS, ms), answerMs: ms, silenceMs: ms };
    this.blocks = new BlockCalls({ limits, sockets: settings.readParts * READERS, restMs: REST_MS });
  }

  /** For people. */
  nameOf(key: string): string {
    return `s3://${this.settings.bucket}/${key}`;
  }

  async list(
    input: Omit<ListObjectsV2CommandInput, 'Bucket'>,
    signal: AbortSignal,
  ): Promise<ListObjectsV2CommandOutput> {
    const { sdk, client } = await this.open();
    const command = new sdk.ListObjectsV2Command({ ...input, Bucket: this.settings.bucket });
    return await this.within(signal, (abortSignal) => client.send(command, { abortSignal }));
  }

  async head(input: Omit<HeadObjectCommandInput, 'Bucket'>, signal: AbortSignal): Promise<HeadObjectCommandOutput> {
    const { sdk, client } = await this.open();
    const command = new sdk.HeadObjectCommand({ ...input, Bucket: this.settings.bucket });
    return await this.within(signal, (abortSignal) => client.send(command, { abortSignal }));
  }

  async restore(
    input: Omit<RestoreObjectCommandInput, 'Bucket'>,
    signal: AbortSignal,
  ): Promise<RestoreObjectCommandOutput> {
    const { sdk, client } = await this.open();
    const command = new sdk.RestoreObjectCommand({ ...input, Bucket: this.settings.bucket });
    return await this.within(signal, (abortSignal) => client.send(command, { abortSignal }));
  }

  /** The limit of time is for the answer to begin; its body has that between any two pieces, and ends with the signal. */
  async get(input: Omit<GetObjectCommandInput, 'Bucket'>, signal: AbortSignal): Promise<GetObjectCommandOutput> {
    const { sdk, client } = await this.open();
    const command = new sdk.GetObjectCommand({ ...input, Bucket: this.settings.bucket });
    command.middlewareStack.add(
      (next) => async (args) => {
        const response = await this.askForBlocks(args.request as SignedRequest, signal);
        return response ? ({ response } as Awaited<ReturnType<typeof next>>) : await next(args);
      },
      { step: 'deserialize', priority: 'low', name: 'tapegateBlocks' }, // in the place of the client's own connections
    );
    return await client.send(command, { abortSignal: signal });
  }

  private async askForBlocks({ protocol, hostname, port, path, query, headers }: SignedRequest, signal: AbortSignal) {
    const url = new URL(`${protocol}//${hostname}${port === undefined ? '' : `:${port}`}${path}`);
    const entries = Object.entries(query ?? {}).map(([name, value]) => `${escapeUri(name)}=${escapeUri(value)}`);
    const target = entries.length === 0 ? path : `${path}?${entries.join('&')}`;
    const answer = await this.blocks.get({ url, target, headers, secure: SYSTEM, signal });
    if (!answer) return undefined;
    const { statusCode, statusMessage: reason, headers: told } = answer.response;
    return { statusCode, reason, headers: told, body: new BlockBody(answer, signal) };
  }

  /** Of files, as they came. */
  countBytes(bytes: number): void {
    this.used('GetObject').bytes += BigInt(bytes);
  }

  private used(request: string): Usage {
    const used = this.usage[request] ?? { requests: 0, bytes: 0n };
    this.usage[request] = used;
    return used;
  }

  private async open(): Promise<{ sdk: Sdk; client: S3Client }> {
    this.opened ??= import('@aws-sdk/client-s3').then((sdk) => ({ sdk, client: this.createClient(sdk) }));
    return await this.opened;
  }

  /** The whole of an answer, within the limit: one that drips, or does not end, is none. */
  private async within<T>(signal: AbortSignal, send: (signal: AbortSignal) => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    const abort = new AbortController();
    const stop = () => abort.abort();
    const { timeoutSeconds } = this.settings;
    const timer = setTimeout(stop, timeoutSeconds * 1000);
    signal.addEventListener('abort', stop);
    try {
      return await send(abort.signal);
    } catch (error) {
      signal.throwIfAborted();
      if (abort.signal.aborted) throw new Error(`no answer within ${timeoutSeconds} seconds`, { cause: error });
      throw error;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', stop);
    }
  }

  private createClient(sdk: Sdk): S3Client {
    const { settings } = this;
    const credentials = createCredentials(settings.credentials, this.env);
    const timeoutMs = settings.timeoutSeconds * 1000;
    const agent = { maxSockets: settings.concurrency + settings.readParts * READERS };
    const client = new sdk.S3Client({
      region: settings.region,
      forcePathStyle: settings.forcePathStyle,
      ...(settings.endpoint !== undefined && { endpoint: settings.endpoint }),
      ...(credentials && { credentials }),
      maxAttempts: ATTEMPTS,
      retryStrategy,
      // bytes are compared as they pass, of all parts of a file together: ./checksums.ts
      requestChecksumCalculation: 'WHEN_REQUIRED',
      responseChecksumValidation: 'WHEN_REQUIRED',
      requestHandler: {
        connectionTimeout: Math.min(CONNECT_MS, timeoutMs),
        requestTimeout: timeoutMs,
        throwOnRequestTimeout: true,
        socketTimeout: timeoutMs,
        httpAgent: agent,
        httpsAgent: agent,
      },
    });
    client.middlewareStack.add(
      (next, { commandName = '' }) =>
        async (args) => {
          if (CHECKED.includes(commandName)) setHeader(args.request, 'x-amz-checksum-mode', 'ENABLED');
          return await next(args);
        },
      { step: 'build', name: 'tapegateChecksumMode' },
    );
    client.middlewareStack.add(
      (next, { commandName = '' }) =>
        async (args) => {
          this.used(commandName.replace(/Command$/, '')).requests++;
          return await next(args);
        },
      { step: 'deserialize', priority: 'low', name: 'tapegateCount' }, // within what tries again
    );
    return client;
  }
}

/** As signatures have it. */
function escapeUri(text: string): string {
  return encodeURIComponent(text).replace(/[!'()*]/g, (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`);
}

function setHeader(request: unknown, name: string, value: string): void {
  (request as { headers: Record<string, string> }).headers[name] = value;
}

interface Token {
  getRetryCount(): number;
  getRetryDelay(): number;
}

const tokenOf = (count: number): Token => ({ getRetryCount: () => count, getRetryDelay: () => 0 });

/** Whatever was answered is for the engine, which knows when to ask again: nothing waits here. */
const retryStrategy = {
  acquireInitialRetryToken: async () => tokenOf(0),
  refreshRetryTokenForRetry: async (token: Token, { error }: { error?: unknown }) => {
    if (token.getRetryCount() + 1 >= ATTEMPTS || !isBrokenConnection(error)) throw new Error('it is not tried again');
    return tokenOf(token.getRetryCount() + 1);
  },
  recordSuccess: () => {},
};
