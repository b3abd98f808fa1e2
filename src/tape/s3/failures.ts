/** Converts S3 errors to tape errors, according to the error codes that S3 documents. */
import { codeOf, type ErrorClass, messageOf, TapeError } from '../../core/errors.js';
import { LibraryError } from '../drive-library.js';
import { isUntrusted } from '../http/exchange.js';
import { NotReadyError, RetryLaterError } from '../staging.js';

interface Failure {
  /** S3 error code, such as `NoSuchKey`; an empty string if S3 did not respond. */
  code: string;
  /** HTTP status of the response; 0 if S3 did not respond. */
  status: number;
  retryAfterSeconds: number | undefined;
  message: string;
  cause: unknown;
}

interface SdkError {
  name?: unknown;
  Code?: unknown;
  $metadata?: { httpStatusCode?: number };
  $response?: { statusCode?: number; headers?: Record<string, string | undefined> };
}

/**
 * S3 error codes, keyed by HTTP status. Needed for HEAD requests, because their responses do not contain error codes.
 */
const CODES_OF_STATUS: Record<number, string> = {
  301: 'PermanentRedirect',
  403: 'AccessDenied',
  404: 'NoSuchKey',
  412: 'PreconditionFailed',
  416: 'InvalidRange',
  429: 'SlowDown',
  503: 'SlowDown',
};

const NAMELESS = ['NotFound', 'Forbidden', 'BadRequest', 'UnknownError', 'Unknown', 'Error', 'S3ServiceException'];

/**
 * Reads the error code, the status and the message from an SDK error.
 * @param what name of the request in error messages, such as `HeadObject of archive/a.nc`
 */
export function failureOf(error: unknown, what: string): Failure {
  const { name, Code, $metadata, $response } = (error ?? {}) as SdkError;
  const status = $metadata?.httpStatusCode ?? $response?.statusCode ?? 0;
  const named = [Code, name].find((each): each is string => typeof each === 'string' && !isNameless(each));
  const code = status === 0 ? '' : (named ?? CODES_OF_STATUS[status] ?? `HTTP ${status}`);
  const seconds = Number.parseInt($response?.headers?.['retry-after'] ?? '', 10);
  return {
    code,
    status,
    retryAfterSeconds: Number.isNaN(seconds) ? undefined : seconds,
    message: `${what}: ${code === '' ? '' : `${code}: `}${messageOf(error) || codeOf(error)}`,
    cause: error,
  };
}

function isNameless(name: string): boolean {
  return NAMELESS.includes(name) || /^\d+$/.test(name);
}

const BUSY_SECONDS = 30;

const BUSY = ['SlowDown', 'ServiceUnavailable', 'RequestLimitExceeded', 'BandwidthLimitExceeded', 'TooManyRequests'];

/**
 * Errors that concern the whole library. For most of these errors, an operator must fix the credentials, bucket, clock
 * or region.
 */
const OF_THE_LIBRARY: Readonly<Record<string, ErrorClass>> = {
  AccountProblem: 'POLICY',
  AllAccessDisabled: 'POLICY',
  AuthorizationHeaderMalformed: 'POLICY',
  ExpiredToken: 'POLICY',
  IllegalLocationConstraintException: 'PERMANENT',
  InvalidAccessKeyId: 'POLICY',
  InvalidBucketName: 'PERMANENT',
  InvalidSecurity: 'POLICY',
  InvalidToken: 'POLICY',
  MovedPermanently: 'PERMANENT',
  NoSuchBucket: 'PERMANENT',
  NotSignedUp: 'POLICY',
  PermanentRedirect: 'PERMANENT',
  RequestExpired: 'TRANSIENT',
  RequestTimeTooSkewed: 'POLICY',
  SignatureDoesNotMatch: 'POLICY',
  TemporaryRedirect: 'TRANSIENT',
  TokenRefreshRequired: 'POLICY',
};

/**
 * Returns the error to throw if a failure affects all files in the library; undefined if the failure affects only one
 * file.
 */
export function libraryErrorOf({ code, status, retryAfterSeconds, message, cause }: Failure): LibraryError | undefined {
  if (cause instanceof LibraryError) return cause;
  const isBusy = BUSY.includes(code) || code.startsWith('Throttl') || status === 429;
  if (isBusy) return new RetryLaterError(message, retryAfterSeconds ?? BUSY_SECONDS, { cause });
  if (status === 0) return new LibraryError(isUntrusted(cause) ? 'POLICY' : 'TRANSIENT', message, { cause });
  // if the session token has expired, S3 answers a HEAD request with status 400 and does not give a reason
  if (status === 400 && code === 'HTTP 400') return new LibraryError('POLICY', message, { cause });
  const errorClass = Object.hasOwn(OF_THE_LIBRARY, code) ? OF_THE_LIBRARY[code] : undefined;
  return errorClass && new LibraryError(errorClass, message, { cause });
}

const CLASSES = new Map<string, ErrorClass>([
  ['AccessDenied', 'POLICY'],
  ['InvalidPayer', 'POLICY'],
  ['MethodNotAllowed', 'PERMANENT'],
  ['NoSuchKey', 'PERMANENT'],
  ['KeyTooLongError', 'PERMANENT'],
  ['PreconditionFailed', 'TRANSIENT'],
  ['GlacierExpeditedRetrievalNotAvailable', 'TRANSIENT'],
]);

export function isDenied({ cause }: TapeError): boolean {
  return failureOf(cause, '').code === 'AccessDenied';
}

export function fileErrorOf({ code, status, message, cause }: Failure): TapeError {
  const errorClass =
    CLASSES.get(code) ?? (status >= 500 || status === 408 || status === 409 ? 'TRANSIENT' : 'PERMANENT');
  return new TapeError(errorClass, message, { cause });
}

export function readErrorOf(failure: Failure): TapeError {
  const { code, status, message, cause } = failure;
  if (code === 'InvalidObjectState') return new NotReadyError(message, { cause });
  return (
    libraryErrorOf(failure) ??
    (status >= 500 ? new LibraryError('TRANSIENT', message, { cause }) : fileErrorOf(failure))
  );
}
