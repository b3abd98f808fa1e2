/**
 * JSON Schemas for the values (section 2) and bodies (section 4) of the REST contract. Tests check responses against
 * the schemas.
 */
import type { z } from 'zod';
import { stageLetters } from '../../src/core/stages.js';

export type JsonSchema = z.core.JSONSchema.JSONSchema;

const letters = Object.values(stageLetters).join('');

export const refTo = (name: keyof typeof forms): JsonSchema => ({ $ref: `#/components/schemas/${name}` });

/** Returns the schema of a request or response body: an array of exactly one object. */
export const arrayOfOne = (items: JsonSchema): JsonSchema => ({ type: 'array', items, minItems: 1, maxItems: 1 });

const listOf = (items: JsonSchema): JsonSchema => ({ type: 'array', items });
const text = (description: string) => ({ type: 'string', description }) as const;
const bytes = (description: string): JsonSchema => ({ type: 'integer', format: 'int64', minimum: 0, description });
const id = (description: string): JsonSchema => ({ type: 'integer', minimum: 1, maximum: 2 ** 31 - 1, description });
const time = (description: string) =>
  ({
    type: 'string',
    pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d{6})?$',
    description: `${description}, as a time in UTC without a zone suffix`,
  }) as const;
const orNull = (schema: JsonSchema & { type: 'string' }): JsonSchema => ({ ...schema, type: ['string', 'null'] });

/** Returns the schema for an object in a response, which must not have additional properties. */
function answer(properties: Record<string, JsonSchema>, optional: readonly string[] = []): JsonSchema {
  const required = Object.keys(properties).filter((name) => !optional.includes(name));
  return { type: 'object', properties, required, additionalProperties: false };
}

const times = {
  tapestore_request_start: time('When the first recall of the request began'),
  tapestore_request_end: time('When the last recall ended'),
  first_files_on_disk: time('When the first file was on disk'),
  last_files_on_disk: time('When the last file was on disk'),
};
const timesOfProgress = Object.keys(times);

const quota = text('The user whose quota is charged');

const common = {
  id: id("The request's id"),
  quota,
  retention: time('When the request expires and its files are removed from the restore area'),
  request_date: time('When the request was created'),
  label: text('The label. Default: the pattern or the first file'),
};

const given = {
  retention: {
    type: ['string', 'null'],
    pattern: '^(\\d{4}-\\d\\d-\\d\\d(T\\d\\d:\\d\\d:\\d\\d(\\.\\d{1,6})?)?)?$',
    description: 'When the request expires: a time in UTC without a zone suffix, or a date, which means midnight UTC',
  },
  label: {
    type: ['string', 'null'],
    maxLength: 2000,
    pattern: '^[^\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029]*$',
    description: 'Your name for the request',
  },
  notify_on_first_file: address('first'),
  notify_on_last_file: address('last'),
} satisfies Record<string, JsonSchema>;

function address(which: string): JsonSchema {
  return {
    type: ['string', 'null'],
    maxLength: 254,
    pattern: '^([^\\s@<>()\\[\\]\\\\,;:"]{1,64}@[^\\s@<>()\\[\\]\\\\,;:"]+)?$',
    description: `The email address to notify when the ${which} file is on disk. An empty string means the quota's email address`,
  };
}

const pattern: JsonSchema = {
  type: 'string',
  minLength: 1,
  maxLength: 2048,
  pattern: '^[^\\u0000]*$',
  description:
    'A plain, case-sensitive substring of the paths. Matching files that the archive receives later are added to the request',
};
const path: JsonSchema = { type: 'string', maxLength: 2048, pattern: '^(/[^/\\u0000]+)+$' };
const notGiven: JsonSchema = {
  enum: [null, ''],
  description: 'Null and an empty string are treated as missing. Exactly one of `patterns` and `files` is required',
};

export const forms = {
  Request: answer(
    {
      id: common.id,
      quota,
      retention: common.retention,
      request_date: common.request_date,
      request_patterns: text('The pattern. Empty if the request has a list of files instead'),
      notify_on_first_file: orNull(text('The email address to notify when the first file is on disk')),
      notify_on_last_file: orNull(text('The email address to notify when the last file is on disk')),
      label: common.label,
      ...times,
      files: {
        ...listOf({ type: 'string' }),
        description:
          'The paths of the files: in the order of the requested list, or sorted if the request has a pattern',
      },
    },
    timesOfProgress,
  ),
  RequestSummary: answer(common),
  RequestOfQuota: answer(
    { id: common.id, request_date: common.request_date, retention: common.retention, label: common.label, ...times },
    timesOfProgress,
  ),
  Requests: answer({ requests: listOf({ $ref: '#/components/schemas/RequestSummary' }) }),
  RequestId: answer({ req_id: id("The request's id") }),
  TapeFile: answer(
    {
      path: text("The file's logical path"),
      'spot-name': orNull(
        text('The storage spot from which the file was archived. Present only if the query contains `spot-name=true`'),
      ),
      stage: {
        type: 'string',
        enum: [...letters],
        description:
          'U: unverified, the copy on tape is not confirmed; D: on disk and on tape; T: only on tape; A: being restored; R: restored',
      },
      verified: orNull(time('When the copy on tape was confirmed')),
      size: bytes('The size of the file in bytes'),
    },
    ['spot-name'],
  ),
  TapeFiles: answer({
    count: { type: 'integer', minimum: 0, description: 'The number of files in the list' },
    files: listOf({ $ref: '#/components/schemas/TapeFile' }),
  }),
  Quota: answer({
    id: { type: 'integer', minimum: 1, description: "The user's id" },
    user: text('The name of the user, which is also the name of the quota'),
    size: bytes("The quota's size in bytes"),
    used: bytes('The bytes charged for live requests'),
    email: text("The user's email address. May be empty"),
    notes: text('Notes about the user. May be empty'),
    requests: {
      ...listOf({ $ref: '#/components/schemas/RequestOfQuota' }),
      description: "The user's live requests",
    },
  }),
  Error: answer({ error: text('The error message'), error_msg: text('The same message') }),
  RequestByPattern: {
    type: 'object',
    properties: { quota, patterns: pattern, files: { oneOf: [notGiven, { type: 'array', maxItems: 0 }] }, ...given },
    required: ['quota', 'patterns'],
  },
  RequestByFiles: {
    type: 'object',
    properties: {
      quota,
      files: {
        oneOf: [
          { ...listOf(path), minItems: 1 },
          { type: 'string', pattern: '^(\\r?\\n)*(/[^/\\u0000\\r\\n]+)+(\\r?\\n((/[^/\\u0000\\r\\n]+)+)?)*$' },
        ],
        description:
          'The paths of the files: a list, or one string with a path per line. Listed files that the archive receives later are added to the request',
      },
      patterns: notGiven,
      ...given,
    },
    required: ['quota', 'files'],
  },
  RequestChange: {
    type: 'object',
    properties: { quota: text('The user whose quota is charged'), ...given },
    required: ['quota'],
  },
} satisfies Record<string, JsonSchema>;

export const queryForms = {
  match: { type: 'string', maxLength: 2048, pattern: '^[^\\u0000]*$' },
  stages: { type: 'string', pattern: `^[${letters}${letters.toLowerCase()}]*$` },
  'spot-name': { type: 'string', enum: ['true', 'false', ''] },
} satisfies Record<string, JsonSchema>;

export const headerForms = {
  'Idempotency-Key': { type: 'string', pattern: '^[!-~]{1,255}$' },
} satisfies Record<string, JsonSchema>;

export const pathForms = {
  id: { type: 'integer', minimum: 1, maximum: 2 ** 31 - 1 },
  user: { type: 'string', minLength: 1 },
} satisfies Record<string, JsonSchema>;
