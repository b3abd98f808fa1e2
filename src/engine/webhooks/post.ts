/** A message of a webhook goes out: signed as the Standard Webhooks specification says, and to no address that it may not go to. */
import { createHmac } from 'node:crypto';
import { type LookupAddress, lookup as lookUp } from 'node:dns';
import { request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import { codeOf, messageOf } from '../../errors.js';
import type { WebhookResult } from '../../operations/webhooks/outbox.js';
import { findTargetProblem, hostOf, type WebhookTargets } from '../../webhook-targets.js';

export interface Posted {
  url: string;
  messageId: string;
  body: string;
  /** As they are written: `whsec_` and base64. */
  secrets: readonly string[];
}

export interface PostOptions {
  targets: WebhookTargets;
  /** Ends the call. */
  signal: AbortSignal;
  /** In seconds since 1970, of this try. */
  now: number;
  userAgent: string;
  /** For tests: a site asks its resolver. */
  resolve?: (host: string) => Promise<LookupAddress[]>;
}

/** @returns `v1` and the signature, for each secret */
export function sign({ messageId, body, secrets }: Omit<Posted, 'url'>, timestamp: number): string {
  const signed = `${messageId}.${timestamp}.${body}`;
  const keys = secrets.map((secret) => Buffer.from(secret.replace(/^whsec_/, ''), 'base64'));
  return keys.map((key) => `v1,${createHmac('sha256', key).update(signed).digest('base64')}`).join(' ');
}

/** Bytes of an answer, and milliseconds, that are taken off the line; none of it is read, waited for, or told to anybody. */
const MOST_ANSWER = 64 * 1024;
const ANSWER_MS = 1000;

/** Calls once. It does not throw. */
export async function postMessage(message: Posted, options: PostOptions): Promise<WebhookResult> {
  const problem = findTargetProblem(message.url, options.targets);
  if (problem) return { state: 'FAILED', error: `its URL ${problem}` };
  try {
    return judge(await call(message, options));
  } catch (error) {
    if (options.signal.aborted && (options.signal.reason as Error | undefined)?.name !== 'TimeoutError')
      return { state: 'LEFT' };
    const reason = options.signal.aborted ? messageOf(options.signal.reason) : messageOf(error);
    const code = codeOf(error);
    return { state: 'FAILED', error: code && !reason.includes(code) ? `${code}: ${reason}` : reason };
  }
}

interface Answer {
  status: number;
  retryAfter: string | undefined;
}

function judge({ status, retryAfter }: Answer): WebhookResult {
  if (status >= 200 && status < 300) return { state: 'SENT' };
  if (status === 410) return { state: 'GONE', error: 'the receiver answers 410: it wants no more' };
  if (status >= 300 && status < 400)
    return { state: 'FAILED', error: `the receiver answers ${status}, and redirects are not followed` };
  const seconds = /^\d{1,9}$/.test(retryAfter ?? '') ? Number(retryAfter) : undefined;
  return { state: 'FAILED', error: `the receiver answers ${status}`, retryAfter: seconds };
}

function call(message: Posted, { targets, signal, now, userAgent, resolve }: PostOptions): Promise<Answer> {
  const url = new URL(message.url);
  const body = Buffer.from(message.body);
  const options: RequestOptions = {
    method: 'POST',
    signal,
    agent: false,
    lookup: guardLookup(hostOf(url), targets, resolve ?? resolveAll),
    headers: {
      'Content-Type': 'application/json',
      'Content-Length': body.length,
      'User-Agent': userAgent,
      'webhook-id': message.messageId,
      'webhook-timestamp': String(now),
      'webhook-signature': sign(message, now),
    },
  };
  return new Promise((done, fail) => {
    const send = url.protocol === 'https:' ? httpsRequest : httpRequest;
    const request = send(url, options, (answer) => {
      const { statusCode: status = 0, headers } = answer;
      drain(answer);
      done({ status, retryAfter: headers['retry-after'] });
    });
    request.once('error', fail);
    request.end(body);
  });
}

function drain(answer: IncomingMessage): void {
  const timer = setTimeout(() => answer.destroy(), ANSWER_MS).unref();
  let bytes = 0;
  answer.on('data', (piece: Buffer) => {
    bytes += piece.length;
    if (bytes > MOST_ANSWER) answer.destroy();
  });
  answer.on('error', () => {}); // its status is here already
  answer.once('close', () => clearTimeout(timer));
}

const resolveAll = (host: string): Promise<LookupAddress[]> =>
  new Promise((done, fail) => lookUp(host, { all: true }, (error, found) => (error ? fail(error) : done(found))));

/**
 * Looks a name up, once, and gives the connection those of its addresses that may be called: a name that has another address a
 * moment later leads to none that was not looked at. (A URL with an address is looked at before.)
 */
function guardLookup(
  host: string,
  targets: WebhookTargets,
  resolve: (host: string) => Promise<LookupAddress[]>,
): LookupFunction {
  return (name, { all }, callback) => {
    resolve(name).then(
      (found) => {
        const open = found.filter(({ address }) => isIP(address) !== 0 && targets.mayCall(host, address));
        const [first] = open;
        if (!first) return callback(new ClosedTargetError(name), '');
        if (all) callback(null, open);
        else callback(null, first.address, first.family);
      },
      (error) => callback(isUnknown(error) ? new ClosedTargetError(name) : error, ''),
    );
  };
}

/** As a resolver says that there is no such name, or that it has no address. */
const isUnknown = (error: unknown): boolean => ['ENOTFOUND', 'ENODATA'].includes(codeOf(error) ?? '');

/** Told to users, who are not to learn from it which names there are within the site's network: one that there is not is told alike. */
class ClosedTargetError extends Error {
  constructor(name: string) {
    super(
      `${JSON.stringify(name)} has no address that webhooks may go to: there is no such name, or it is of a private network, which the site lists (WEBHOOK_HOSTS)`,
    );
  }
}
