/** Sends inputs to the gateway, by as few connections as carry them, and shows what came back. */
import http from 'node:http';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import zlib from 'node:zlib';
import { codeOf } from '../../src/errors.js';
import type { ExchangeInput, HttpInput, RawInput } from './input.js';
import type { Known } from './known.js';

/** What an input was answered with. */
export interface Answer {
  /** 0: the connection ended without one, as the client or the gateway wished. */
  status: number;
  headers: http.IncomingHttpHeaders;
  text: string;
  /** It is whole: nobody went away in the middle of it. */
  isWhole: boolean;
  /** Of a stream that was left open: what came on it, once it has ended. */
  later?: Promise<string>;
}

const NO_ANSWER: Answer = { status: 0, headers: {}, text: '', isWhole: false };
/** Nothing takes that long; who waits longer is not answered. */
const PATIENCE_MS = 30_000;
/** A connection that has sent what is no request, or half of one, may be waited for by the gateway. */
const RAW_MS = 150;
/** Of streams that are left open, at a time. */
const MAX_STAYING = 24;
/** Of what comes on one, what is looked at. */
const MAX_TOLD = 1_000_000;

export class Unanswered extends Error {}

export class Client {
  private readonly agent: http.Agent;
  private readonly address: { host: string; port: number };
  private readonly known: Known;
  private readonly staying = new Set<http.IncomingMessage>();

  constructor(url: string, known: Known, options: { connections: number }) {
    const { hostname, port } = new URL(url);
    this.address = { host: hostname, port: Number(port) };
    this.known = known;
    this.agent = new http.Agent({ keepAlive: true, maxSockets: options.connections * 2 + MAX_STAYING });
  }

  close(): void {
    this.agent.destroy();
  }

  /** Goes away from the streams that were left open, but for so many. */
  leave(most = 0): void {
    const oldest = [...this.staying].slice(0, Math.max(0, this.staying.size - most));
    for (const response of oldest) response.destroy();
  }

  async send(input: HttpInput): Promise<Answer> {
    const headers = Object.entries(input.headers).map(([name, value]) => [name, this.known.fill(value)]);
    const filled: HttpInput = { ...input, target: this.known.fill(input.target), headers: Object.fromEntries(headers) };
    if (typeof input.body === 'string') filled.body = this.known.fill(input.body);
    for (let tries = 0; ; tries++) {
      try {
        return await this.sendOnce(filled);
      } catch (error) {
        // the gateway may close a connection that rests just when it is used again
        if (codeOf(error) !== 'ECONNRESET' || tries > 2) throw error;
      }
    }
  }

  private sendOnce(input: HttpInput): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const { method, target: path, cut, listenMs, stays, chunkBytes } = input;
      const body = Buffer.from(input.body ?? '');
      // Node leaves the length out where a body is unusual
      const hasLength = chunkBytes === undefined && (body.length > 0 || cut === 'body');
      const length = hasLength ? { 'Content-Length': body.length + (cut === 'body' ? 1 : 0) } : {};
      const coding = chunkBytes === undefined ? {} : { 'Transfer-Encoding': 'chunked' };
      const headers = { ...input.headers, ...length, ...coding };
      const request = http.request({ ...this.address, agent: this.agent, method, path, headers });
      const timer = setTimeout(() => {
        reject(new Unanswered(`no answer within ${PATIENCE_MS} ms`));
        request.destroy();
      }, PATIENCE_MS);
      const done = (answer: Answer) => {
        clearTimeout(timer);
        resolve(answer);
      };
      const leave = () => {
        done(NO_ANSWER);
        request.destroy();
      };
      request.on('error', (error) => {
        clearTimeout(timer);
        if (cut) resolve(NO_ANSWER);
        else reject(error);
      });
      request.on('upgrade', (_answer, socket) => {
        socket.destroy();
        done(NO_ANSWER);
      });
      request.on('response', (response) => {
        if (stays && isStream(response)) done(this.stay(response, stays));
        else read(response, listenMs, done);
      });
      let rest = body;
      for (; chunkBytes !== undefined && rest.length > chunkBytes; rest = rest.subarray(chunkBytes)) {
        request.write(rest.subarray(0, chunkBytes));
      }
      if (cut === 'body') request.write(rest, leave);
      else if (cut === 'sent') request.end(rest, leave);
      else request.end(rest.length > 0 ? rest : undefined);
    });
  }

  private stay(response: http.IncomingMessage, how: 'read' | 'unread'): Answer {
    this.staying.add(response);
    const later = new Promise<string>((resolve) => {
      let text = '';
      if (how === 'read') {
        response.setEncoding('utf8').on('data', (more: string) => {
          if (text.length < MAX_TOLD) text += more;
        });
      }
      response.on('error', () => {}); // it is closed with it
      response.once('close', () => {
        this.staying.delete(response);
        resolve(text);
      });
    });
    this.leave(MAX_STAYING);
    return { status: response.statusCode ?? 0, headers: response.headers, text: '', isWhole: false, later };
  }

  /** Operations on one stream, as a client of graphql-sse sends them that goes away early. */
  async exchange(input: ExchangeInput): Promise<Answer[]> {
    const at = (method: string, target: string, headers: Record<string, string>, body?: string): Promise<Answer> =>
      this.send({ kind: 'http', door: 'any', method, target, headers, body, listenMs: input.listenMs });
    const reserved = await at('PUT', '/graphql/stream', input.headers);
    if (reserved.status !== 201) return [reserved];
    const own = { 'X-GraphQL-Event-Stream-Token': reserved.text, ...input.headers };
    const token = { 'X-GraphQL-Event-Stream-Token': reserved.text, ...input.shown };
    const open = () => at('GET', '/graphql/stream', { ...own, Accept: 'text/event-stream' });
    const streams = input.opens === 'first' ? [open()] : [];
    for (const stream of streams) stream.catch(() => {}); // another failure may be told before it
    const answers = input.operations.map(({ body }) =>
      at('POST', '/graphql/stream', { ...token, 'Content-Type': 'application/json', Accept: 'application/json' }, body),
    );
    const told = await Promise.all(answers);
    for (const id of input.drops) {
      told.push(await at('DELETE', `/graphql/stream?operationId=${encodeURIComponent(id.toWellFormed())}`, token));
    }
    if (input.opens === 'last') streams.push(open());
    return [reserved, ...told, ...(await Promise.all(streams))];
  }

  /** Writes bytes as they are, and gives whatever was answered to them. */
  async sendRaw(input: RawInput): Promise<string> {
    const socket = net.connect(this.address);
    const chunks: Buffer[] = [];
    socket.on('data', (chunk) => chunks.push(chunk));
    socket.on('error', () => {}); // it is closed with it
    const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
    await new Promise<void>((resolve) => {
      socket.once('connect', resolve);
      socket.once('close', resolve);
    });
    for (const part of input.parts) {
      if (socket.destroyed) break;
      await new Promise<void>((resolve) => socket.write(part, 'latin1', () => resolve()));
    }
    socket.end(); // a gateway that has what it needs answers, and closes
    await Promise.race([closed, sleep(RAW_MS, undefined, { ref: false })]);
    socket.destroy();
    return Buffer.concat(chunks).toString();
  }
}

const isStream = ({ headers }: http.IncomingMessage): boolean =>
  headers['content-type']?.startsWith('text/event-stream') ?? false;

const decoders: Record<string, (bytes: Buffer) => Buffer> = {
  gzip: zlib.gunzipSync,
  br: zlib.brotliDecompressSync,
  ...('zstdDecompressSync' in zlib && { zstd: zlib.zstdDecompressSync as (bytes: Buffer) => Buffer }),
};

/** What is not encoded as it says is shown as that, so that whoever looks at the answer finds it at fault. */
function decode(encoding: string | undefined, bytes: Buffer): string {
  const decoder = decoders[encoding ?? ''];
  if (!decoder || bytes.length === 0) return bytes.toString();
  try {
    return decoder(bytes).toString();
  } catch (error) {
    return `not whole as ${encoding}: ${error}`;
  }
}

function read(response: http.IncomingMessage, listenMs: number | undefined, done: (answer: Answer) => void): void {
  const { statusCode: status = 0, headers } = response;
  const chunks: Buffer[] = [];
  const finish = (isWhole: boolean) => {
    clearTimeout(timer);
    done({ status, headers, text: decode(headers['content-encoding'], Buffer.concat(chunks)), isWhole });
  };
  const timer = isStream(response) && listenMs !== undefined ? setTimeout(leave, listenMs) : undefined;
  function leave(): void {
    finish(false);
    response.destroy();
  }
  response.on('data', (chunk: Buffer) => chunks.push(chunk));
  response.on('end', () => finish(true));
  response.on('error', () => finish(false));
  response.on('close', () => finish(response.complete));
}
