/** A receiver of webhooks that verifies signatures with the library of the Standard Webhooks project. */
import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { buffer } from 'node:stream/consumers';
import { Webhook } from 'standardwebhooks';
import { closeServer, listen } from './ports.js';
import { waitFor } from './wait.js';

export interface ReceivedMessage {
  path: string;
  headers: IncomingHttpHeaders;
  /** Value of the header `webhook-id`. */
  id: string;
  body: string;
  type: string;
  timestamp: string;
  data: Record<string, unknown>;
}

export interface WebhookReceiver {
  url: string;
  /** Received messages in order, including repeated messages. */
  messages: ReceivedMessage[];
  /** Sends the answer to a message; default: status 204. */
  answer: (message: ReceivedMessage, response: ServerResponse) => void;
  types(): string[];
  /** Waits until `count` messages of a type have arrived. @returns the last of these messages */
  waitFor(type: string, count?: number): Promise<ReceivedMessage>;
  close(): Promise<void>;
}

const take = (_message: ReceivedMessage, response: ServerResponse) => void response.writeHead(204).end();

export async function startReceiver(tls?: { cert: string; key: string }, port = 0): Promise<WebhookReceiver> {
  const messages: ReceivedMessage[] = [];
  const listener: Parameters<typeof createServer>[1] = async (request, response) => {
    const body = (await buffer(request)).toString('utf8');
    const { type, timestamp, data } = JSON.parse(body);
    const id = String(request.headers['webhook-id']);
    const message = { path: request.url ?? '', headers: request.headers, id, body, type, timestamp, data };
    messages.push(message);
    receiver.answer(message, response);
  };
  const server: Server = tls ? createTlsServer(tls, listener) : createServer(listener);
  const listening = await listen(server, port);
  const receiver: WebhookReceiver = {
    url: `${tls ? 'https' : 'http'}://127.0.0.1:${listening}`,
    messages,
    answer: take,
    types: () => messages.map(({ type }) => type),
    waitFor: async (type, count = 1) =>
      await waitFor(`${count} messages of ${type}`, async () => {
        const found = messages.filter((message) => message.type === type);
        return found.length >= count && found[count - 1];
      }),
    close: () => closeServer(server),
  };
  return receiver;
}

/** Returns whether the message has a recent and correct signature. */
export function isSigned({ body, headers }: ReceivedMessage, secret: string): boolean {
  try {
    new Webhook(secret).verify(body, headers as Record<string, string>);
    return true;
  } catch {
    return false;
  }
}
