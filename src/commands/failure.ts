/** How commands fail: one clear line, and an exit code that a script can tell apart. */

/** 0 done; 1 failed; 2 wrong usage; 3 the request ended without all of its files; 4 who should answer is away. */
export const exitCodes = { failed: 1, usage: 2, incomplete: 3, unavailable: 4 } as const;

/** What a command says when it fails, as it is shown. */
export class CommandError extends Error {
  readonly exitCode: number;

  constructor(message: string, exitCode: number = exitCodes.failed) {
    super(message);
    this.exitCode = exitCode;
  }
}

/** The command was given what it cannot take. */
export class UsageError extends CommandError {
  constructor(message: string) {
    super(message, exitCodes.usage);
  }
}

/** The server knows no request with the id that was given. */
export class UnknownRequestError extends CommandError {
  constructor(id: number) {
    super(`there is no request with id ${id}`);
  }
}
