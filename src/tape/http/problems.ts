/** Reads the server's explanation from an error response: an RFC 7807 document, another response body, or a header. */
import { oneLine } from '../../core/errors.js';
import { LibraryError } from '../drive-library.js';
import { RetryLaterError } from '../staging.js';
import { readText } from './exchange.js';
import type { Reply } from './site-client.js';

export interface Problem {
  status: number;
  /** Error message that contains the URL, the HTTP status and the server's explanation. */
  text: string;
  /** Seconds to wait before a retry; undefined if the response does not contain a Retry-After header. */
  retryAfterSeconds: number | undefined;
}

const MAX_BYTES = 64 * 1024;
const MAX_TEXT = 500;

/** Seconds to wait before a retry if a busy server does not send a Retry-After header. */
const BUSY_SECONDS = 60;

export async function readProblem(reply: Reply, signal: AbortSignal): Promise<Problem> {
  const { response, name } = reply;
  const status = response.statusCode;
  const body = await readText(reply, MAX_BYTES).catch(() => {
    signal.throwIfAborted();
    return '';
  });
  const said = readWords(body, response.headers['content-type']) || joinWords(response.headers);
  // hide the token, because some servers repeat a rejected token in the explanation, which users can see
  const words = oneLine(hide(said || response.statusText, reply.token), MAX_TEXT).trim();
  const text = `${name} answers ${status}${words === '' ? '' : `: ${words}`}`;
  return { status, text, retryAfterSeconds: readRetryAfter(response.headers['retry-after']) };
}

const hide = (text: string, secret: string | undefined) => (secret ? text.replaceAll(secret, '…') : text);

/** Parses a Retry-After header, a number of seconds or an HTTP date. Returns seconds. */
function readRetryAfter(value: string | undefined): number | undefined {
  if (value === undefined) return undefined;
  const seconds = /^\d+$/.test(value) ? Number(value) : Math.ceil((Date.parse(value) - Date.now()) / 1000);
  return Number.isNaN(seconds) ? undefined : seconds;
}

function readWords(body: string, type: string | undefined): string | undefined {
  // ignore HTML, because an HTML page does not explain more than the status does
  if (/\bhtml\b/i.test(type ?? '')) return undefined;
  try {
    const problem: unknown = JSON.parse(body);
    return joinWords(problem as Record<string, unknown> | null);
  } catch {
    return body;
  }
}

function joinWords(problem: Record<string, unknown> | null): string | undefined {
  const parts = [problem?.title, problem?.detail].filter((part) => typeof part === 'string' && part !== '');
  return parts.length > 0 ? [...new Set(parts)].join(': ') : undefined;
}

export function toLibraryError({ status, text, retryAfterSeconds }: Problem): LibraryError {
  if (status === 429) return new RetryLaterError(text, retryAfterSeconds ?? BUSY_SECONDS);
  if (status === 503 && retryAfterSeconds !== undefined) return new RetryLaterError(text, retryAfterSeconds);
  return new LibraryError(status === 401 || status === 403 ? 'POLICY' : 'TRANSIENT', text);
}
