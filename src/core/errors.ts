/**
 * Classes for expected errors. Tapegate treats any other error as a bug: it logs the error in full, and responds with
 * "Internal error".
 */

import { formatterOf } from './text/bytes.js';

export const userErrorCodes = {
  INVALID_INPUT: 'a value is missing, malformed or out of range',
  UNKNOWN_USER: 'the named user has no quota',
  QUOTA_EXCEEDED: 'the requested files do not fit into the quota',
  LIMIT_REACHED: 'the user has reached a site limit',
  WRONG_QUOTA: 'the request belongs to another quota',
  NOT_FOUND: 'the object does not exist',
  FORBIDDEN: 'the caller lacks permission for the operation',
  IN_USE: 'the object is still in use',
  EVENTS_GONE: 'the requested events are no longer stored',
} as const;

export type UserErrorCode = keyof typeof userErrorCodes;

export class UserError extends Error {
  readonly code: UserErrorCode;

  constructor(code: UserErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** Thrown for an invalid field value. The message consists of the field's name and the text in `problem`. */
export class InvalidInputError extends UserError {
  readonly field: string;
  readonly problem: string;

  constructor(field: string, problem: string) {
    super('INVALID_INPUT', `${field} ${problem}`);
    this.field = field;
    this.problem = problem;
  }
}

/** Thrown if a caller uses an idempotency key again with another input. */
export class ReusedKeyError extends InvalidInputError {
  constructor(key: string, requestId: number) {
    super(
      'idempotencyKey',
      `${quote(key)} has already created request ${requestId} from another input: use a new key for each request`,
    );
  }
}

export class UnknownUserError extends UserError {
  readonly user: string;

  constructor(user: string) {
    super('UNKNOWN_USER', `there is no quota for user ${quote(user)}`);
    this.user = user;
  }
}

/**
 * Returns a message such as `quota "bob" is full: 8.00 MB requested, 4.00 MB of 10.0 MB free`, followed by advice. The
 * message differs for files whose total size exceeds the whole quota.
 */
export function describeFullQuota({ user, size, used, requested }: QuotaFigures): string {
  const free = size > used ? size - used : 0n;
  const isTooLarge = requested > size;
  const format = formatterOf(requested, isTooLarge ? size : free);
  const figures = `${format(requested)} requested, ${format(free)} of ${format(size)} free`;
  return isTooLarge
    ? `the request does not fit in quota ${quote(user)}: ${figures}; request fewer files, or ask an operator for a larger quota`
    : `quota ${quote(user)} is full: ${figures}; release files or cancel requests that are no longer needed, or ask an operator for a larger quota`;
}

interface QuotaFigures {
  user: string;
  size: bigint;
  used: bigint;
  requested: bigint;
}

export class QuotaExceededError extends UserError {
  readonly user: string;
  readonly size: bigint;
  readonly used: bigint;
  readonly requested: bigint;
  readonly available: bigint;

  constructor(figures: QuotaFigures) {
    const { user, size, used, requested } = figures;
    const available = size > used ? size - used : 0n;
    super('QUOTA_EXCEEDED', describeFullQuota(figures));
    this.user = user;
    this.size = size;
    this.used = used;
    this.requested = requested;
    this.available = available;
  }
}

/** Thrown if a user would exceed a site limit. `limit` names the setting that defines the limit. */
export class LimitReachedError extends UserError {
  readonly user: string;
  readonly limit: string;
  readonly allowed: number;
  readonly present: number;
  readonly added: number;

  constructor(what: string, figures: { user: string; limit: string; allowed: number; present: number; added: number }) {
    const { user, limit, allowed, present, added } = figures;
    super(
      'LIMIT_REACHED',
      `user ${quote(user)} would have ${present + added} ${what}, but the maximum at a time is ${allowed} (${limit})`,
    );
    this.user = user;
    this.limit = limit;
    this.allowed = allowed;
    this.present = present;
    this.added = added;
  }
}

export class WrongQuotaError extends UserError {
  constructor(requestId: number, owner: string, given: string) {
    super('WRONG_QUOTA', `request ${requestId} belongs to quota ${quote(owner)}, not to ${quote(given)}`);
  }
}

export class NotFoundError extends UserError {
  /** The error message for REST clients. The REST contract defines the exact wording. */
  readonly contractMessage: string;

  constructor(message: string, contractMessage = message) {
    super('NOT_FOUND', message);
    this.contractMessage = contractMessage;
  }
}

/** Returns the error for a request that does not exist or is hidden from the caller. */
export const noRequest = (id: number | string): NotFoundError =>
  new NotFoundError(describeNoRequest(id), `there is no request with id ${id}`);

export const describeNoRequest = (id: number | string): string =>
  `there is no request ${id}, or you are not allowed to see it`;

/** Returns the error for a quota that does not exist or is hidden from the caller. */
export const noQuota = (user: string): NotFoundError =>
  new NotFoundError(describeNoQuota(user), `there is no user ${quote(user)}`);

export const describeNoQuota = (user: string): string =>
  `there is no quota ${quote(user)}, or you are not allowed to see it`;

export class ForbiddenError extends UserError {
  constructor(caller: string, what: string) {
    super('FORBIDDEN', `${quote(caller)} may not ${what}`);
  }
}

export class EventsGoneError extends UserError {
  constructor(after: bigint, last: bigint) {
    super(
      'EVENTS_GONE',
      `events up to ${last} are no longer stored, so a subscription cannot start after event ${after}: subscribe without "after"`,
    );
  }
}

export class InUseError extends UserError {
  constructor(message: string) {
    super('IN_USE', message);
  }
}

/**
 * A temporary failure. `away` means that the database does not respond. `busy` means that the operation took too long,
 * or that too many other operations are running.
 */
export class UnavailableError extends Error {
  readonly kind: 'away' | 'busy';
  readonly retryAfterSeconds = 5;

  constructor(kind: 'away' | 'busy', problem: string, cause?: unknown, advice = 'try again later') {
    super(`${problem}: ${advice}`, { cause });
    this.kind = kind;
  }
}

export const unwanted = (): UnavailableError =>
  new UnavailableError('busy', 'the client stopped waiting for the response');

export function checkWanted(wanted: AbortSignal | undefined): void {
  if (wanted?.aborted) throw unwanted();
}

/** Thrown if a caller has used up its own share of a resource, such as a limiter's slots. */
export class OverShareError extends UnavailableError {
  constructor(problem: string) {
    super('busy', problem);
  }
}

/**
 * Thrown if the connection was lost before the database confirmed a commit. A retry of the operation might make the
 * same change twice.
 */
export class UnconfirmedError extends UnavailableError {
  constructor(cause: unknown) {
    super(
      'away',
      'the database did not confirm the change',
      cause,
      'check whether the change was stored before you repeat it',
    );
  }
}

/** Quotes a value for an error message, and shortens a long value. */
export function quote(value: string): string {
  const text = JSON.stringify(value);
  return text.length <= 120 ? text : `${text.slice(0, 100)}…" (${value.length} characters)`;
}

/**
 * Classes of recall errors, which determine whether Tapegate retries a failed recall. A TRANSIENT error might not occur
 * again in a retry. A PERMANENT error would occur again. A damaged cartridge causes a MEDIA error. A full disk causes a
 * SPACE error. A rule of the site causes a POLICY error.
 */
export const errorClasses = ['TRANSIENT', 'PERMANENT', 'MEDIA', 'SPACE', 'POLICY'] as const;

export type ErrorClass = (typeof errorClasses)[number];

export class TapeError extends Error {
  readonly errorClass: ErrorClass;

  constructor(errorClass: ErrorClass, message: string, options?: ErrorOptions) {
    super(message, options);
    this.errorClass = errorClass;
  }
}

/**
 * Thrown if this installation must not change the restore disks or libraries, because another installation might own
 * them.
 */
export class FencedError extends Error {
  constructor(reason: string) {
    super(`this Tapegate is fenced: ${reason}; "tapegate takeover" takes over the restore disks and libraries`);
  }
}

/** Thrown if a library setting is invalid. The message never shows a secret. */
export class SettingsError extends Error {
  readonly setting: string;
  readonly problem: string;

  constructor(setting: string, problem: string) {
    super(`${setting} ${problem}`);
    this.setting = setting;
    this.problem = problem;
  }
}

export interface FailureLog {
  warn(figures: object, text: string): void;
  error(figures: object, text: string): void;
}

/**
 * Logs an unexpected failure. Logs a busy database only as a warning. Does not log an unreachable database, because
 * db/pulse.ts logs the outage.
 */
export function logFailure(log: FailureLog, error: unknown, what: string, figures: object = {}): void {
  if (!(error instanceof UnavailableError)) log.error({ ...figures, err: error }, `${what}: ${messageOf(error)}`);
  else if (error.kind === 'busy') log.warn({ ...figures, ...causeOf(error) }, `${what}: ${error.message}`);
}

function causeOf(error: UnavailableError): object {
  return error.cause === undefined ? {} : { cause: messageOf(error.cause) };
}

export function codeOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | undefined)?.code;
  return typeof code === 'string' ? code : undefined;
}

const EXHAUSTED = ['EMFILE', 'ENFILE'];

/** Returns whether an operation failed because the process or the host has too many open files. */
export function isExhausted(error: unknown): boolean {
  if (EXHAUSTED.includes(codeOf(error) ?? '')) return true;
  return error instanceof Error && error.cause !== undefined && isExhausted(error.cause);
}

/** Returns an error's label in metrics: an error code, an HTTP status or INTERNAL. */
export function classOf(error: unknown): string {
  if (error instanceof UserError) return error.code;
  if (error instanceof OverShareError) return 'OVER_SHARE';
  if (error instanceof UnconfirmedError) return 'UNCONFIRMED';
  if (error instanceof UnavailableError) return 'UNAVAILABLE';
  const status = (error as { status?: unknown } | undefined)?.status;
  return typeof status === 'number' && status >= 400 && status < 500 ? `HTTP_${status}` : 'INTERNAL';
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

const MAX_LINE = 4000;

/** Converts text from outside Tapegate to one line that is safe for a database, an email and a terminal. */
export function oneLine(text: string, maxLength = MAX_LINE): string {
  return text
    .replace(/[\p{Cc}\p{Bidi_Control}\u2028\u2029]+/gu, ' ')
    .slice(0, maxLength)
    .toWellFormed();
}
