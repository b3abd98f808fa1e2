/** Reads the JSON body of POST and PUT. Liberal in form: any or no Content-Type, a bare object or an array of one. */
import type { Request } from 'express';
import { InvalidInputError } from '../src/errors.js';
import { HttpError, readJsonBody } from '../src/http-body.js';

export type Fields = Record<string, unknown>;

/** @throws HttpError 400, 413, 415 */
export async function readFields(req: Request): Promise<Fields> {
  const value = await readJsonBody(req);
  const object: unknown = Array.isArray(value) && value.length === 1 ? value[0] : value;
  if (typeof object === 'object' && object !== null && !Array.isArray(object)) return object as Fields;
  const given = object === value ? nameOf(value) : `an array holding ${nameOf(object)}`;
  throw new HttpError(400, `the body must be an array holding one object, not ${given}`);
}

/** What a value is, for the message that something else was expected. */
export function nameOf(value: unknown): string {
  if (value === undefined) return 'missing';
  if (Array.isArray(value)) return value.length === 1 ? 'an array of one' : `an array of ${value.length}`;
  if (value === null) return 'null';
  if (typeof value === 'object') return 'an object';
  return typeof value === 'bigint' ? 'a number' : `a ${typeof value}`;
}

/** A string field; undefined when absent, null when null. */
export function stringField(fields: Fields, name: string): string | null | undefined {
  const value = Object.hasOwn(fields, name) ? fields[name] : undefined;
  if (value === undefined || value === null || typeof value === 'string') return value;
  throw new InvalidInputError(name, `must be a string, not ${nameOf(value)}`);
}

/** The quota is the one field that must be there. An empty one is a user whom nobody knows. */
export function quotaField(fields: Fields): string {
  const quota = stringField(fields, 'quota');
  if (quota !== undefined && quota !== null) return quota;
  throw new InvalidInputError('quota', 'must name a user, and is missing');
}

/** A JSON list of paths, or one string with a path a line. */
export function filesField(fields: Fields): string[] | null | undefined {
  const value = Object.hasOwn(fields, 'files') ? fields.files : undefined;
  if (value === undefined || value === null) return value;
  if (typeof value === 'string') return value.split(/\r?\n/).filter((line) => line !== '');
  if (!Array.isArray(value)) throw new InvalidInputError('files', `must be a list of paths, not ${nameOf(value)}`);
  for (const file of value) {
    if (typeof file !== 'string') throw new InvalidInputError('files', `must hold strings, not ${nameOf(file)}`);
  }
  return value;
}
