/** What a call must fail with. */
import { expect } from 'vitest';
import type { ErrorClass, TapeError } from '../../src/core/errors.js';
import { DriveError, LibraryError, VolumeError } from '../../src/tape/drive-library.js';
import { ChangedError, NotReadyError, RetryLaterError } from '../../src/tape/staging.js';
import { errorOf } from './staging-bench.js';

type Type = abstract new (...args: never[]) => TapeError;

/** Types that an engine distinguishes; several are subclasses of others. */
const types: Type[] = [ChangedError, DriveError, LibraryError, NotReadyError, RetryLaterError, VolumeError];

/**
 * Expects a call to reject with an error of this type, and of none of its subclasses that an engine distinguishes.
 * @param message a pattern, or a text that the message contains
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
