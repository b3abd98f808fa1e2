/** What S3 answers when it does not do as it is asked, by the codes of its documentation. Pure. */
import { codeOf, type ErrorClass, messageOf, TapeError } from '../../errors.js';
import { LibraryError } from '../backend.js';
import { isUntrusted } from '../http/exchange.js';
import { NotReadyError, RetryLaterError } from '../staging.js';

/** An answer that is an error, or none at all. */
export interface Failure {
  /** Of S3, such as `NoSuchKey`; empty where there was no answer. */
  code: string;
  /** Of HTTP; 0 where there was no answer. */
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

/** What a HEAD says, which has no body that a code could be in. */
const CODES_OF_STATUS: Record<number, string> = {
  301: 'PermanentRedirect',
  403: 'AccessDenied',
  404: 'NoSuchKey',
  412: 'PreconditionFailed',
  416: 'InvalidRange',
  429: 'SlowDown',
  503: 'SlowDown',
};

/** Names that the client has for answers without a code of their own. */
const NAMELESS = ['NotFound', 'Forbidden', 'BadRequest', 'UnknownError', 'Unknown', 'Error', 'S3ServiceException'];

/** @param what was asked for, for the message: `HeadObject of archive/a.nc` */
export function failureOf(error: unknown, what: string): Failure {
  const { name, Code, $metadata, $response } = (error ?? {}) as SdkError;
  const status = $metadata?.httpStatusCode ?? $response?.statusCode ?? 0;
  const told = [Code, name].find((each): each is string => typeof each === 'string' && !isNameless(each));
  const code = status === 0 ? '' : (told ?? CODES_OF_STATUS[status] ?? `HTTP ${status}`);
  const seconds = Number.parseInt($response?.headers?.['retry-after'] ?? '', 10);
  return {
    code,
    status,
    retryAfterSeconds: Number.isNaN(seconds) ? undefined : seconds,
    // what cannot be connected to on several addresses has no text of its own
    message: `${what}: ${code === '' ? '' : `${code}: `}${messageOf(error) || codeOf(error)}`,
    cause: error,
  };
}

function isNameless(name: string): boolean {
  return NAMELESS.includes(name) || /^\d+$/.test(name);
}

/** Where the provider does not say when to ask again. */
const BUSY_SECONDS = 30;

const BUSY = ['SlowDown', 'ServiceUnavailable', 'RequestLimitExceeded', 'BandwidthLimitExceeded', 'TooManyRequests'];

/** They say nothing of the object: the credentials, the bucket, the clock or the region are not as they should be, until somebody mends them. */
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

/** @returns what is thrown where the failure concerns every file alike; undefined where it is that of one */
export function libraryErrorOf({ code, status, retryAfterSeconds, message, cause }: Failure): LibraryError | undefined {
  if (cause instanceof LibraryError) return cause;
  const isBusy = BUSY.includes(code) || code.startsWith('Throttl') || status === 429;
  if (isBusy) return new RetryLaterError(message, retryAfterSeconds ?? BUSY_SECONDS, { cause });
  if (status === 0) return new LibraryError(isUntrusted(cause) ? 'POLICY' : 'TRANSIENT', message, { cause });
  if (status === 400 && code === 'HTTP 400') return new LibraryError('POLICY', message, { cause }); // a HEAD says no more where a token has ended
  const errorClass = Object.hasOwn(OF_THE_LIBRARY, code) ? OF_THE_LIBRARY[code] : undefined;
  return errorClass && new LibraryError(errorClass, message, { cause });
}

const CLASSES: Record<string, ErrorClass> = {
  AccessDenied: 'POLICY',
  InvalidPayer: 'POLICY',
  MethodNotAllowed: 'PERMANENT',
  NoSuchKey: 'PERMANENT',
  KeyTooLongError: 'PERMANENT',
  PreconditionFailed: 'TRANSIENT',
  GlacierExpeditedRetrievalNotAvailable: 'TRANSIENT',
};

/** Of one file: it is there, and the right to it is missing. */
export function isDenied({ cause }: TapeError): boolean {
  return failureOf(cause, '').code === 'AccessDenied';
}

export function fileErrorOf({ code, status, message, cause }: Failure): TapeError {
  const errorClass = CLASSES[code] ?? (status >= 500 || status === 408 || status === 409 ? 'TRANSIENT' : 'PERMANENT');
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
