/** How commands fail: one clear line, and an exit code that a script can tell apart. */
import { codeOf, messageOf } from '../errors.js';

/**
 * 0 done; 1 failed; 2 wrong usage; 3 the request ended without all of its files; 4 who should answer is away; 130 interrupted, as a
 * shell reports SIGINT.
 */
export const exitCodes = { failed: 1, usage: 2, incomplete: 3, unavailable: 4, interrupted: 130 } as const;

/** What a command says when it fails, as it is shown. */
export class CommandError extends Error {
  readonly exitCode: number;

  constructor(message: string, exitCode: number = exitCodes.failed) {
    super(message);
    this.exitCode = exitCode;
  }
}

/** The command was interrupted. Nothing is printed if there is no message. */
export class InterruptedError extends CommandError {
  constructor(message = '') {
    super(message, exitCodes.interrupted);
  }
}

/** The server does not know who asks. */
export class NotKnownError extends CommandError {
  /** In the server's words. */
  readonly reason: string;

  constructor(reason: string) {
    super(`${reason} ("tapegate login" keeps a token)`);
    this.reason = reason;
  }
}

/** The command was given what it cannot take. */
export class UsageError extends CommandError {
  constructor(message: string) {
    super(message, exitCodes.usage);
  }
}

/** Who should answer did not, went away, or misses its database: trying again may help. */
export class ConnectionError extends CommandError {
  constructor(message: string) {
    super(message, exitCodes.unavailable);
  }
}

/** Of a certificate whose authority nobody knows here. */
const UNTRUSTED_CODES = /^(DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_\w+)$/;

/** Why nobody was reached, of an error of `fetch` or of Node's. */
export function describeNetworkError(error: unknown): string {
  const cause = (error as { cause?: unknown }).cause;
  const isUntrusted = UNTRUSTED_CODES.test(codeOf(cause) ?? '');
  const remedy = isUntrusted ? ' (NODE_EXTRA_CA_CERTS names the file of a private authority)' : '';
  if (codeOf(cause) === 'ERR_SSL_WRONG_VERSION_NUMBER') return 'no TLS is spoken there: is it http://?';
  return `${messageOf(cause ?? error)}${remedy}`;
}

/** The server knows no request with the id that was given. */
export class UnknownRequestError extends CommandError {
  constructor(id: number) {
    super(`there is no request with id ${id}`);
  }
}
