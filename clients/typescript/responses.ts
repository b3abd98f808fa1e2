/** Reads GraphQL responses, and writes variables. The client and the commands share these functions. */
import { type FailureCode, integerFields } from '../../src/generated/operations.js';
import { Refused } from './errors.js';

export interface GraphqlError {
  message: string;
  path?: readonly unknown[] | undefined;
  extensions?: ({ code?: string } & Record<string, unknown>) | undefined;
}

/** Returns undefined for a text that is not JSON, such as a proxy's error page. */
export function readJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Returns the first error in a response. Returns undefined if the response contains no valid error, because the server
 * might not be a Tapegate server.
 */
export function findError(body: unknown): GraphqlError | undefined {
  const { errors } = (body ?? {}) as { errors?: unknown };
  const error = Array.isArray(errors) ? errors[0] : undefined;
  return typeof error?.message === 'string' ? error : undefined;
}

export const toRefused = ({ message, extensions }: GraphqlError): Refused =>
  new Refused(message, extensions?.code, extensions);

/** Returns the data of a response without errors; undefined if the response is not a GraphQL response. */
export function readData<Data>(body: unknown): Data | undefined {
  const { data, errors } = (body ?? {}) as { data?: unknown; errors?: unknown };
  if (typeof data !== 'object' || data === null || errors) return undefined;
  try {
    return readIntegers(data as Data);
  } catch {
    return undefined; // the text in an integer field is not a number
  }
}

/** Converts decimal strings in a response's integer fields to bigints. Changes the response object in place. */
export function readIntegers<Data>(data: Data): Data {
  if (typeof data !== 'object' || data === null) return data;
  const fields = data as Record<string, unknown>;
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === 'string' && integerFields.has(name)) fields[name] = BigInt(value);
    else readIntegers(value);
  }
  return data;
}

/** Returns the media type of a content type header, without parameters. */
export const readMediaType = (contentType: string | null | undefined): string =>
  contentType?.replace(/;.*$/s, '').trim() || 'no content type';

/** Converts bigints to strings, the form in which the server accepts integers beyond 2^53. */
export function toJson(variables: unknown): Record<string, unknown> {
  const toText = (_name: string, value: unknown) => (typeof value === 'bigint' ? String(value) : value);
  return JSON.parse(JSON.stringify(variables ?? {}, toText));
}

/** A page of a list. */
export interface Page<Node> {
  edges: readonly { node: Node }[];
  pageInfo: { hasNextPage: boolean; endCursor: string | null };
}

/** A mutation's payload: the result, and the errors that the caller can correct. */
export interface Payload {
  errors: readonly { message: string; code: FailureCode }[];
}

/** The result in a payload of a successful mutation. */
export type Done<Result> = Result extends { value: infer Value }
  ? NonNullable<Value>
  : { [Name in Exclude<keyof Result, 'errors'>]: NonNullable<Result[Name]> };

/** Returns a payload's `value`, or all fields of a payload without `value`. @throws Refused for the payload's first error */
export function unwrap<Result extends Payload>(payload: Result | null): Done<Result> {
  const { errors, ...result } = present(payload);
  const [failure] = errors;
  if (failure) throw new Refused(failure.message, failure.code, failure);
  return ('value' in result ? present(result.value) : result) as Done<Result>;
}

/** Returns a field that is null only if its query failed, in which case the caller has already thrown an error. */
export function present<Value>(value: Value | null | undefined): Value {
  if (value === null || value === undefined) throw new TypeError('the gateway returned null without an error');
  return value;
}
