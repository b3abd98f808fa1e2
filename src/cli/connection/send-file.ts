/** Uploads a file to a gateway as a stream. */
import { once } from 'node:events';
import type { ClientRequest, IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { text as readText } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { CommandError, ConnectionError, formatNetworkError } from '../terminal/failure.js';
import { environment } from '../terminal/io.js';
import { readCredentialHeaders, UNCONFIRMED } from './gateway-client.js';

/**
 * Time in milliseconds after which the upload begins without the response `100 Continue`, because some proxies never
 * send this response.
 */
const CONTINUE_MS = 1000;

/**
 * Uploads a stream with PUT, and returns the server's answer.
 * @param sent `url` is the server's URL, for error messages and credentials; `size` is the stream's size in bytes, if
 * known
 * @throws CommandError with a one-line message; errors from reading the source
 */
export async function sendFile<Answer>(
  target: string,
  { url, source, size }: { url: string; source: Readable; size: number | undefined },
): Promise<Answer> {
  const { request } = await import(target.startsWith('https:') ? 'node:https' : 'node:http');
  const headers = {
    ...(await readCredentialHeaders(url, environment())),
    ...(size === undefined ? {} : { 'Content-Length': size }),
    'Content-Type': 'application/octet-stream',
    Expect: '100-continue',
  };
  const req: ClientRequest = request(target, { method: 'PUT', headers });
  const answered = once(req, 'response').then(([response]) => response as IncomingMessage);
  const mayBegin = Promise.race([once(req, 'continue'), sleep(CONTINUE_MS, undefined, { ref: false })]);
  const send = async () => {
    await pipeline(source, req);
    return await answered;
  };
  try {
    // read the answer at any time, because the server might answer before the upload is complete, or even before it
    // begins
    const early = await Promise.race([answered, mayBegin.then(() => undefined)]);
    return await readAnswer<Answer>(url, early ?? (await Promise.race([answered, send()])));
  } catch (error) {
    if (error instanceof CommandError) throw error;
    if (source.errored) throw source.errored;
    const problem = formatNetworkError(url, error);
    // report a possible change only after a complete upload, because the server discards an incomplete upload
    throw req.writableFinished ? new CommandError(`${problem}: ${UNCONFIRMED}`) : new ConnectionError(problem);
  } finally {
    req.destroy();
    source.destroy();
  }
}

async function readAnswer<Answer>(url: string, response: IncomingMessage): Promise<Answer> {
  const { statusCode = 0 } = response;
  const text = await readText(response);
  const body = parseObject(text);
  if (statusCode === 200 && body) return body as Answer;
  const message = typeof body?.error === 'string' ? body.error : `${url} responds with status ${statusCode}`;
  throw statusCode === 503 ? new ConnectionError(message) : new CommandError(message);
}

function parseObject(text: string): { error?: unknown } | undefined {
  try {
    const body = JSON.parse(text);
    return typeof body === 'object' && body !== null ? body : undefined;
  } catch {
    return undefined;
  }
}
