/** Signs, sends and counts S3 requests, and limits their time. The first request loads the AWS SDK. */
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
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
import type { ParsedIniData } from '@smithy/core/config';
import { messageOf, quote } from '../../core/errors.js';
import { LibraryError } from '../drive-library.js';
import { checkHost, secretPath } from '../host-files.js';
import type { Site } from '../kind.js';
import { countUsage, type Usage } from '../staging.js';
import type { S3Settings } from './settings.js';

type Sdk = typeof import('@aws-sdk/client-s3');
type OpenSdk = Sdk & { client: S3Client };
type Asked<Input> = Omit<Input, 'Bucket'>;

const CONNECT_MS = 10_000;

const IDLE_MS = 4000;

export class S3Calls {
  /** Numbers of requests and bytes, keyed by the request's name in the S3 API, such as `RestoreObject`. */
  readonly usage = new Map<string, Usage>();
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

  async list(input: Asked<ListObjectsV2CommandInput>, abortSignal: AbortSignal): Promise<ListObjectsV2CommandOutput> {
    const { client, ListObjectsV2Command } = await this.open('ListObjectsV2', abortSignal);
    return await client.send(new ListObjectsV2Command({ ...input, Bucket: this.settings.bucket }), { abortSignal });
  }

  async head(input: Asked<HeadObjectCommandInput>, abortSignal: AbortSignal): Promise<HeadObjectCommandOutput> {
    const { client, HeadObjectCommand } = await this.open('HeadObject', abortSignal);
    return await client.send(new HeadObjectCommand({ ...input, Bucket: this.settings.bucket }), { abortSignal });
  }

  async restore(
    input: Asked<RestoreObjectCommandInput>,
    abortSignal: AbortSignal,
  ): Promise<RestoreObjectCommandOutput> {
    const { client, RestoreObjectCommand } = await this.open('RestoreObject', abortSignal);
    return await client.send(new RestoreObjectCommand({ ...input, Bucket: this.settings.bucket }), { abortSignal });
  }

  /** Requests an object. The caller must read the response body, or abort the signal. */
  async get(input: Asked<GetObjectCommandInput>, abortSignal: AbortSignal): Promise<GetObjectCommandOutput> {
    const { client, GetObjectCommand } = await this.open('GetObject', abortSignal);
    return await client.send(new GetObjectCommand({ ...input, Bucket: this.settings.bucket }), { abortSignal });
  }

  countBytes(bytes: number): void {
    countUsage(this.usage, 'GetObject', { bytes: BigInt(bytes) });
  }

  private async open(request: string, signal: AbortSignal): Promise<OpenSdk> {
    this.opened ??= import('@aws-sdk/client-s3').then((sdk) => ({ ...sdk, client: this.createClient(sdk) }));
    const opened = await this.opened;
    signal.throwIfAborted();
    countUsage(this.usage, request, { requests: 1 });
    return opened;
  }

  private createClient(sdk: Sdk): S3Client {
    const { settings } = this;
    const credentials = createCredentials(settings, this.env);
    const ms = settings.timeoutSeconds * 1000;
    // do not limit connections, because `concurrency` and `readParts` already limit the concurrent requests
    const agent = { keepAlive: true, maxSockets: Number.POSITIVE_INFINITY, timeout: IDLE_MS };
    const client = new sdk.S3Client({
      region: settings.region,
      forcePathStyle: settings.forcePathStyle,
      ...(settings.endpoint !== undefined && { endpoint: settings.endpoint }),
      ...(credentials && { credentials }),
      // do not let the SDK retry requests, because the engine retries failed files
      maxAttempts: 1,
      // do not let the SDK verify checksums, because read.ts verifies the checksum of the whole object
      requestChecksumCalculation: 'WHEN_REQUIRED',
      responseChecksumValidation: 'WHEN_REQUIRED',
      requestHandler: {
        connectionTimeout: Math.min(CONNECT_MS, ms),
        requestTimeout: ms,
        throwOnRequestTimeout: true,
        socketTimeout: ms,
        httpAgent: agent,
        httpsAgent: agent,
      },
    });
    // do not use the option `ChecksumMode`, because the SDK would then verify checksums itself
    client.middlewareStack.add(
      (next, { commandName = '' }) =>
        async (args) => {
          if (CHECKED.includes(commandName)) setHeader(args.request, 'x-amz-checksum-mode', 'ENABLED');
          return await next(args);
        },
      { step: 'build', name: 'tapegateChecksumMode' },
    );
    return client;
  }
}

/** SDK commands whose responses contain the object's checksum, if S3 has stored a checksum. */
const CHECKED = ['GetObjectCommand', 'HeadObjectCommand'];

function setHeader(request: unknown, name: string, value: string): void {
  (request as { headers: Record<string, string> }).headers[name] = value;
}

interface S3Credentials {
  accessKeyId: string;
  secretAccessKey: string;
  sessionToken?: string;
  expiration?: Date;
}

/**
 * Lifetime of the credentials that this module reports to the SDK. The SDK reloads credentials five minutes before they
 * expire. With a lifetime of six minutes, the SDK therefore reads the credentials file every minute.
 */
const LIFE_MS = 6 * 60_000;

/**
 * Creates a function that reads the credentials from their file.
 * @returns undefined if the SDK should search its default credential sources
 */
function createCredentials(
  { credentials, endpoint }: S3Settings,
  env: Site['env'],
): (() => Promise<S3Credentials>) | undefined {
  if (credentials === undefined) return undefined;
  const file = secretPath(env, credentials.file);
  return async () => {
    if (endpoint !== undefined) await checkHost(file, new URL(endpoint));
    return { expiration: new Date(Date.now() + LIFE_MS), ...(await readProfile(file, credentials.profile)) };
  };
}

const MAX_FILE_BYTES = 1024 * 1024;

/**
 * Reads a profile's static keys from a file that only its owner can read. Does not use the SDK's own function, because
 * the SDK's function also runs the profile's `credential_process` and assumes roles, without a time limit.
 */
async function readProfile(file: string, profile: string): Promise<S3Credentials> {
  try {
    const section = (await readSections(file))[profile];
    const read = (name: string): string => {
      const value = section?.[name];
      if (value) return value;
      throw new Error(`the profile ${quote(profile)} has no ${name} (only keys are supported, not roles or commands)`);
    };
    const sessionToken = section?.aws_session_token;
    return {
      accessKeyId: read('aws_access_key_id'),
      secretAccessKey: read('aws_secret_access_key'),
      ...(sessionToken && { sessionToken }),
    };
  } catch (error) {
    throw new LibraryError('POLICY', `cannot read the S3 credentials from ${file}: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

/**
 * Parses a credentials file with the SDK. Passes an open file descriptor, so that the SDK parses the file whose
 * permissions were checked.
 */
async function readSections(file: string): Promise<ParsedIniData> {
  const { parseKnownFiles } = await import('@smithy/core/config');
  const handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const stats = await handle.stat();
    if (!stats.isFile()) throw new Error('it is not a regular file');
    if (stats.size > MAX_FILE_BYTES)
      throw new Error(`it has ${stats.size} bytes, but at most ${MAX_FILE_BYTES} are allowed`);
    const bits = (stats.mode & 0o7777).toString(8).padStart(4, '0');
    if ((stats.mode & 0o077) !== 0) throw new Error(`other users can access it (mode ${bits}): run chmod 600 on it`);
    // pass an empty configuration file, so that the SDK does not read its default configuration file
    const files = { filepath: `/dev/fd/${handle.fd}`, configFilepath: '/dev/null', ignoreCache: true };
    return await parseKnownFiles(files);
  } finally {
    await handle.close();
  }
}
