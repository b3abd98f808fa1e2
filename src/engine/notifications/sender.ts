/**
 * Sends webhook messages as the Standard Webhooks specification requires. Messages are sent concurrently, so that a
 * slow webhook does not delay other webhooks.
 */
import { createHmac } from 'node:crypto';
import { type LookupAddress, lookup as lookUp } from 'node:dns';
import { readFileSync } from 'node:fs';
import { request as httpRequest, type RequestOptions } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import path from 'node:path';
import { startDeadline } from '../../core/deadline.js';
import { codeOf, logFailure, messageOf } from '../../core/errors.js';
import { createTargets, findTargetProblem, hostOf, type WebhookTargets } from '../../core/net/webhook-targets.js';
import { packageRoot } from '../../core/package-root.js';
import { count } from '../../core/signals.js';
import { secondsOf } from '../../core/time.js';
import type { Context } from '../../domain/context.js';
import {
  type ClaimedMessage,
  claimMessage,
  recordMessage,
  WEBHOOK_SECONDS,
  type WebhookResult,
} from '../../domain/notifications/webhooks/outbox.js';
import { confirmOwned } from '../../restore-area/ownership.js';

const AT_ONCE = 16;
const AT_ONCE_OF_QUOTA = 4;

interface SenderOptions {
  stop: AbortSignal;
  abort: AbortSignal;
}

export class WebhookSender {
  private readonly ctx: Context;
  private readonly options: SenderOptions;
  private readonly targets: WebhookTargets;
  private readonly userAgent: string;
  private readonly workers = new Set<Promise<void>>();
  private readonly active = new Map<number, number>();

  constructor(ctx: Context, options: SenderOptions) {
    this.ctx = ctx;
    this.options = options;
    this.targets = createTargets(ctx.config.webhookHosts);
    const { version } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8'));
    this.userAgent = `Tapegate/${version}`;
  }

  /** Starts to send due messages, and does not wait until the messages are sent. */
  async run(): Promise<void> {
    while (!this.options.stop.aborted && this.workers.size < AT_ONCE) {
      const message = await this.claim();
      if (!message) return;
      const worker = this.work(message).finally(() => this.workers.delete(worker));
      this.workers.add(worker);
    }
  }

  private async work(first: ClaimedMessage): Promise<void> {
    const { ctx, options } = this;
    try {
      for (let next: ClaimedMessage | undefined = first; next; next = await this.claim()) {
        await this.send(next).finally(() => this.count(next, -1));
        if (options.stop.aborted) return;
      }
    } catch (error) {
      logFailure(ctx.log, error, 'webhook');
    }
  }

  private async claim(): Promise<ClaimedMessage | undefined> {
    await confirmOwned(this.ctx);
    const busy = [...this.active].flatMap(([quotaId, count]) => (count >= AT_ONCE_OF_QUOTA ? quotaId : []));
    const message = await claimMessage(this.ctx, busy);
    if (message) this.count(message, 1);
    return message;
  }

  private count({ quotaId }: ClaimedMessage, more: number): void {
    if (quotaId === null) return;
    const count = (this.active.get(quotaId) ?? 0) + more;
    if (count > 0) this.active.set(quotaId, count);
    else this.active.delete(quotaId);
  }

  get ended(): Promise<unknown> {
    return Promise.all(this.workers);
  }

  private async send(message: ClaimedMessage): Promise<void> {
    await confirmOwned(this.ctx);
    const deadline = startDeadline(WEBHOOK_SECONDS * 1000, this.options.abort);
    try {
      const { signal } = deadline;
      const now = Math.floor(secondsOf(this.ctx.now()));
      const result = await postMessage(message, { targets: this.targets, signal, now, userAgent: this.userAgent });
      if (result.state !== 'LEFT') count('tapegate_webhooks_total', { result: result.state.toLowerCase() });
      await recordMessage(this.ctx, message, result);
    } finally {
      deadline.end();
    }
  }
}

interface OutgoingMessage {
  url: string;
  messageId: string;
  body: string;
  /** The webhook's signing secrets, each in the form `whsec_` followed by base64. */
  secrets: readonly string[];
}

interface PostOptions {
  targets: WebhookTargets;
  signal: AbortSignal;
  /** Current time, in Unix seconds. */
  now: number;
  userAgent: string;
  resolve?: (host: string) => Promise<LookupAddress[]>;
}

function sign({ messageId, body, secrets }: Omit<OutgoingMessage, 'url'>, timestamp: number): string {
  const signed = `${messageId}.${timestamp}.${body}`;
  const keys = secrets.map((secret) => Buffer.from(secret.replace(/^whsec_/, ''), 'base64'));
  return keys.map((key) => `v1,${createHmac('sha256', key).update(signed).digest('base64')}`).join(' ');
}

export async function postMessage(message: OutgoingMessage, options: PostOptions): Promise<WebhookResult> {
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

interface WebhookResponse {
  status: number;
  retryAfter: string | undefined;
}

function judge({ status, retryAfter }: WebhookResponse): WebhookResult {
  if (status >= 200 && status < 300) return { state: 'SENT' };
  if (status === 410) return { state: 'GONE', error: 'the receiver answered 410 (Gone)' };
  if (status >= 300 && status < 400)
    return { state: 'FAILED', error: `the receiver answered ${status}; redirects are not followed` };
  const seconds = /^\d{1,9}$/.test(retryAfter ?? '') ? Number(retryAfter) : undefined;
  return { state: 'FAILED', error: `the receiver answered ${status}`, retryAfter: seconds };
}

function call(
  message: OutgoingMessage,
  { targets, signal, now, userAgent, resolve }: PostOptions,
): Promise<WebhookResponse> {
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
      answer.on('error', () => {}).destroy();
      done({ status, retryAfter: headers['retry-after'] });
    });
    request.once('error', fail);
    request.end(body);
  });
}

const resolveAll = (host: string): Promise<LookupAddress[]> =>
  new Promise((done, fail) => lookUp(host, { all: true }, (error, found) => (error ? fail(error) : done(found))));

/**
 * Resolves a host name only once, to prevent DNS rebinding, and connects only to those resolved addresses that are
 * allowed.
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

const isUnknown = (error: unknown): boolean => ['ENOTFOUND', 'ENODATA'].includes(codeOf(error) ?? '');

/** Thrown for both unknown host names and private addresses, so that users cannot discover internal host names. */
class ClosedTargetError extends Error {
  constructor(name: string) {
    super(
      `${JSON.stringify(name)} has no address that webhooks may use: the name does not resolve, or resolves only to private addresses that TAPEGATE_WEBHOOK_HOSTS does not contain`,
    );
  }
}
