import { defaultServerUrl } from '../../core/environment.js';
import { codeOf, messageOf } from '../../core/errors.js';
import { commandState, environment } from './io.js';

/**
 * Exit codes of commands. Code 3 means that a request ended, but some of its files were not restored. Code 4 means that
 * the server does not answer. Shells also use code 130 for SIGINT.
 */
export const exitCodes = { failed: 1, usage: 2, incomplete: 3, unavailable: 4, interrupted: 130 } as const;

/** A failure of a command, with the message to print. */
export class CommandError extends Error {
  readonly exitCode: number;

  constructor(message: string, exitCode: number = exitCodes.failed) {
    super(message);
    this.exitCode = exitCode;
  }
}

/** The error that ends a command when the user interrupts the command. An empty error message is not printed. */
export class InterruptedError extends CommandError {
  constructor(message = '') {
    super(message, exitCodes.interrupted);
  }
}

export class UnauthenticatedError extends CommandError {
  /** The server's error message, without the advice to log in. */
  readonly reason: string;

  /** @param reason the server's error message; undefined if the command did not send a token */
  constructor(reason?: string) {
    super(
      reason === undefined
        ? 'authentication required: run "tapegate login", or set TAPEGATE_TOKEN'
        : `${reason} ("tapegate login" stores a token)`,
    );
    this.reason = reason ?? this.message;
  }
}

export class UsageError extends CommandError {
  constructor(message: string) {
    super(message, exitCodes.usage);
  }
}

/** Thrown if the server or its database does not answer. A retry might succeed. */
export class ConnectionError extends CommandError {
  constructor(message: string) {
    super(message, exitCodes.unavailable);
  }
}

/** Thrown if the server answers that it cannot process the call now. It has made no change. */
export class BusyError extends ConnectionError {}

/** Thrown if no complete answer to a change arrives, so that the server might have made the change. */
export class UnconfirmedError extends CommandError {}

const UNTRUSTED_CODES = /^(DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_\w+)$/;

/** Returns why a connection failed, given an error from `fetch` or Node.js. */
export function describeNetworkError(error: unknown): string {
  const cause = (error as { cause?: unknown }).cause;
  const isUntrusted = UNTRUSTED_CODES.test(codeOf(cause) ?? '');
  const remedy = isUntrusted ? ' (to trust a private certificate authority, set NODE_EXTRA_CA_CERTS)' : '';
  if (codeOf(cause) === 'ERR_SSL_WRONG_VERSION_NUMBER') return 'the server does not use TLS: try http://';
  return `${messageOf(cause ?? error)}${remedy}`;
}

/** Returns why a server cannot be reached. */
export function formatNetworkError(url: string, error: unknown): string {
  const cause = (error as { cause?: unknown }).cause;
  const isDown = codeOf(cause) === 'ECONNREFUSED' || codeOf(error) === 'ECONNREFUSED';
  if (isDown) return `no Tapegate server responds at ${url} ${describeChoice(url)}`;
  return `${url}: ${describeNetworkError(error)}`;
}

/**
 * Describes, for an error message, which setting determines the server that commands call. If TAPEGATE_TOKEN is set,
 * but TAPEGATE_URL is not set, commands call this host's gateway.
 */
function describeChoice(url: string): string {
  const { TAPEGATE_URL, TAPEGATE_TOKEN, DATABASE_URL } = environment();
  if (TAPEGATE_URL) return '(TAPEGATE_URL)';
  if (!TAPEGATE_TOKEN || !DATABASE_URL) {
    return url === defaultServerUrl ? '(default; TAPEGATE_URL is not set)' : '(server in config.json)';
  }
  return '(TAPEGATE_TOKEN is set): set TAPEGATE_URL, or unset TAPEGATE_TOKEN to use DATABASE_URL';
}

const OTHER_NAMES = new Map([
  ['events', '--event'],
  ['expiresAt', '--expires'],
  ['files', '--file'],
  ['notifyOnFirstFile', '--notify-first'],
  ['notifyOnLastFile', '--notify-last'],
  ['paths', '--file'],
  ['quotas', '--quota'],
  ['expectedQuota', '--quota'],
  ['expectedType', '--type'],
]);

/**
 * Converts the name of a GraphQL field, such as `depthBytes`, to the name of a command-line option: `--depth-bytes`.
 */
export const optionOf = (field: string): string => `--${field.replace(/[A-Z]/g, (c) => `-${c.toLowerCase()}`)}`;

/**
 * Replaces the GraphQL field name at the start of an error message with the name of the command's option.
 * @param own maps the names of GraphQL fields to the names of the command's arguments
 */
export function nameOption(message: string, field: string, own: Readonly<Record<string, string>> = {}): string {
  const option = OTHER_NAMES.get(field) ?? optionOf(field);
  const name = own[field] ?? (commandState().options.includes(option) ? option : field);
  return message.startsWith(`${field} `) ? `${name}${message.slice(field.length)}` : message;
}
