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
import type { Usage } from '../staging.js';
import { type CredentialsEnvironment, createCredentials } from './credentials.js';
import { S3Body, S3RequestHandler } from './request-handler.js';
import type { S3Settings } from './settings.js';

type Sdk = typeof import('@aws-sdk/client-s3');

export type ObjectAnswer = GetObjectCommandOutput & { Body: S3Body };

/** Of a host that is there at all. */
const CONNECT_MS = 10_000;

/** Readers of one process for which there are connections; more wait for one another. */
const READERS = 16;

/** Whose answers have a checksum of the object where there is one. */
const CHECKED = ['GetObjectCommand', 'HeadObjectCommand'];

export class S3Calls {
  /** By the names of requests in the provider's documentation: `RestoreObject`. */
  readonly usage: Record<string, Usage> = {};
  private readonly settings: S3Settings;
  private readonly env: CredentialsEnvironment;
  private opened: Promise<{ sdk: Sdk; client: S3Client }> | undefined;

  constructor(settings: S3Settings, env: CredentialsEnvironment) {
    this.settings = settings;
    this.env = env;
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
  async get(input: Omit<GetObjectCommandInput, 'Bucket'>, signal: AbortSignal): Promise<ObjectAnswer> {
    const { sdk, client } = await this.open();
    const command = new sdk.GetObjectCommand({ ...input, Bucket: this.settings.bucket });
    const { Body, ...answer } = await client.send(command, { abortSignal: signal });
    if (!(Body instanceof S3Body)) throw new Error('the body of GetObject is not of its request handler');
    return { ...answer, Body };
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
    const ms = settings.timeoutSeconds * 1000;
    const requestHandler = new S3RequestHandler({
      limits: { connectMs: Math.min(CONNECT_MS, ms), answerMs: ms, silenceMs: ms },
      sockets: settings.concurrency + settings.readParts * READERS,
    });
    const client = new sdk.S3Client({
      region: settings.region,
      forcePathStyle: settings.forcePathStyle,
      ...(settings.endpoint !== undefined && { endpoint: settings.endpoint }),
      ...(credentials && { credentials }),
      maxAttempts: 1, // the engine knows when to ask again
      // bytes are compared as they pass, of all parts of a file together: ./checksums.ts
      requestChecksumCalculation: 'WHEN_REQUIRED',
      responseChecksumValidation: 'WHEN_REQUIRED',
      requestHandler,
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
      { step: 'deserialize', priority: 'low', name: 'tapegateCount' },
    );
    return client;
  }
}

function setHeader(request: unknown, name: string, value: string): void {
  (request as { headers: Record<string, string> }).headers[name] = value;
}
