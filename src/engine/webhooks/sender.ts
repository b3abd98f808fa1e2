/** Sends what webhooks are to be told, to several at a time, so that a slow one keeps no other waiting. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Context } from '../../context.js';
import { startDeadline } from '../../deadline.js';
import { logFailure } from '../../errors.js';
import { type ClaimedMessage, claimMessage, noteMessage, WEBHOOK_SECONDS } from '../../operations/webhooks/outbox.js';
import { packageRoot } from '../../package-root.js';
import { count } from '../../signals.js';
import { secondsOf } from '../../time.js';
import { createTargets, type WebhookTargets } from '../../webhook-targets.js';
import { postMessage } from './post.js';

/** Webhooks that are sent to at the same time, and those of one quota: whoever has slow ones keeps nobody else waiting. */
const AT_ONCE = 16;
const AT_ONCE_OF_QUOTA = 4;

interface SenderOptions {
  /** No further message after this. */
  stop: AbortSignal;
  /** Those in hand are given up after this. */
  abort: AbortSignal;
}

export class WebhookSender {
  private readonly ctx: Context;
  private readonly options: SenderOptions;
  private readonly targets: WebhookTargets;
  private readonly userAgent: string;
  private readonly workers = new Set<Promise<void>>();
  /** How many of a quota are in hand. */
  private readonly inHand = new Map<number, number>();

  constructor(ctx: Context, options: SenderOptions) {
    this.ctx = ctx;
    this.options = options;
    this.targets = createTargets(ctx.config.webhookHosts);
    const { version } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8'));
    this.userAgent = `Tapegate/${version}`;
  }

  /** Begins to send what is due; what comes of it is not waited for. */
  async run(): Promise<void> {
    while (!this.options.stop.aborted && this.workers.size < AT_ONCE) {
      const message = await this.claim();
      if (!message) return;
      const worker = this.work(message).finally(() => this.workers.delete(worker));
      this.workers.add(worker);
    }
  }

  /** Sends one after the other, of whichever webhook, until none is due. */
  private async work(first: ClaimedMessage): Promise<void> {
    const { ctx, options } = this;
    try {
      for (let next: ClaimedMessage | undefined = first; next; next = await this.claim()) {
        await this.send(next).finally(() => this.count(next, -1));
        if (options.stop.aborted) return;
      }
    } catch (error) {
      logFailure(ctx.log, error, 'webhook'); // what was claimed is due again when its claim has run out
    }
  }

  private async claim(): Promise<ClaimedMessage | undefined> {
    const busy = [...this.inHand].flatMap(([quotaId, count]) => (count >= AT_ONCE_OF_QUOTA ? quotaId : []));
    const message = await claimMessage(this.ctx, busy);
    if (message) this.count(message, 1);
    return message;
  }

  private count({ quotaId }: ClaimedMessage, more: number): void {
    if (quotaId === null) return;
    const count = (this.inHand.get(quotaId) ?? 0) + more;
    if (count > 0) this.inHand.set(quotaId, count);
    else this.inHand.delete(quotaId);
  }

  /** Once all in hand have come to their end. */
  get ended(): Promise<unknown> {
    return Promise.all(this.workers);
  }

  private async send(message: ClaimedMessage): Promise<void> {
    const deadline = startDeadline(WEBHOOK_SECONDS * 1000, this.options.abort);
    try {
      const { signal } = deadline;
      const now = Math.floor(secondsOf(this.ctx.now()));
      const result = await postMessage(message, { targets: this.targets, signal, now, userAgent: this.userAgent });
      if (result.state !== 'LEFT') count('tapegate_webhooks_total', { result: result.state.toLowerCase() });
      await noteMessage(this.ctx, message, result);
    } finally {
      deadline.end();
    }
  }
}
