/** HTTP client of the fuzz test. Sends inputs to the gateway over few connections, and returns the responses. */
import http from 'node:http';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import zlib from 'node:zlib';
import { codeOf } from '../../src/core/errors.js';
import type { ExchangeInput, HttpInput, RawInput } from './inputs.js';
import type { Known } from './known.js';

export interface Answer {
  /** HTTP status, or 0 if the client or the gateway closed the connection on purpose before a response. */
  status: number;
  headers: http.IncomingHttpHeaders;
  text: string;
  /** Whether the response is complete; false if the connection was closed in the middle. */
  isWhole: boolean;
  /** Text of a stream that stays open. Resolves when the stream ends. */
  later?: Promise<string>;
}

const NO_ANSWER: Answer = { status: 0, headers: {}, text: '', isWhole: false };
const TIMEOUT_MS = 30_000;
/** Time limit of raw inputs, because the gateway may wait for the rest of an incomplete request. */
const RAW_MS = 150;
const MAX_OPEN_STREAMS = 24;
const MAX_STREAM_CHARACTERS = 1_000_000;

export class Unanswered extends Error {}

export class Client {
  private readonly agent: http.Agent;
  private readonly address: { host: string; port: number };
  private readonly known: Known;
  private readonly open = new Set<http.IncomingMessage>();

  constructor(url: string, known: Known, connections: number) {
    const { hostname, port } = new URL(url);
    this.address = { host: hostname, port: Number(port) };
    this.known = known;
    this.agent = new http.Agent({ keepAlive: true, maxSockets: connections * 2 + MAX_OPEN_STREAMS });
  }

  close(): void {
    this.agent.destroy();
  }

  /** Closes the oldest open streams. The newest `kept` streams stay open. */
  closeStreams(kept = 0): void {
    for (const response of [...this.open].slice(0, Math.max(0, this.open.size - kept))) response.destroy();
  }

  async send(input: HttpInput): Promise<Answer> {
    const headers = Object.entries(input.headers).map(([name, value]) => [name, this.known.fill(value)]);
    const filled: HttpInput = { ...input, target: this.known.fill(input.target), headers: Object.fromEntries(headers) };
    if (typeof input.body === 'string') filled.body = this.known.fill(input.body);
    for (let tries = 0; ; tries++) {
      try {
        return await this.sendOnce(filled);
      } catch (error) {
        // retry: the gateway may have closed the idle connection just before the request
        if (codeOf(error) !== 'ECONNRESET' || tries > 2) throw error;
      }
    }
  }

  private sendOnce({ method, target: path, cut, listenMs, stays, chunkBytes, ...input }: HttpInput): Promise<Answer> {
    return new Promise((resolve, reject) => {
      let body = Buffer.from(input.body ?? '');
      // Node.js does not send Content-Length for some methods
      const hasLength = chunkBytes === undefined && (body.length > 0 || cut === 'body');
      const length = hasLength && { 'Content-Length': body.length + (cut === 'body' ? 1 : 0) };
      const coding = chunkBytes !== undefined && { 'Transfer-Encoding': 'chunked' };
      const headers = { ...input.headers, ...length, ...coding };
      const request = http.request({ ...this.address, agent: this.agent, method, path, headers });
      const timer = setTimeout(() => {
        reject(new Unanswered(`no response within ${TIMEOUT_MS} ms`));
        request.destroy();
      }, TIMEOUT_MS);
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
        if (stays && isStream(response)) done(this.leaveOpen(response, stays));
        else read(response, listenMs, done);
      });
      for (; chunkBytes !== undefined && body.length > chunkBytes; body = body.subarray(chunkBytes)) {
        request.write(body.subarray(0, chunkBytes));
      }
      if (cut === 'body') request.write(body, leave);
      else if (cut === 'sent') request.end(body, leave);
      else request.end(body.length > 0 ? body : undefined);
    });
  }

  private leaveOpen(response: http.IncomingMessage, how: 'read' | 'unread'): Answer {
    this.open.add(response);
    const later = new Promise<string>((resolve) => {
      let text = '';
      if (how === 'read') {
        response.setEncoding('utf8').on('data', (more: string) => {
          if (text.length < MAX_STREAM_CHARACTERS) text += more;
        });
      }
      response.on('error', () => {}); // 'close' follows
      response.once('close', () => {
        this.open.delete(response);
        resolve(text);
      });
    });
    this.closeStreams(MAX_OPEN_STREAMS);
    return { status: response.statusCode ?? 0, headers: response.headers, text: '', isWhole: false, later };
  }

  /** Sends operations on one graphql-sse stream, and closes the stream before all results have arrived. */
  async exchange({ operations, drops, opens, headers, shown, listenMs }: ExchangeInput): Promise<Answer[]> {
    const sendTo = (method: string, target: string, given: Record<string, string>, body?: string) =>
      this.send({ kind: 'http', api: 'any', method, target, headers: given, body, listenMs });
    const reserved = await sendTo('PUT', '/graphql/stream', headers);
    if (reserved.status !== 201) return [reserved];
    const token = { 'X-GraphQL-Event-Stream-Token': reserved.text };
    const open = () => sendTo('GET', '/graphql/stream', { ...token, ...headers, Accept: 'text/event-stream' });
    const streams = opens === 'first' ? [open()] : [];
    for (const stream of streams) stream.catch(() => {}); // another request may fail before the stream is awaited
    const json = { 'Content-Type': 'application/json', Accept: 'application/json' };
    const sent = operations.map(({ body }) => sendTo('POST', '/graphql/stream', { ...token, ...shown, ...json }, body));
    const answers = await Promise.all(sent);
    for (const id of drops) {
      const target = `/graphql/stream?operationId=${encodeURIComponent(id.toWellFormed())}`;
      answers.push(await sendTo('DELETE', target, { ...token, ...shown }));
    }
    if (opens === 'last') streams.push(open());
    return [reserved, ...answers, ...(await Promise.all(streams))];
  }

  /** Writes bytes unchanged to a new connection. @returns the received text */
  async sendRaw({ parts }: RawInput): Promise<string> {
    const socket = net.connect(this.address);
    const chunks: Buffer[] = [];
    socket.on('data', (chunk) => chunks.push(chunk));
    socket.on('error', () => {}); // 'close' follows
    const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
    await Promise.race([closed, new Promise<void>((resolve) => socket.once('connect', resolve))]);
    for (const part of parts) {
      if (!socket.destroyed) await new Promise<void>((resolve) => socket.write(part, 'latin1', () => resolve()));
    }
    socket.end();
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
};

/** Decodes a body. A body with a wrong encoding becomes a text that fails every check. */
function decode(encoding: string | undefined, bytes: Buffer): string {
  const decoder = decoders[encoding ?? ''];
  if (!decoder || bytes.length === 0) return bytes.toString();
  try {
    return decoder(bytes).toString();
  } catch (error) {
    return `not ${encoding}: ${error}`;
  }
}

function read(response: http.IncomingMessage, listenMs: number | undefined, done: (answer: Answer) => void): void {
  const { statusCode: status = 0, headers } = response;
  const chunks: Buffer[] = [];
  const finish = (isWhole: boolean) => {
    clearTimeout(timer);
    done({ status, headers, text: decode(headers['content-encoding'], Buffer.concat(chunks)), isWhole });
  };
  const leave = () => {
    finish(false);
    response.destroy();
  };
  const timer = isStream(response) && listenMs !== undefined ? setTimeout(leave, listenMs) : undefined;
  response.on('data', (chunk: Buffer) => chunks.push(chunk));
  response.on('end', () => finish(true));
  response.on('error', () => finish(false));
  response.on('close', () => finish(response.complete));
}
