/** S3 requests: signed, counted, with time limits. The first request loads the AWS SDK. */
import { open } from 'node:fs/promises';
import { Readable } from 'node:stream';
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
import { startDeadline } from '../../deadline.js';
import { messageOf } from '../../errors.js';
import { LibraryError } from '../backend.js';
import type { Answer } from '../http/body.js';
import { type Exchange, exchange, Pools, type TimeLimits } from '../http/exchange.js';
import type { Site } from '../kind.js';
import type { Usage } from '../staging.js';
import type { CredentialsPlace, S3Settings } from './settings.js';

type Sdk = typeof import('@aws-sdk/client-s3');
type OpenSdk = Sdk & { client: S3Client };
type Asked<Input> = Omit<Input, 'Bucket'>;

export type ObjectAnswer = GetObjectCommandOutput & { Body: S3Body };

const CONNECT_MS = 10_000;

/** Concurrent readers in one process that get connections; further readers wait. */
const READERS = 16;

/** Commands whose responses include the object's checksum, if S3 has one. */
const CHECKED = ['GetObjectCommand', 'HeadObjectCommand'];

export class S3Calls {
  /** Keyed by request name in the provider's documentation, such as `RestoreObject`. */
  readonly usage: Record<string, Usage> = {};
  private readonly settings: S3Settings;
  private readonly env: Site['env'];
  private opened: Promise<OpenSdk> | undefined;

  constructor(settings: S3Settings, env: Site['env']) {
    this.settings = settings;
    this.env = env;
  }

  nameOf(key: string): string {
    return `s3://${this.settings.bucket}/${key}`;
  }

  async list(input: Asked<ListObjectsV2CommandInput>, signal: AbortSignal): Promise<ListObjectsV2CommandOutput> {
    const Bucket = this.settings.bucket;
    return await this.within(signal, (s3, abort) =>
      s3.client.send(new s3.ListObjectsV2Command({ ...input, Bucket }), abort),
    );
  }

  async head(input: Asked<HeadObjectCommandInput>, signal: AbortSignal): Promise<HeadObjectCommandOutput> {
    const Bucket = this.settings.bucket;
    return await this.within(signal, (s3, abort) =>
      s3.client.send(new s3.HeadObjectCommand({ ...input, Bucket }), abort),
    );
  }

  async restore(input: Asked<RestoreObjectCommandInput>, signal: AbortSignal): Promise<RestoreObjectCommandOutput> {
    const Bucket = this.settings.bucket;
    return await this.within(signal, (s3, abort) =>
      s3.client.send(new s3.RestoreObjectCommand({ ...input, Bucket }), abort),
    );
  }

  /** The time limit applies to the response head, then to each pause in the body. The signal ends the body. */
  async get(input: Asked<GetObjectCommandInput>, signal: AbortSignal): Promise<ObjectAnswer> {
    const { client, GetObjectCommand } = await this.open();
    const command = new GetObjectCommand({ ...input, Bucket: this.settings.bucket });
    const { Body, ...answer } = await client.send(command, { abortSignal: signal });
    if (!(Body instanceof S3Body)) throw new Error('the body of GetObject is not of its request handler');
    return { ...answer, Body };
  }

  countBytes(bytes: number): void {
    this.used('GetObject').bytes += BigInt(bytes);
  }

  private used(request: string): Usage {
    const used = this.usage[request] ?? { requests: 0, bytes: 0n };
    this.usage[request] = used;
    return used;
  }

  private async open(): Promise<OpenSdk> {
    this.opened ??= import('@aws-sdk/client-s3').then((sdk) => ({ ...sdk, client: this.createClient(sdk) }));
    return await this.opened;
  }

  /** Applies the time limit to the complete response, so that a slow or endless one fails. */
  private async within<T>(
    signal: AbortSignal,
    send: (s3: OpenSdk, options: { abortSignal: AbortSignal }) => Promise<T>,
  ): Promise<T> {
    const s3 = await this.open();
    signal.throwIfAborted();
    const { timeoutSeconds } = this.settings;
    const deadline = startDeadline(timeoutSeconds * 1000, signal);
    try {
      return await send(s3, { abortSignal: deadline.signal });
    } catch (error) {
      signal.throwIfAborted();
      if (deadline.signal.aborted) throw new Error(`no answer within ${timeoutSeconds} seconds`, { cause: error });
      throw error;
    } finally {
      deadline.end();
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
      maxAttempts: 1, // the engine retries
      // the reader compares the checksum of the whole file: ./read.ts
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

interface SignedRequest {
  protocol: string;
  hostname: string;
  port?: number;
  method: string;
  path: string;
  query?: Record<string, string | string[] | null>;
  headers: Record<string, string>;
  /** Never a stream: Tapegate sends none. */
  body?: unknown;
}

/** Request handler for the AWS SDK: sends requests through undici, and passes on bodies block by block. */
class S3RequestHandler {
  readonly metadata = { handlerProtocol: 'http/1.1' };
  private readonly limits: TimeLimits;
  private readonly pools: Pools;

  constructor({ limits, sockets }: { limits: TimeLimits; sockets: number }) {
    this.limits = limits;
    this.pools = new Pools({ limits, sockets });
  }

  async handle(request: SignedRequest, { abortSignal: signal }: { abortSignal?: unknown } = {}) {
    if (!(signal instanceof AbortSignal)) throw new Error('a request to S3 needs an AbortSignal');
    const { protocol, hostname, port, path, headers, body } = request;
    const { limits, pools } = this;
    const answer = await exchange({
      method: request.method as Exchange['method'],
      url: new URL(`${protocol}//${hostname}${port === undefined ? '' : `:${port}`}${path}`),
      target: targetOf(request),
      headers,
      ...((typeof body === 'string' || body instanceof Uint8Array) && { body }),
      ...{ pools, limits, signal },
      isRepeatable: true, // S3 merges a second restore request for the same object
    });
    const { statusCode, statusMessage: reason, headers: told } = answer.response;
    return {
      response: { statusCode, reason, headers: told as Record<string, string>, body: new S3Body(answer, signal) },
    };
  }

  updateHttpClientConfig(): void {}

  httpHandlerConfigs(): object {
    return {};
  }
}

/** The body as a stream, as the AWS SDK expects it. */
export class S3Body extends Readable {
  readonly blocks: AsyncGenerator<Buffer>;
  private readonly close: () => void;

  constructor({ read, response }: Answer, signal: AbortSignal) {
    super();
    this.blocks = read(signal);
    this.close = () => response.destroy();
  }

  /** Called if the SDK reads the response itself: all responses except object contents. */
  override _read(): void {
    this.blocks.next().then(
      ({ done, value }) => this.push(done ? null : value),
      (error: Error) => this.destroy(error),
    );
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.close();
    callback(error);
  }
}

function targetOf({ path, query = {} }: SignedRequest): string {
  const entries = Object.entries(query).flatMap(([name, values]) =>
    [values ?? ''].flat().map((value) => `${escapeUri(name)}=${escapeUri(value)}`),
  );
  return entries.length === 0 ? path : `${path}?${entries.join('&')}`;
}

/** Percent-encodes as AWS signatures require. */
function escapeUri(text: string): string {
  return encodeURIComponent(text).replace(/[!'()*]/g, (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`);
}

interface S3Credentials {
  accessKeyId: string;
  secretAccessKey: string;
  sessionToken?: string;
  expiration: Date;
}

const MAX_FILE_BYTES = 1024 * 1024;

/** The SDK refreshes credentials that expire within five minutes: with this lifetime, it does so every minute. */
const LIFE_MS = 6 * 60_000;

/**
 * Rereads credentials while the library runs, so that an operator can replace them.
 * @returns the SDK's credential provider; undefined for the SDK's default chain (environment, files, roles)
 */
function createCredentials(place: CredentialsPlace, env: Site['env']): (() => Promise<S3Credentials>) | undefined {
  if (place.from === 'chain') return undefined;
  const read = place.from === 'file' ? () => readProfile(place.file, place.profile) : async () => readEnv(place, env);
  return async () => ({ ...(await read()), expiration: new Date(Date.now() + LIFE_MS) });
}

type Keys = Omit<S3Credentials, 'expiration'>;

function readEnv(place: CredentialsPlace & { from: 'environment' }, env: Site['env']): Keys {
  const read = (name: string): string => {
    const value = env[name];
    if (!value) throw new LibraryError('POLICY', `the credentials of S3 are missing: the environment has no ${name}`);
    return value;
  };
  return {
    accessKeyId: read(place.accessKeyId),
    secretAccessKey: read(place.secretAccessKey),
    ...(place.sessionToken !== undefined && { sessionToken: read(place.sessionToken) }),
  };
}

async function readProfile(file: string, profile: string): Promise<Keys> {
  try {
    const values = findSection(await readOwn(file), profile);
    const [accessKeyId, secretAccessKey] = [values?.get('aws_access_key_id'), values?.get('aws_secret_access_key')];
    const sessionToken = values?.get('aws_session_token');
    if (!accessKeyId || !secretAccessKey)
      throw new Error(`its section [${profile}] has no aws_access_key_id and aws_secret_access_key`);
    return { accessKeyId, secretAccessKey, ...(sessionToken && { sessionToken }) };
  } catch (error) {
    throw new LibraryError('POLICY', `the credentials of S3 cannot be read from ${file}: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

async function readOwn(file: string): Promise<string> {
  const handle = await open(file);
  try {
    const stats = await handle.stat();
    const mode = (stats.mode & 0o7777).toString(8).padStart(4, '0');
    if (!stats.isFile() || stats.size > MAX_FILE_BYTES)
      throw new Error(`it is no file of at most ${MAX_FILE_BYTES} bytes`);
    if ((stats.mode & 0o077) !== 0) throw new Error(`others may use it (mode ${mode}): chmod 600`);
    return await handle.readFile('utf8');
  } finally {
    await handle.close();
  }
}

/** Parses the AWS format: sections in brackets, `name = value` lines. */
function findSection(text: string, name: string): Map<string, string> | undefined {
  let found: Map<string, string> | undefined;
  let isInside = false;
  for (const line of text.split(/\r?\n/)) {
    const [, section] = /^\s*\[\s*([^\]]*?)\s*\]/.exec(line) ?? [];
    if (section !== undefined) isInside = section === name;
    const [, key, value] = /^\s*([a-z_]+)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    if (isInside) found ??= new Map();
    if (isInside && key !== undefined && value !== undefined) found?.set(key, value);
  }
  return found;
}
