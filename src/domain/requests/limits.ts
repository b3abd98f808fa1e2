/**
 * Limits on the number and total size of the files in one request. These limits are independent of the request's quota,
 * and protect against a pattern that matches too many files.
 */

import { InvalidInputError } from '../../core/errors.js';
import { formatterOf } from '../../core/text/bytes.js';
import { type Sql, sql } from '../../db/sql.js';
import type { Context } from '../context.js';
import { checkBytes } from '../input.js';

/**
 * Limits on the number and total size of the files in a request; a limit that is null does not apply. Released files do
 * not count toward these limits.
 */
export interface Limits {
  maxFiles: number | null;
  maxBytes: bigint | null;
}

/** Limits in a user's input. Undefined means that the input omits the limit, and null means no limit. */
export interface LimitsInput {
  maxFiles?: number | null | undefined;
  maxBytes?: bigint | null | undefined;
}

const MAX_FILES = 2 ** 31 - 1;

/**
 * Returns a request's new limits. Omitted limits keep their current values.
 * @throws InvalidInputError
 */
export function readLimits(input: LimitsInput, present: Limits): Limits {
  const { maxFiles = present.maxFiles, maxBytes = present.maxBytes } = input;
  if (maxFiles !== null && !(Number.isInteger(maxFiles) && maxFiles >= 0 && maxFiles <= MAX_FILES)) {
    throw new InvalidInputError('maxFiles', `must be from 0 to ${MAX_FILES} files, not ${maxFiles}`);
  }
  return { maxFiles, maxBytes: maxBytes === null ? null : checkBytes('maxBytes', maxBytes) };
}

const ADVICE = 'raise the limit, use a more specific pattern, or request a list of files';

/**
 * Checks that a group of files is within a request's limits. The caller accepts or rejects the whole group, such as the
 * files of a new request.
 * @throws InvalidInputError
 */
export function checkWithin({ config }: Context, limits: Limits, taken: { files: number; bytes: bigint }): void {
  const { maxFiles, maxBytes } = limits;
  const { requestFiles } = config.limits;
  if (taken.files > requestFiles) {
    throw new InvalidInputError(
      'files',
      `must not exceed ${requestFiles} in one request (TAPEGATE_REQUEST_FILES): the request would contain ${taken.files} files`,
    );
  }
  if (maxFiles !== null && taken.files > maxFiles) {
    throw new InvalidInputError(
      'maxFiles',
      `is ${maxFiles}, but the request would contain ${taken.files} files; ${ADVICE}`,
    );
  }
  if (maxBytes !== null && taken.bytes > maxBytes) {
    const format = formatterOf(maxBytes, taken.bytes);
    throw new InvalidInputError(
      'maxBytes',
      `is ${format(maxBytes)}, but the total size of the request's files would be ${format(taken.bytes)}; ${ADVICE}`,
    );
  }
}

/**
 * Returns the SQL expression for the maximum number of files in a request (`r`): the request's own limit or the site's
 * limit, whichever is lower.
 */
export function mostFiles({ config }: Context): Sql {
  return sql`least(r.max_files, ${config.limits.requestFiles}::int)`;
}
