/** Endpoint for tape files (sections 2.4 and 4.5 of the REST contract). */
import type { Request, Response } from 'express';
import { InvalidInputError, quote } from '../../src/core/errors.js';
import { type Stage, stageOfLetter } from '../../src/core/stages.js';
import { type JsonOfFile, listFiles } from '../../src/domain/catalogue/tape-files.js';
import type { Context } from '../../src/domain/context.js';
import { HttpError } from '../../src/gateway/http/http-body.js';
import { sendBytes } from './respond.js';

export async function getAll(ctx: Context, req: Request, res: Response): Promise<void> {
  const query = readQuery(req);
  const withSpot = readFlag(query, 'spot-name');
  const input = { match: readOne(query, 'match'), stages: readStages(readOne(query, 'stages')) };
  await listFiles(ctx, input).texts(jsonOfFile(withSpot), (count, pages) =>
    sendBytes(res, { head: `[{"count":${count},"files":[`, pages, tail: ']}]' }),
  );
}

function jsonOfFile(withSpot: boolean): JsonOfFile {
  return [
    ['path', 'path'],
    ...(withSpot ? [['spot-name', 'spotName'] as const] : []),
    ['stage', 'stageLetter'],
    ['verified', 'verified'],
    ['size', 'size'],
  ];
}

/** Parses a URL's query. Accepts a percent sign even if no two hexadecimal digits follow the sign. */
function readQuery(req: Request): URLSearchParams {
  const { search, searchParams } = new URL(req.url, 'http://localhost');
  try {
    decodeURIComponent(search.replace(/%(?![0-9a-f]{2})/gi, '%25'));
  } catch {
    throw new HttpError(400, `the query must be valid UTF-8: ${quote(search)}`);
  }
  return searchParams;
}

function readOne(query: URLSearchParams, name: string): string | undefined {
  const values = query.getAll(name);
  if (values.length > 1) throw new InvalidInputError(name, `must be given once, not ${values.length} times`);
  return values[0] === '' ? undefined : values[0];
}

function readStages(letters: string | undefined): Stage[] | undefined {
  if (letters === undefined) return undefined;
  return [...letters].map((letter) => {
    const stage = stageOfLetter(letter);
    if (stage) return stage;
    throw new InvalidInputError('stages', `must be letters of U, D, T, A, R, not ${quote(letter)}`);
  });
}

function readFlag(query: URLSearchParams, name: string): boolean {
  const value = readOne(query, name);
  if (value !== undefined && value !== 'true' && value !== 'false') {
    throw new InvalidInputError(name, `must be true or false, not ${quote(value)}`);
  }
  return value === 'true';
}
