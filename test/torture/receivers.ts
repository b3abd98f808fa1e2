/**
 * An SMTP server and a webhook receiver that are sometimes down, reject some messages, and record accepted messages.
 */
import type { Context } from '../../src/domain/context.js';
import { createWebhook } from '../../src/domain/notifications/webhooks/webhooks.js';
import { Refusal, startMailServer } from '../support/mail-server.js';
import { isSigned, startReceiver } from '../support/webhook-receiver.js';
import type { Random } from './random.js';

export interface FaultyServer {
  url: string;
  /** Probabilities of a rejection, and of an accepted message without a response. */
  faults: { refusals: number; lostResponses: number };
  goAway(): Promise<void>;
  /** Starts the server again, if it is down. */
  comeBack(): Promise<void>;
}

export interface DeliveredMail {
  messageId: string;
  to: string;
}

export interface DeliveredMessage {
  webhookId: number;
  messageId: string;
  body: string;
  isSigned: boolean;
}

/** An SMTP server. `mails` is in order of arrival, with repeats. */
export type FaultyMail = FaultyServer & { mails: DeliveredMail[] };
export type FaultyWebhooks = FaultyServer & { messages: DeliveredMessage[]; secrets: Map<number, string> };

const SMTP_REFUSALS = [421, 450, 451, 452];
const HTTP_REFUSALS = [301, 404, 429, 500, 503];

/** @param listen starts the server. Later calls get the port of the first call. */
async function startFaulty(
  faults: FaultyServer['faults'],
  listen: (port?: number) => Promise<{ url: string; close(): Promise<void> }>,
): Promise<FaultyServer> {
  let server: Awaited<ReturnType<typeof listen>> | undefined = await listen();
  const { url } = server;
  let last = Promise.resolve();
  const inTurn = (work: () => Promise<void>) => {
    last = last.then(work, work);
    return last;
  };
  return {
    url,
    faults,
    goAway: () =>
      inTurn(async () => {
        await server?.close();
        server = undefined;
      }),
    comeBack: () =>
      inTurn(async () => {
        server ??= await listen(Number(new URL(url).port));
      }),
  };
}

export async function startMail(random: Random): Promise<FaultyMail> {
  const mails: DeliveredMail[] = [];
  const faults = { refusals: 0, lostResponses: 0 };
  const refuse = () =>
    random.chance(faults.refusals) ? new Refusal(random.pick(SMTP_REFUSALS), 'planned: not now') : undefined;
  const server = await startFaulty(faults, async (port) => {
    const smtp = await startMailServer(port, {
      onConnect: (_session, callback) => callback(refuse()),
      onMailFrom: (_address, _session, callback) => callback(refuse()),
      onRcptTo: (_address, _session, callback) => callback(refuse()),
    });
    smtp.onMail = ({ headers, to: recipients }) => {
      const refused = refuse();
      if (refused) throw refused;
      const messageId = headers.get('message-id') ?? '';
      for (const to of recipients) mails.push({ messageId, to });
      if (random.chance(faults.lostResponses)) throw new Refusal(421, 'planned: accepted, with a failing response');
    };
    return smtp;
  });
  return { ...server, mails };
}

export async function startWebhooks(random: Random): Promise<FaultyWebhooks> {
  const messages: DeliveredMessage[] = [];
  const secrets = new Map<number, string>();
  const faults = { refusals: 0, lostResponses: 0 };
  const server = await startFaulty(faults, async (port) => {
    const receiver = await startReceiver(undefined, port);
    receiver.answer = (message, response) => {
      if (random.chance(faults.refusals)) return void response.writeHead(random.pick(HTTP_REFUSALS)).end();
      const { path, id: messageId, body } = message;
      const webhookId = Number(path.slice(1));
      messages.push({ webhookId, messageId, body, isSigned: isSigned(message, secrets.get(webhookId) ?? '') });
      if (random.chance(faults.lostResponses)) response.destroy();
      else response.writeHead(204).end();
    };
    return receiver;
  });
  return { ...server, messages, secrets };
}

/** Creates two webhooks before the first request: one for all requests, and one for the requests of a user. */
export async function addWebhooks(ctx: Context, { url, secrets }: FaultyWebhooks, user: string): Promise<void> {
  for (const quota of [undefined, user]) {
    const id = secrets.size + 1; // the first webhooks have the ids 1 and 2
    const { secret, webhook } = await createWebhook(ctx, { quota, url: `${url}/${id}` });
    if (webhook.id !== id) throw new Error(`webhook ${webhook.id} should be ${id}`);
    secrets.set(id, secret);
  }
}
