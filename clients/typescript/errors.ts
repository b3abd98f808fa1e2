/** Errors of the client. */
import type { FailureCode } from '../../src/generated/operations.js';

/** The gateway rejected the request or cannot process it. A retry does not help. */
export class Refused extends Error {
  /** Code of a failure in the schema, or of a GraphQL error, such as UNAUTHENTICATED. */
  readonly code: FailureCode | (string & {}) | undefined;
  /** All fields of the failure, such as `field`, or `requested` and `available` of a quota. */
  readonly failure: Readonly<Record<string, unknown>>;

  constructor(message: string, code?: string, failure: object = {}) {
    super(message);
    this.name = 'Refused';
    this.code = code;
    this.failure = { ...failure };
  }
}

/**
 * The gateway is unreachable, closed the connection, or cannot reach its database. It may have made the change: check before you repeat it.
 */
export class Unreachable extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'Unreachable';
  }
}

/**
 * The response is not from a Tapegate gateway, but for example from a proxy's login page. A retry does not help.
 */
export class UnexpectedResponse extends Unreachable {
  constructor(message: string, options?: ErrorOptions) {
    super(`${message}: check the URL of the gateway, and whether a proxy requires a login`, options);
    this.name = 'UnexpectedResponse';
  }
}

/** A request has ended without all of its files. */
export class Incomplete extends Error {
  readonly failed: readonly FailedFile[];

  constructor(message: string, failed: readonly FailedFile[] = []) {
    super(message);
    this.name = 'Incomplete';
    this.failed = failed;
  }
}

export interface FailedFile {
  path: string;
  errorClass: string | null;
  error: string | null;
}

/** Files of a request are no longer on disk, for example because a copy was removed outside Tapegate. */
export class NotOnDisk extends Error {
  /** Archive paths of the files. */
  readonly paths: readonly string[];

  constructor(message: string, paths: readonly string[]) {
    super(message);
    this.name = 'NotOnDisk';
    this.paths = paths;
  }
}
