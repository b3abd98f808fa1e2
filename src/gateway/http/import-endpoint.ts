/**
 * Implements the import endpoint, to which operators send catalogue rows as CSV or JSON Lines, optionally gzipped. If
 * an import fails, or the client disconnects before the response, the catalogue stays unchanged. The option skipInvalid
 * skips rows whose paths cannot be restored to a disk. The option complete names a prefix, and withdraws the files
 * below the prefix that have no row in the import. The option maxWithdrawn limits the percentage of files below the
 * prefix that an import can withdraw (default 5).
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import type { Logger } from 'pino';
import { codeOf, InvalidInputError, logFailure, quote, UnavailableError, UserError } from '../../core/errors.js';
import { type Complete, readComplete } from '../../domain/catalogue/withdrawals.js';
import type { Context } from '../../domain/context.js';
import { importRows } from '../../domain/import/import.js';
import type { ImportResult } from '../../domain/import/import-incoming.js';
import { ImportError } from '../../domain/import/import-lines.js';
import { readRows } from '../../domain/import/import-rows.js';
import { may } from '../../domain/policy.js';
import { checkMethod, HttpError } from './http-body.js';
import { answerOf } from './http-errors.js';

export const IMPORT_PATH = '/import';

/**
 * Returns whether a request is an import. The total time to receive an import's body is not limited, and the body is
 * read only after authentication.
 */
export function isImport({ url = '' }: IncomingMessage): boolean {
  return url === IMPORT_PATH || url.startsWith(`${IMPORT_PATH}?`);
}

interface Import {
  caller: string;
  since: string;
}

export function createImportHandler(contextOf: (req: IncomingMessage) => Context, log: Logger) {
  const slot: { current?: Import | undefined } = {};
  return async (req: IncomingMessage, res: ServerResponse): Promise<void> => {
    const disconnected = new AbortController();
    res.once('close', () => disconnected.abort(new Error('the client has disconnected')));
    try {
      answer(res, {
        status: 200,
        body: await runImport(contextOf(req), { req, res, slot, disconnected: disconnected.signal }),
      });
    } catch (error) {
      if (disconnected.signal.aborted || hasDisconnected(req, error)) return;
      if (isFailure(error)) logFailure(log, error, 'import failed');
      answer(res, describeError(error));
    }
    await discardRest(req);
    res.end();
  };
}

/**
 * Returns whether the client disconnected while sending the body. The request object reports a disconnect before the
 * response object does.
 */
const hasDisconnected = (req: IncomingMessage, error: unknown) => req.destroyed && codeOf(error) === 'ECONNRESET';

interface ImportCall {
  req: IncomingMessage;
  res: ServerResponse;
  /**
   * The running import. Imports run one after another, because concurrent import transactions would wait for each
   * other.
   */
  slot: { current?: Import | undefined };
  disconnected: AbortSignal;
}

async function runImport(ctx: Context, { req, res, slot, disconnected }: ImportCall): Promise<ImportResult> {
  checkRequest(req);
  // if the caller is not allowed to import, `importRows` rejects the request and records the rejection in the audit log
  if (!may(ctx.caller, 'importRows')) return await importRows(ctx, []);
  const importing = readQuery(req);
  if (slot.current) {
    const { caller, since } = slot.current;
    throw new UnavailableError('busy', `another import by ${quote(caller)} has been running since ${since}Z`);
  }
  slot.current = { caller: ctx.caller.name, since: ctx.now() };
  try {
    if (req.headers.expect !== undefined) res.writeContinue();
    const body = Readable.from(readBody(req, ctx.config.readerSeconds), { objectMode: false });
    return await importRows(ctx, readRows(body), { wanted: disconnected, ...importing });
  } finally {
    slot.current = undefined;
  }
}

function readQuery({ url = '' }: IncomingMessage): { complete?: Complete; isDryRun: boolean; skipInvalid: boolean } {
  const query = new URL(url, 'http://gateway').searchParams;
  for (const name of query.keys()) {
    if (!['complete', 'maxWithdrawn', 'dryRun', 'skipInvalid'].includes(name)) {
      const known = 'complete, maxWithdrawn, dryRun, skipInvalid';
      throw new InvalidInputError(name, `is not a parameter of an import; the parameters are ${known}`);
    }
    if (query.getAll(name).length > 1) throw new InvalidInputError(name, 'must be given once');
  }
  const [directory, most] = [query.get('complete'), query.get('maxWithdrawn')];
  const readFlag = (name: string) => {
    const given = query.get(name) ?? 'false';
    if (given === 'true' || given === 'false') return given === 'true';
    throw new InvalidInputError(name, `must be true or false, not ${quote(given)}`);
  };
  const flags = { isDryRun: readFlag('dryRun'), skipInvalid: readFlag('skipInvalid') };
  if (most !== null && directory === null) {
    throw new InvalidInputError('maxWithdrawn', 'requires "complete"');
  }
  if (most !== null && !/^\d{1,3}$/.test(most)) {
    throw new InvalidInputError('maxWithdrawn', `must be a percentage from 0 to 100, not ${quote(most)}`);
  }
  if (directory === null) return flags;
  return { ...flags, complete: readComplete({ directory, mostPercent: most === null ? undefined : Number(most) }) };
}

/** @throws HttpError 405 if the method is not PUT; 415 if the content encoding is not supported */
function checkRequest(req: IncomingMessage): void {
  checkMethod(req, ['PUT']);
  const encoding = req.headers['content-encoding'] ?? 'identity';
  // accept a header that does not match the body, because the body's first bytes show whether it is gzipped
  if (['identity', 'gzip'].includes(encoding.toLowerCase())) return;
  throw new HttpError(415, `Content-Encoding must be gzip or absent, not ${quote(encoding)}`);
}

/**
 * Reads a request's body. If the caller stops before the end of the body, keeps the connection open for the response.
 */
async function* readBody(req: IncomingMessage, seconds: number): AsyncGenerator<Buffer> {
  const chunks = req.iterator({ destroyOnReturn: false }) as AsyncIterator<Buffer>;
  for (;;) {
    // the timeout covers only the wait for data from the client, not the time in which the database stores the data
    const timeout = setTimeout(
      () => req.destroy(new Error(`the client has sent no data for ${seconds} s`)),
      seconds * 1000,
    );
    const next = await chunks.next().finally(() => clearTimeout(timeout));
    if (next.done) return;
    yield next.value;
  }
}

function isFailure(error: unknown): boolean {
  return !(error instanceof ImportError || error instanceof UserError || error instanceof HttpError);
}

interface ImportAnswer {
  status: number;
  headers?: Record<string, string>;
  body: object;
}

function describeError(error: unknown): ImportAnswer {
  if (error instanceof ImportError) return { status: 400, body: { error: error.message, faults: error.faults } };
  const { status, headers, message } = answerOf(error);
  return { status, headers, body: { error: message } };
}

/**
 * Sends the response, but does not end it, because the client might lose the response if the connection closed while
 * the client is still sending.
 */
function answer(res: ServerResponse, { status, headers = {}, body }: ImportAnswer): void {
  const text = Buffer.from(JSON.stringify(body));
  const own = { 'Content-Type': 'application/json', 'Content-Length': text.length, Connection: 'close' };
  res.writeHead(status, { ...headers, ...own });
  res.write(text);
}

/**
 * Limits on reading the rest of a rejected body, in bytes and milliseconds. Afterwards, the gateway closes the
 * connection.
 */
const DISCARD = { bytes: 512 * 1024 * 1024, ms: 30_000 };

async function discardRest(req: IncomingMessage): Promise<void> {
  const timeout = setTimeout(() => req.destroy(), DISCARD.ms);
  let bytes = 0;
  try {
    for await (const chunk of req.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > DISCARD.bytes) break;
    }
  } catch {
    // ignore the error: the client disconnected, or the time limit was reached
  } finally {
    clearTimeout(timeout);
  }
}
