/**
 * A server between an example and Tapegate: it knows when an event stream has told something, can break the stream off
 * then, and serves the page of an example from the same origin, as a reverse proxy does.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';

export interface Relay {
  /** `http://127.0.0.1:port` */
  url: string;
  /** What is to be done with the streams from here on. */
  watch(options: WatchOptions): Watch;
  /** What is served at `/page`. */
  page: string;
  /** Is given each line that the page posts to `/report`. */
  onReport: (line: string) => void;
  close(): Promise<void>;
}

/** `end` is how a gateway stops, `cut` how a line breaks. */
export type Break = 'end' | 'cut';

export interface WatchOptions {
  /** What becomes of the first stream once it has told something. */
  breaks: Break | undefined;
  onFirstMessage: () => void;
}

export interface Watch {
  /** What asked for each stream: its URL and its body. */
  asked: string[];
  /** All that the first one has told. */
  first: string;
}

interface Stream extends WatchOptions {
  watch: Watch;
}

export async function startRelay(target: string): Promise<Relay> {
  let stream: Stream | undefined;
  const answer = async (req: IncomingMessage, res: ServerResponse) => {
    if (req.url === '/page') return void res.setHeader('Content-Type', 'text/html; charset=utf-8').end(relay.page);
    const body = await buffer(req);
    if (req.url !== '/report') return await forward({ req, body, res }, target, stream);
    relay.onReport(body.toString());
    res.end();
  };
  const server = createServer((req, res) => void answer(req, res).catch(() => res.destroy()));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const relay: Relay = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    page: '',
    onReport: () => {},
    watch: (options) => {
      stream = { ...options, watch: { asked: [], first: '' } };
      return stream.watch;
    },
    close: async () => {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
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
  res.on('error', () => {}); // what comes after it was broken off
  outgoing.end(body);
  const [answer] = (await once(outgoing, 'response')) as [IncomingMessage];
  answer.on('error', () => res.destroy());
  res.writeHead(answer.statusCode ?? 502, answer.headers);
  const isStream = answer.headers['content-type']?.startsWith('text/event-stream');
  if (!isStream || !stream) return void answer.pipe(res);
  res.flushHeaders();
  const isFirst = stream.watch.asked.push(`${req.url} ${body}`) === 1;
  answer.on('data', (bytes: Buffer) => {
    const tellsFirst = isFirst && noteFirst(stream.watch, bytes);
    res.write(bytes, () => {
      if (tellsFirst) breakOff(res, stream);
    });
  });
  answer.on('end', () => res.end());
}

/** Whether these bytes hold the first message. */
function noteFirst(watch: Watch, bytes: Buffer): boolean {
  const hasTold = watch.first.includes('event: next');
  watch.first += bytes;
  return !hasTold && watch.first.includes('event: next');
}

function breakOff(res: ServerResponse, { breaks, onFirstMessage }: Stream): void {
  if (breaks === 'cut') res.destroy();
  if (breaks === 'end') res.end();
  onFirstMessage();
}
