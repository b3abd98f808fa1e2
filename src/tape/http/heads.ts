/** Heads of answers of HTTP/1.1 (RFC 9112). Pure. */
import type { IncomingHttpHeaders } from 'node:http';

export interface Head {
  statusCode: number;
  statusMessage: string;
  /** By names in small letters; of several with a name the first, where a second one makes no sense, else all of them, joined. */
  headers: IncomingHttpHeaders;
  /** Bytes of the body; undefined where only its end tells. */
  length: number | undefined;
  /** The connection can be used again after the body. */
  isKept: boolean;
}

const STATUS = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: (.*))?$/;
const FIELD = /^([!#$%&'*+.^_`|~\dA-Za-z-]+):[ \t]*(.*?)[ \t]*$/;
const SINGLE = ['content-length', 'content-range', 'content-type', 'etag', 'location', 'retry-after'];

/** @param text without the empty line at its end @throws Error where it is no such head */
export function parseHead(text: string): Head {
  const [first = '', ...lines] = text.split('\r\n');
  const [, minor, status, statusMessage = ''] = STATUS.exec(first) ?? [];
  if (status === undefined) throw new Error(`it answers ${JSON.stringify(first.slice(0, 100))}, which is not HTTP`);
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const [, name = '', value = ''] = FIELD.exec(line) ?? [];
    if (name === '') throw new Error(`it answers with the header ${JSON.stringify(line.slice(0, 100))}, which is none`);
    const key = name.toLowerCase();
    const before = headers[key];
    if (key === 'content-length' && before !== undefined && before !== value) {
      throw new Error(`it answers with two lengths, ${before} and ${value}`);
    }
    if (before === undefined) headers[key] = value;
    else if (!SINGLE.includes(key)) headers[key] = `${before}, ${value}`;
  }
  const statusCode = Number(status);
  const isKept = minor === '1' && !/\bclose\b/i.test(headers.connection ?? '');
  return { statusCode, statusMessage, headers, length: lengthOf(statusCode, headers), isKept };
}

function lengthOf(status: number, headers: Readonly<Record<string, string>>): number | undefined {
  if (status === 204 || status === 304) return 0;
  const { 'content-length': length = '', 'transfer-encoding': encoding } = headers;
  if (encoding !== undefined || !/^\d{1,15}$/.test(length)) return undefined;
  return Number(length);
}
