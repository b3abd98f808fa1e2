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

export async function startRelay(target: string): Promise<Relay> {
  let current: (WatchOptions & { watch: Watch }) | undefined;

  const forward = async (req: IncomingMessage, res: ServerResponse) => {
    const body = await buffer(req);
    const outgoing = request(`${target}${req.url}`, { method: req.method, headers: req.headers, agent: false });
    outgoing.on('error', () => res.destroy());
    res.on('close', () => outgoing.destroy());
    res.on('error', () => {}); // what comes after it was broken off
    outgoing.end(body);
    const [answer] = (await once(outgoing, 'response')) as [IncomingMessage];
    res.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.on('error', () => res.destroy());
    const stream = answer.headers['content-type']?.startsWith('text/event-stream') ? current : undefined;
    if (!stream) return void answer.pipe(res);
    const { watch } = stream;
    const isFirst = watch.asked.push(`${req.url} ${body}`) === 1;
    res.flushHeaders();
    answer.on('data', (bytes: Buffer) => {
      const isNews = isFirst && !watch.first.includes('event: next');
      if (isFirst) watch.first += bytes;
      const tellsFirst = isNews && watch.first.includes('event: next');
      res.write(bytes, () => {
        if (!tellsFirst) return;
        if (stream.breaks === 'cut') res.destroy();
        if (stream.breaks === 'end') res.end();
        stream.onFirstMessage();
      });
    });
    answer.on('end', () => res.end());
  };

  const relay: Relay = {
    url: '',
    page: '',
    onReport: () => {},
    watch: (options) => {
      current = { ...options, watch: { asked: [], first: '' } };
      return current.watch;
    },
    close: async () => {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };

  const answer = async (req: IncomingMessage, res: ServerResponse) => {
    if (req.url === '/page') return void res.setHeader('Content-Type', 'text/html; charset=utf-8').end(relay.page);
    if (req.url !== '/report') return await forward(req, res);
    relay.onReport((await buffer(req)).toString());
    res.end();
  };
  const server = createServer((req, res) => void answer(req, res).catch(() => res.destroy()));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  relay.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return relay;
}
