/**
 * A reverse proxy between an example and Tapegate. The proxy can break the first event stream, and serves an example's
 * page.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { closeServer, listen } from './ports.js';

export interface Relay {
  /** `http://127.0.0.1:port` */
  url: string;
  /** Sets the options of the next subscriptions. */
  watch(options: WatchOptions): Watch;
  /** HTML of the page at `/page`. */
  page: string;
  close(): Promise<void>;
}

export interface WatchOptions {
  /**
   * If set, the first stream breaks after its first message and after this promise. The promise resolves when the client
   * has shown the message, because clients may drop unread messages.
   */
  breaksAfter?: Promise<void>;
  onFirstMessage: () => void;
}

export interface Watch {
  /** URL and body of each subscription. */
  asked: string[];
  /** The header `Last-Event-ID` of each subscription. */
  lastEventIds: (string | undefined)[];
  /** Text of the first event stream. */
  first: string;
}

interface Stream extends WatchOptions {
  watch: Watch;
}

export async function startRelay(target: string): Promise<Relay> {
  let stream: Stream | undefined;
  const answer = async (req: IncomingMessage, res: ServerResponse) => {
    if (req.url === '/page') return void res.setHeader('Content-Type', 'text/html; charset=utf-8').end(relay.page);
    await forward({ req, body: await buffer(req), res }, target, stream);
  };
  const server = createServer((req, res) => void answer(req, res).catch(() => res.destroy()));
  const port = await listen(server);
  const relay: Relay = {
    url: `http://127.0.0.1:${port}`,
    page: '',
    watch: (options) => {
      stream = { ...options, watch: { asked: [], lastEventIds: [], first: '' } };
      return stream.watch;
    },
    close: () => closeServer(server),
  };
  return relay;
}

interface Exchange {
  req: IncomingMessage;
  body: Buffer;
  res: ServerResponse;
}

async function forward({ req, body, res }: Exchange, target: string, stream: Stream | undefined): Promise<void> {
  const outgoing = request(`${target}${req.url}`, { method: req.method, headers: req.headers, agent: false });
  outgoing.on('error', () => res.destroy());
  res.on('close', () => outgoing.destroy());
  res.on('error', () => {}); // the connection was broken
  outgoing.end(body);
  const [answer] = (await once(outgoing, 'response')) as [IncomingMessage];
  answer.on('error', () => res.destroy());
  res.writeHead(answer.statusCode ?? 502, answer.headers);
  const isStream = answer.headers['content-type']?.startsWith('text/event-stream');
  const asked = `${req.url} ${body}`;
  if (!isStream || !stream || !asked.includes('subscription')) return void answer.pipe(res);
  res.flushHeaders();
  stream.watch.lastEventIds.push(req.headers['last-event-id']?.toString());
  const isFirst = stream.watch.asked.push(asked) === 1;
  answer.on('data', (bytes: Buffer) => {
    const hasFirst = isFirst && addToFirst(stream.watch, bytes);
    res.write(bytes, () => {
      if (hasFirst) void breakOff(res, stream);
    });
  });
  answer.on('end', () => res.end());
}

/** Appends bytes to the text of the first stream. @returns whether the bytes complete the first message */
function addToFirst(watch: Watch, bytes: Buffer): boolean {
  const hadMessage = watch.first.includes('event: next');
  watch.first += bytes;
  return !hadMessage && watch.first.includes('event: next');
}

async function breakOff(res: ServerResponse, { breaksAfter, onFirstMessage }: Stream): Promise<void> {
  await breaksAfter;
  if (breaksAfter) res.destroy();
  onFirstMessage();
}
