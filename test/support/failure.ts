/** Expectations about the error of a call. */
import { expect } from 'vitest';
import type { ErrorClass, TapeError } from '../../src/core/errors.js';
import { DriveError, LibraryError, VolumeError } from '../../src/tape/drive-library.js';
import { ChangedError, NotReadyError, RetryLaterError } from '../../src/tape/staging.js';
import { errorOf } from './staging-bench.js';

type Type = abstract new (...args: never[]) => TapeError;

/** Error types that an engine distinguishes. Several types are subclasses of other types in the list. */
const types: Type[] = [ChangedError, DriveError, LibraryError, NotReadyError, RetryLaterError, VolumeError];

/**
 * Expects a call to reject with an error of this type, but not of a subclass in `types`.
 * @param message a pattern, or a text that the error's message contains
 */
export async function expectFailure(
  call: Promise<unknown>,
  type: Type,
  errorClass: ErrorClass,
  message: string | RegExp = '',
): Promise<void> {
  const error = await errorOf(call);
  expect(error).toBeInstanceOf(type);
  expect(types.filter((other) => other.prototype instanceof type && error instanceof other)).toEqual([]);
  const says = typeof message === 'string' ? expect.stringContaining(message) : expect.stringMatching(message);
  expect(error).toMatchObject({ errorClass, message: says });
}
