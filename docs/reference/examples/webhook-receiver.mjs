/** Receives webhook messages, verifies their signatures, and prints each message once. */
import { createServer } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { Webhook } from 'standardwebhooks';

const webhook = new Webhook(process.env.WEBHOOK_SECRET);
const seen = new Set();

createServer(async (request, response) => {
  const body = await buffer(request);
  let message;
  try {
    message = webhook.verify(body.toString('utf8'), request.headers);
  } catch {
    return response.writeHead(401).end();
  }
  if (!seen.has(request.headers['webhook-id'])) console.log(message.type, message.data.requestId ?? '');
  seen.add(request.headers['webhook-id']);
  response.writeHead(204).end();
}).listen(Number(process.env.PORT), '127.0.0.1', () => console.log('listening'));
