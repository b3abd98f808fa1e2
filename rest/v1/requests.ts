/** Endpoints for requests (sections 2.1, 2.2 and 4.1 to 4.4 of the REST contract). */
import type { Request, Response } from 'express';
import type { z } from 'zod';
import { InvalidInputError, ReusedKeyError } from '../../src/core/errors.js';
import type { Context } from '../../src/domain/context.js';
import { createRequest } from '../../src/domain/requests/create.js';
import {
  getRequestWithPaths,
  listRequests,
  parseRequestId,
  type RequestRow,
  streamRequestPaths,
} from '../../src/domain/requests/rows.js';
import { updateRequest } from '../../src/domain/requests/update.js';
import { HttpError } from '../../src/gateway/http/http-body.js';
import { newRequest, readBody, requestChange } from './body.js';
import { send, sendList, sendText } from './respond.js';

export async function getOne(ctx: Context, req: Request, res: Response): Promise<void> {
  const request = await getRequestWithPaths(ctx, parseRequestId(String(req.params.id)));
  const fields = {
    id: request.id,
    quota: request.quota,
    retention: request.retention,
    request_date: request.requestDate,
    request_patterns: request.pattern,
    notify_on_first_file: request.notifyOnFirstFile,
    notify_on_last_file: request.notifyOnLastFile,
    label: request.label,
    ...presentTimes(request),
  };
  const head = `[${JSON.stringify(fields).slice(0, -1)},"files":[`;
  if (request.paths !== null) return sendText(res, 200, `${head}${request.paths}]}]`);
  await streamRequestPaths(ctx, request.id, (pages) =>
    sendList(res, { head, pages, present: (row) => row.path, tail: ']}]' }),
  );
}

interface Times {
  tapestoreRequestStart: string | null;
  tapestoreRequestEnd: string | null;
  firstFilesOnDisk: string | null;
  lastFilesOnDisk: string | null;
}

/**
 * Returns the times at which a request reached each stage of its progress. Omits stages that the request has not
 * reached.
 */
export function presentTimes(request: Times) {
  const times = {
    tapestore_request_start: request.tapestoreRequestStart,
    tapestore_request_end: request.tapestoreRequestEnd,
    first_files_on_disk: request.firstFilesOnDisk,
    last_files_on_disk: request.lastFilesOnDisk,
  };
  return Object.fromEntries(Object.entries(times).filter(([, time]) => time !== null));
}

export async function getAll(ctx: Context, _req: Request, res: Response): Promise<void> {
  await listRequests(ctx, {}).stream((pages) =>
    sendList(res, { head: '[{"requests":[', pages, present: presentSummary, tail: ']}]' }),
  );
}

function presentSummary(request: RequestRow) {
  return {
    id: request.id,
    quota: request.quota,
    retention: request.retention,
    request_date: request.requestDate,
    label: request.label,
  };
}

export async function post(ctx: Context, req: Request, res: Response): Promise<void> {
  const { patterns, files, ...fields } = await readBody(req, res, newRequest);
  const input = { pattern: patterns, files, ...commonFields(fields), idempotencyKey: readKey(req) };
  const id = await withContractNames(() => createRequest(ctx, input));
  send(res, 200, { req_id: id });
}

/**
 * Returns the key in the header `Idempotency-Key`. The header contains the key itself, or the key as a quoted string
 * (draft-ietf-httpapi-idempotency-key-header, section 2.1).
 */
function readKey({ headers }: Request): string | undefined {
  const value = headers['idempotency-key'] as string | undefined; // Node.js joins repeated headers
  if (!value?.startsWith('"')) return value;
  const [, quoted] = /^"((?:[^"\\]|\\["\\])*)"$/.exec(value) ?? [];
  if (quoted === undefined) throw new InvalidInputError('Idempotency-Key', `must be a quoted string, not ${value}`);
  return quoted.replace(/\\(.)/g, '$1');
}

export async function put(ctx: Context, req: Request, res: Response): Promise<void> {
  const id = parseRequestId(String(req.params.id));
  const fields = await readBody(req, res, requestChange);
  await withContractNames(() => updateRequest(ctx, { id, ...commonFields(fields) }));
  send(res, 200, { req_id: id });
}

function commonFields({ quota, retention, label, ...fields }: z.output<typeof requestChange>) {
  const { notify_on_first_file: notifyOnFirstFile, notify_on_last_file: notifyOnLastFile } = fields;
  return { quota, retention, label, notifyOnFirstFile, notifyOnLastFile };
}

const contractNames = new Map([
  ['pattern', 'patterns'],
  ['notifyOnFirstFile', 'notify_on_first_file'],
  ['notifyOnLastFile', 'notify_on_last_file'],
  ['idempotencyKey', 'Idempotency-Key'],
]);

/**
 * Calls `work`. If `work` throws an error about an input field, replaces the field's name with its name in the REST
 * contract.
 * @throws HttpError 422 if the client sent an idempotency key again with another input
 */
async function withContractNames<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const name = error instanceof InvalidInputError ? contractNames.get(error.field) : undefined;
    if (!(error instanceof InvalidInputError) || name === undefined) throw error;
    const renamed = new InvalidInputError(name, error.problem);
    throw error instanceof ReusedKeyError ? new HttpError(422, renamed.message) : renamed;
  }
}
