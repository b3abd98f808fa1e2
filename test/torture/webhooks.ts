/** A receiver of webhooks that goes away and comes back, refuses at times, and keeps what it has been told. */
import type { Context } from '../../src/context.js';
import { createWebhook } from '../../src/operations/webhooks/webhooks.js';
import { isSigned, startReceiver, type WebhookReceiver } from '../support/webhook-receiver.js';
import type { Query } from './facts.js';
import type { Random } from './random.js';

/** What it was told, in order; what came twice is there twice. */
export interface ToldMessage {
  /** Of the webhook that it was sent by, by the path of its URL. */
  webhookId: number;
  messageId: string;
  body: string;
  isSigned: boolean;
}

export interface MoodyHooks {
  /** Of its own host, with a port. */
  url: string;
  told: ToldMessage[];
  /** Secrets by the ids of webhooks. */
  secrets: Map<number, string>;
  /** Of the answers, how many are refusals, and how many messages are taken without an answer. */
  mood: { refusals: number; lostAnswers: number };
  goAway(): Promise<void>;
  /** Does nothing when it is there. */
  comeBack(): Promise<void>;
}

const REFUSALS = [301, 404, 429, 500, 503];

export async function startHooks(random: Random): Promise<MoodyHooks> {
  const told: ToldMessage[] = [];
  const secrets = new Map<number, string>();
  const mood = { refusals: 0, lostAnswers: 0 };
  const listen = async (port?: number): Promise<WebhookReceiver> => {
    const receiver = await startReceiver(undefined, port);
    receiver.answer = (message, response) => {
      if (random.chance(mood.refusals)) return void response.writeHead(random.pick(REFUSALS)).end();
      const webhookId = Number(message.path.slice(1));
      const signed = isSigned(message, secrets.get(webhookId) ?? '');
      told.push({ webhookId, messageId: message.id, body: message.body, isSigned: signed });
      if (random.chance(mood.lostAnswers)) response.destroy();
      else response.writeHead(204).end();
    };
    return receiver;
  };
  let receiver: WebhookReceiver | undefined = await listen();
  const { url } = receiver;
  let last = Promise.resolve();
  const inTurn = (work: () => Promise<void>) => {
    last = last.then(work, work);
    return last;
  };
  return {
    url,
    told,
    secrets,
    mood,
    goAway: () =>
      inTurn(async () => {
        await receiver?.close();
        receiver = undefined;
      }),
    comeBack: () =>
      inTurn(async () => {
        receiver ??= await listen(Number(new URL(url).port));
      }),
  };
}

/** Before there is a request: one that is told of all, and one of a user. */
export async function addHooks(ctx: Context, hooks: MoodyHooks, user: string): Promise<void> {
  for (const quota of [undefined, user]) {
    const id = hooks.secrets.size + 1; // they are the first that there are
    const { secret, webhook } = await createWebhook(ctx, { quota, url: `${hooks.url}/${id}` });
    if (webhook.id !== id) throw new Error(`webhook ${webhook.id} was to be ${id}`);
    hooks.secrets.set(id, secret);
  }
}

export interface WebhookFact {
  id: number;
  /** Null: of all. */
  user: string | null;
  isOff: boolean;
}

export interface MessageFact {
  webhookId: number;
  messageId: string;
  type: string;
  requestId: number | null;
  body: string;
  state: string;
}

export interface WebhookFacts {
  webhooks: WebhookFact[];
  /** In the order in which they were written. */
  messages: MessageFact[];
}

export async function readWebhooks(query: Query): Promise<WebhookFacts> {
  return {
    webhooks: await query(
      `SELECT w.id, q."user", w.disabled_at IS NOT NULL AS "isOff" FROM webhook w LEFT JOIN quota q ON q.id = w.quota_id ORDER BY w.id`,
    ),
    messages: await query(
      `SELECT webhook_id AS "webhookId", message_id AS "messageId", type, request_id AS "requestId", body, state FROM webhook_message ORDER BY id`,
    ),
  };
}
