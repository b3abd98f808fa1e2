/** How calls fail. */
import type { FailureCode } from '../../src/generated/client-operations.js';

/** What the gateway says no to, or cannot do. Trying again helps nobody. */
export class Refused extends Error {
  /** As the schema has them, or that of an error of GraphQL, such as UNAUTHENTICATED. */
  readonly code: FailureCode | (string & {}) | undefined;
  /** All that it says, such as `field`, or `requested` and `available` of a quota. */
  readonly failure: Readonly<Record<string, unknown>>;

  constructor(message: string, code?: string, failure: object = {}) {
    super(message);
    this.name = 'Refused';
    this.code = code;
    this.failure = { ...failure };
  }
}

/**
 * The gateway was not reached, went away, or misses its database. A change may have been made: look before you repeat it.
 */
export class Unreachable extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'Unreachable';
  }
}

/** Files of a request were on disk, and are there no longer, such as copies that were removed outside Tapegate. */
export class NotOnDisk extends Error {
  /** Their logical paths. */
  readonly paths: readonly string[];

  constructor(message: string, paths: readonly string[]) {
    super(message);
    this.name = 'NotOnDisk';
    this.paths = paths;
  }
}
