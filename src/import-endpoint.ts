/**
 * `PUT /import`: rows of the catalogue from a file as it is, CSV or JSON Lines, plain or gzipped, for operators. It is read as it
 * comes and taken over whole or not at all; who goes away before the answer leaves nothing. The answer is a JSON object: the
 * counts, or `error`, with `faults` where rows are at fault. With `?complete=/folder/` what the rows do not have below the folder is withdrawn,
 * at most `maxWithdrawn` percent of it (5); `dryRun=true` says what would be done.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import type { Logger } from 'pino';
import { answerOf } from '../rest/respond.js';
import type { Context } from './context.js';
import { codeOf, InvalidInputError, logFailure, quote, UnavailableError, UserError } from './errors.js';
import { HttpError } from './http-body.js';
import { importRows } from './operations/catalogue/import.js';
import { ImportError } from './operations/catalogue/import-faults.js';
import type { ImportResult } from './operations/catalogue/import-incoming.js';
import { readRows } from './operations/catalogue/import-rows.js';
import { type Complete, readComplete } from './operations/catalogue/unlisted.js';
import { may } from './operations/policy.js';

export const IMPORT_PATH = '/import';

/** Is it for this endpoint? Such a body may take as long as it goes on, and is asked for once its sender is known. */
export function isImport({ url = '' }: IncomingMessage): boolean {
  return url === IMPORT_PATH || url.startsWith(`${IMPORT_PATH}?`);
}

interface Import {
  caller: string;
  since: string;
}

/** @param contextOf gives the context in which a request is served */
export function createImportHandler(contextOf: (req: IncomingMessage) => Context, log: Logger) {
  const turn: { taken?: Import | undefined } = {};
  return async (req: IncomingMessage, res: ServerResponse): Promise<void> => {
    const gone = new AbortController();
    res.once('close', () => gone.abort(new Error('who has sent the rows has gone')));
    try {
      answer(res, { status: 200, body: await takeImport(contextOf(req), { req, res, turn, gone: gone.signal }) });
    } catch (error) {
      if (gone.signal.aborted || hasLeft(req, error)) return;
      if (isFailure(error)) logFailure(log, error, 'an import fails');
      answer(res, describeError(error));
    }
    await readRest(req);
    res.end();
  };
}

/** Its connection has ended in the middle, which is seen here before the answer's end is told. */
const hasLeft = (req: IncomingMessage, error: unknown) => req.destroyed && codeOf(error) === 'ECONNRESET';

interface Exchange {
  req: IncomingMessage;
  res: ServerResponse;
  /** One import at a time: each has a connection to the database of its own, and their changes wait for each other anyway. */
  turn: { taken?: Import | undefined };
  /** Aborts when the sender has gone. */
  gone: AbortSignal;
}

async function takeImport(ctx: Context, { req, res, turn, gone }: Exchange): Promise<ImportResult> {
  checkRequest(req);
  if (!may(ctx.caller, 'importRows')) return await importRows(ctx, []); // it refuses, and notes that, before anything is sent
  const importing = readQuery(req);
  if (turn.taken) {
    const { caller, since } = turn.taken;
    throw new UnavailableError('busy', `another import is under way, of ${quote(caller)}, since ${since}Z`);
  }
  turn.taken = { caller: ctx.caller.name, since: ctx.now() };
  try {
    if (req.headers.expect !== undefined) res.writeContinue(); // its sender is known
    const body = Readable.from(readBody(req, ctx.config.readerSeconds), { objectMode: false });
    return await importRows(ctx, readRows(body), { wanted: gone, ...importing });
  } finally {
    turn.taken = undefined;
  }
}

/** What may be asked for beside the rows. @throws InvalidInputError */
function readQuery({ url = '' }: IncomingMessage): { complete?: Complete; isDryRun: boolean } {
  const query = new URL(url, 'http://gateway').searchParams;
  const given = new Map<string, string>();
  for (const [name, value] of query) {
    if (!['complete', 'maxWithdrawn', 'dryRun'].includes(name)) {
      throw new InvalidInputError(name, 'is nothing that an import takes: there are complete, maxWithdrawn, dryRun');
    }
    if (given.has(name)) throw new InvalidInputError(name, 'must be given once');
    given.set(name, value);
  }
  const [folder, most, dryRun = 'false'] = ['complete', 'maxWithdrawn', 'dryRun'].map((name) => given.get(name));
  if (dryRun !== 'true' && dryRun !== 'false') {
    throw new InvalidInputError('dryRun', `must be true or false, not ${quote(dryRun)}`);
  }
  const isDryRun = dryRun === 'true';
  if (folder === undefined) {
    if (most !== undefined) throw new InvalidInputError('maxWithdrawn', 'is for an import that is complete');
    return { isDryRun };
  }
  if (most !== undefined && !/^\d{1,3}$/.test(most)) {
    throw new InvalidInputError('maxWithdrawn', `must be from 0 to 100, in percent, not ${quote(most)}`);
  }
  return { isDryRun, complete: readComplete({ folder, mostPercent: most === undefined ? undefined : Number(most) }) };
}

/** @throws HttpError 405, 415 */
function checkRequest(req: IncomingMessage): void {
  if (req.method !== 'PUT') throw new HttpError(405, `${req.method} is not allowed here, only PUT`, { Allow: 'PUT' });
  const encoding = req.headers['content-encoding'] ?? 'identity';
  if (['identity', 'gzip'].includes(encoding.toLowerCase())) return; // the bytes themselves say which
  throw new HttpError(415, `Content-Encoding must be gzip, or left out, not ${quote(encoding)}`);
}

/** What is read of it leaves the connection as it is, also where it is not read to its end: the answer goes there. */
async function* readBody(req: IncomingMessage, seconds: number): AsyncGenerator<Buffer> {
  const chunks = req.iterator({ destroyOnReturn: false }) as AsyncIterator<Buffer>;
  for (;;) {
    // only while it is waited for: the database may be what is slow
    const patience = setTimeout(() => req.destroy(new Error(`nothing came for ${seconds} s`)), seconds * 1000);
    const next = await chunks.next().finally(() => clearTimeout(patience));
    if (next.done) return;
    yield next.value;
  }
}

/** Neither of the rows nor of the request. */
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

/** All of it but the end of the exchange: a connection that is closed while its sender sends would take the answer along. */
function answer(res: ServerResponse, { status, headers = {}, body }: ImportAnswer): void {
  const text = Buffer.from(JSON.stringify(body));
  const own = { 'Content-Type': 'application/json', 'Content-Length': text.length, Connection: 'close' };
  res.writeHead(status, { ...headers, ...own });
  res.write(text);
}

/** So much is read of a body that is refused, and for so long, before the connection is cut. */
const REST = { bytes: 512 * 1024 * 1024, ms: 30_000 };

async function readRest(req: IncomingMessage): Promise<void> {
  const patience = setTimeout(() => req.destroy(), REST.ms);
  let bytes = 0;
  try {
    for await (const chunk of req.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > REST.bytes) break;
    }
  } catch {
    // it has its answer, and has gone
  } finally {
    clearTimeout(patience);
  }
}
