/** The forms of section 2 of the contract, and of the bodies of section 4, as JSON Schemas: what is described, and what tests hold answers to. */
import type { z } from 'zod';
import { stageLetters } from '../../src/core/stages.js';

export type JsonSchema = z.core.JSONSchema.JSONSchema;

const letters = Object.values(stageLetters).join('');

export const refTo = (name: keyof typeof forms): JsonSchema => ({ $ref: `#/components/schemas/${name}` });

/** Every body is an array of exactly one. */
export const arrayOfOne = (items: JsonSchema): JsonSchema => ({ type: 'array', items, minItems: 1, maxItems: 1 });

const listOf = (items: JsonSchema): JsonSchema => ({ type: 'array', items });
const text = (description: string) => ({ type: 'string', description }) as const;
const bytes = (description: string): JsonSchema => ({ type: 'integer', format: 'int64', minimum: 0, description });
const id = (description: string): JsonSchema => ({ type: 'integer', minimum: 1, maximum: 2 ** 31 - 1, description });
const time = (description: string) =>
  ({
    type: 'string',
    pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d{6})?$',
    description: `${description}; UTC, without a zone`,
  }) as const;
const orNull = (schema: JsonSchema & { type: 'string' }): JsonSchema => ({ ...schema, type: ['string', 'null'] });

/** All of the properties must be there, but for those that are named; and no others are. */
function answer(properties: Record<string, JsonSchema>, optional: readonly string[] = []): JsonSchema {
  const required = Object.keys(properties).filter((name) => !optional.includes(name));
  return { type: 'object', properties, required, additionalProperties: false };
}

const times = {
  tapestore_request_start: time('When the first recall of a file of the request began'),
  tapestore_request_end: time('When the last recall ended'),
  first_files_on_disk: time('When the first file was on disk'),
  last_files_on_disk: time('When the last file was on disk'),
};
const timesOfProgress = Object.keys(times);

const quota = text('The user whose quota is charged');

const common = {
  id: id('Of the request'),
  quota,
  retention: time('When the files leave the restore area'),
  request_date: time('When the request was made'),
  label: text('What its user calls it; the pattern or the first file, unless given'),
};

const given = {
  retention: {
    type: ['string', 'null'],
    pattern: '^(\\d{4}-\\d\\d-\\d\\d(T\\d\\d:\\d\\d:\\d\\d(\\.\\d{1,6})?)?)?$',
    description:
      'When the files leave the restore area: a date, which stands for its midnight, or a time; UTC, without a zone',
  },
  label: {
    type: ['string', 'null'],
    maxLength: 2000,
    pattern: '^[^\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029]*$',
    description: 'What you call the request',
  },
  notify_on_first_file: address('first'),
  notify_on_last_file: address('last'),
} satisfies Record<string, JsonSchema>;

function address(which: string): JsonSchema {
  return {
    type: ['string', 'null'],
    maxLength: 254,
    pattern: '^([^\\s@<>()\\[\\]\\\\,;:"]{1,64}@[^\\s@<>()\\[\\]\\\\,;:"]+)?$',
    description: `An e-mail address that is told when the ${which} file is there; an empty one means the quota's own`,
  };
}

const pattern: JsonSchema = {
  type: 'string',
  minLength: 1,
  maxLength: 2048,
  pattern: '^[^\\u0000]*$',
  description:
    'A part of the paths that are wanted: case counts, and no character is a wildcard. Files that are added later join the request',
};
const path: JsonSchema = { type: 'string', maxLength: 2048, pattern: '^(/[^/\\u0000]+)+$' };
const notGiven: JsonSchema = { enum: [null, ''], description: 'Not given: one of `patterns` and `files` is' };

export const forms = {
  Request: answer(
    {
      id: common.id,
      quota,
      retention: common.retention,
      request_date: common.request_date,
      request_patterns: text('The pattern that was given; empty where files were listed'),
      notify_on_first_file: orNull(text('The e-mail address that is told of the first file')),
      notify_on_last_file: orNull(text('The e-mail address that is told of the last file')),
      label: common.label,
      ...times,
      files: { ...listOf({ type: 'string' }), description: 'The paths of the files, as they were listed, or in order' },
    },
    timesOfProgress,
  ),
  RequestSummary: answer(common),
  RequestOfQuota: answer(
    { id: common.id, request_date: common.request_date, retention: common.retention, label: common.label, ...times },
    timesOfProgress,
  ),
  Requests: answer({ requests: listOf({ $ref: '#/components/schemas/RequestSummary' }) }),
  RequestId: answer({ req_id: id('Of the request') }),
  TapeFile: answer(
    {
      path: text('The logical path of the file'),
      'spot-name': orNull(text('The spot that the file came from; only where it is asked for')),
      stage: {
        type: 'string',
        enum: [...letters],
        description:
          'U: unverified, its copy on tape is not confirmed yet; D: on disk, and on tape; T: on tape only; A: being restored; R: restored',
      },
      verified: orNull(time('When the copy on tape was confirmed')),
      size: bytes('In bytes'),
    },
    ['spot-name'],
  ),
  TapeFiles: answer({
    count: { type: 'integer', minimum: 0, description: 'How many files there are in the list' },
    files: listOf({ $ref: '#/components/schemas/TapeFile' }),
  }),
  Quota: answer({
    id: { type: 'integer', minimum: 1, description: 'Of the user' },
    user: text('The name of the user, which is that of the quota'),
    size: bytes('Of the quota, in bytes'),
    used: bytes('What the live requests of the user are charged, in bytes'),
    email: text('The e-mail address of the user; empty where nobody gave one'),
    notes: text('Notes on the user; empty where nobody gave any'),
    requests: {
      ...listOf({ $ref: '#/components/schemas/RequestOfQuota' }),
      description: 'The live requests of the user',
    },
  }),
  Error: answer({ error: text('What is wrong, in words'), error_msg: text('The same') }),
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
          'The paths that are wanted: a list, or a text with a path a line. One that the archive does not know yet joins the request when it appears',
      },
      patterns: notGiven,
      ...given,
    },
    required: ['quota', 'files'],
  },
  RequestChange: {
    type: 'object',
    properties: { quota: text('The user whose quota the request is charged to'), ...given },
    required: ['quota'],
  },
} satisfies Record<string, JsonSchema>;

/** The parameters of the query of `GET /files`. */
export const queryForms = {
  match: { type: 'string', maxLength: 2048, pattern: '^[^\\u0000]*$' },
  stages: { type: 'string', pattern: `^[${letters}${letters.toLowerCase()}]*$` },
  'spot-name': { type: 'string', enum: ['true', 'false', ''] },
} satisfies Record<string, JsonSchema>;

export const pathForms = {
  id: { type: 'integer', minimum: 1, maximum: 2 ** 31 - 1 },
  user: { type: 'string', minLength: 1 },
} satisfies Record<string, JsonSchema>;
