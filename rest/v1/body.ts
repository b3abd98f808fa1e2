/** Schemas for the JSON request bodies of the REST contract and the WLCG Tape REST API. */
import type { Request, Response } from 'express';
import { z } from 'zod';
import { InvalidInputError, quote } from '../../src/core/errors.js';
import { isObject } from '../../src/core/text/json.js';
import { HttpError, readJsonBody } from '../../src/gateway/http/http-body.js';
import { toLogicalPath } from './paths.js';

type Issue = Pick<z.core.$ZodRawIssue, 'input'>;

const must = (be: string) => ({ error: ({ input }: Issue) => `must be ${be}, not ${nameOf(input)}` });
const string = z.string(must('a string'));

const optionalString = string.nullish();

/**
 * Name of the user whose quota is charged. Tapegate handles an empty name in the same way as an unknown user's name.
 */
const quota = z.string({
  error: (issue) => (issue.input == null ? 'must name a user, and is missing' : must('a string').error(issue)),
});

const common = {
  quota,
  retention: optionalString,
  label: optionalString,
  notify_on_first_file: optionalString,
  notify_on_last_file: optionalString,
};

export const requestChange = z.object(common);

/** The field `files` is a list of paths, or one string with one path per line. */
export const newRequest = z.object({
  ...common,
  patterns: optionalString,
  files: z.preprocess(
    (files) => (typeof files === 'string' ? files.split(/\r?\n/) : files),
    z
      .array(z.unknown(), must('a list of paths'))
      .transform((files, ctx) => {
        const other = files.find((file) => typeof file !== 'string');
        if (other !== undefined) ctx.addIssue(`must contain strings, not ${nameOf(other)}`);
        return files as string[];
      })
      .nullish(),
  ),
});

/**
 * Reads a request body in the REST contract's format. Accepts any Content-Type. The body can be an array of one object,
 * or the object alone.
 * @throws HttpError 400, 413, 415; InvalidInputError
 */
export async function readBody<T>(req: Request, res: Response, schema: z.ZodType<T>): Promise<T> {
  const value = await readJsonBody(req);
  const object: unknown = Array.isArray(value) && value.length === 1 ? value[0] : value;
  if (!isObject(object)) {
    const given = object === value ? nameOf(value) : `an array holding ${nameOf(object)}`;
    throw new HttpError(400, `the body must be an array holding one object, not ${given}`);
  }
  // record the quota's user, because statistics on unauthenticated calls contain the user that the body names
  if (typeof object.quota === 'string') res.locals.quota = object.quota;
  return parse(schema, object);
}

/**
 * Maximum number of characters in a path from a client. The longest logical path has fewer characters than this, even
 * when the path is percent-encoded.
 */
const MOST_GIVEN = 8192;

const filledString = string
  .refine((text) => text !== '', 'must not be empty')
  .refine((text) => !text.includes('\0') && text.isWellFormed(), {
    error: ({ input }) => `must be Unicode text without NUL characters, not ${quote(String(input))}`,
  });

/** Matches ISO 8601 durations such as P2D or PT12H. */
const DURATION =
  /^P(?=.)(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+(?:[.,]\d+)?)D)?(?:T(?=.)(?:(\d+(?:[.,]\d+)?)H)?(?:(\d+(?:[.,]\d+)?)M)?(?:(\d+(?:[.,]\d+)?)S)?)?$/;

const DAY = 24 * 3600;
/** Number of seconds in each unit of a duration. A year counts as 365 days, and a month as 30 days. */
const SECONDS = [365 * DAY, 30 * DAY, 7 * DAY, DAY, 3600, 60, 1];
const MOST_SECONDS = 100 * 365 * DAY;

const duration = filledString.transform((text, ctx) => {
  const [, ...parts] = (text.length <= 100 && DURATION.exec(text)) || [''];
  const sum = parts.reduce((all, part, n) => all + Number((part ?? '0').replace(',', '.')) * (SECONDS[n] ?? 0), 0);
  const seconds = Math.ceil(sum);
  if (seconds > 0 && seconds <= MOST_SECONDS) return seconds;
  ctx.addIssue(`must be a positive ISO 8601 duration of at most P100Y, such as P2D, not ${quote(text)}`);
  return z.NEVER;
});

/**
 * Returns a schema for a list. Validation stops at the first invalid item, because a list can contain a million items.
 */
const listOf = <Item extends z.ZodType>(item: Item) =>
  z
    .array(z.unknown(), must('a list'))
    .min(1, 'must not be empty')
    .transform((values, ctx) => {
      const items: z.output<Item>[] = [];
      for (const [n, value] of values.entries()) {
        const read = item.safeParse(value);
        if (!read.success) {
          for (const { path, message } of read.error.issues)
            ctx.addIssue({ code: 'custom', path: [n, ...path], message });
          return z.NEVER;
        }
        items.push(read.data);
      }
      return items;
    });

const stageBody = z.object({
  files: listOf(
    z.object(
      {
        path: filledString.refine((path) => path.length <= MOST_GIVEN, {
          error: ({ input }) => `must have at most ${MOST_GIVEN} characters, not ${String(input).length}`,
        }),
        diskLifetime: duration.nullish(),
        targetedMetadata: z.unknown().optional(),
      },
      must('an object'),
    ),
  ),
});

export const pathsBody = z.object({ paths: listOf(filledString) });

/** @throws HttpError 400, 413, 415; InvalidInputError */
export async function readTapeBody<T>(req: Request, schema: z.ZodType<T>): Promise<T> {
  const value = await readJsonBody(req);
  if (isObject(value)) return parse(schema, value);
  throw new HttpError(400, `the body must be an object, not ${nameOf(value)}`);
}

interface StagedFile {
  path: string;
  given: string;
  lifetimeSeconds: number | undefined;
}

/**
 * Reads the body of a stage request.
 * @returns the files, and the distinct quotas named in the files' metadata for this site
 */
export async function readStage(req: Request, siteName: string): Promise<{ files: StagedFile[]; quotas: string[] }> {
  const { files } = await readTapeBody(req, stageBody);
  const quotas = files.flatMap(({ targetedMetadata }) => findQuota(targetedMetadata, siteName) ?? []);
  return {
    files: files.map(({ path, diskLifetime }) => ({
      path: toLogicalPath(path),
      given: path,
      lifetimeSeconds: diskLifetime ?? undefined,
    })),
    quotas: [...new Set(quotas)],
  };
}

function findQuota(metadata: unknown, siteName: string): string | undefined {
  for (const site of [siteName, 'default']) {
    const own = isObject(metadata) && Object.hasOwn(metadata, site) ? metadata[site] : undefined;
    if (isObject(own) && typeof own.quota === 'string' && own.quota !== '') return own.quota;
  }
  return undefined;
}

const MOST_FAULTS = 5;

/** @throws InvalidInputError that describes the errors in up to five fields */
export function parse<T>(schema: z.ZodType<T>, value: unknown): T {
  const read = schema.safeParse(value);
  if (read.success) return read.data;
  const faults = new Map<string, string>();
  for (const { path, message } of read.error.issues) {
    const [first = '', ...more] = path.map(String);
    const field = first + more.map((part) => (/^\d+$/.test(part) ? `[${part}]` : `.${part}`)).join('');
    if (!faults.has(field)) faults.set(field, message);
  }
  const [[field, problem] = ['body', 'cannot be read'], ...others] = faults;
  const shown = others.slice(0, MOST_FAULTS - 1).map((fault) => fault.join(' '));
  const rest = others.length - shown.length;
  throw new InvalidInputError(field, [problem, ...shown, ...(rest > 0 ? [`and ${rest} more`] : [])].join('; '));
}

function nameOf(value: unknown): string {
  if (value === undefined) return 'missing';
  if (Array.isArray(value))
    return value.length === 1 ? 'an array of one element' : `an array of ${value.length} elements`;
  if (value === null) return 'null';
  if (typeof value === 'object') return 'an object';
  return typeof value === 'bigint' ? 'a number' : `a ${typeof value}`;
}
