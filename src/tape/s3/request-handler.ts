/** The `requestHandler` of Amazon's client: it sends requests through undici, and hands on bodies in the blocks that they arrive in. */
import { Readable } from 'node:stream';
import type { Answer } from '../http/body.js';
import { type Exchange, exchange, Pools, type TimeLimits } from '../http/exchange.js';

/** The part of a signed request that is used. */
interface SignedRequest {
  protocol: string;
  hostname: string;
  port?: number;
  method: string;
  path: string;
  query?: Record<string, string | string[] | null>;
  headers: Record<string, string>;
  /** Tapegate sends no streams. */
  body?: unknown;
}

export class S3RequestHandler {
  readonly metadata = { handlerProtocol: 'http/1.1' };
  private readonly limits: TimeLimits;
  private readonly pools: Pools;

  constructor({ limits, sockets }: { limits: TimeLimits; sockets: number }) {
    this.limits = limits;
    this.pools = new Pools({ limits, sockets });
  }

  async handle(request: SignedRequest, { abortSignal: signal }: { abortSignal?: unknown } = {}) {
    if (!(signal instanceof AbortSignal)) throw new Error('a request to S3 needs an AbortSignal');
    const { protocol, hostname, port, path, headers, body } = request;
    const { limits, pools } = this;
    const answer = await exchange({
      method: request.method as Exchange['method'],
      url: new URL(`${protocol}//${hostname}${port === undefined ? '' : `:${port}`}${path}`),
      target: targetOf(request),
      headers,
      ...((typeof body === 'string' || body instanceof Uint8Array) && { body }),
      ...{ pools, limits, signal },
      isRepeatable: true, // S3 joins a second request for the same copy
    });
    const { statusCode, statusMessage: reason, headers: told } = answer.response;
    return {
      response: { statusCode, reason, headers: told as Record<string, string>, body: new S3Body(answer, signal) },
    };
  }

  updateHttpClientConfig(): void {}

  httpHandlerConfigs(): object {
    return {};
  }
}

/** A stream, as Amazon's client wants it. */
export class S3Body extends Readable {
  readonly blocks: AsyncGenerator<Buffer>;
  private readonly close: () => void;

  constructor({ read, response }: Answer, signal: AbortSignal) {
    super();
    this.blocks = read(signal);
    this.close = () => response.destroy();
  }

  /** Called if the client reads the answer itself, as it does for all but the bytes of objects. */
  override _read(): void {
    this.blocks.next().then(
      ({ done, value }) => this.push(done ? null : value),
      (error: Error) => this.destroy(error),
    );
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.close();
    callback(error);
  }
}

function targetOf({ path, query = {} }: SignedRequest): string {
  const entries = Object.entries(query).flatMap(([name, values]) =>
    [values ?? ''].flat().map((value) => `${escapeUri(name)}=${escapeUri(value)}`),
  );
  return entries.length === 0 ? path : `${path}?${entries.join('&')}`;
}

/** Escapes as signatures do. */
function escapeUri(text: string): string {
  return encodeURIComponent(text).replace(/[!'()*]/g, (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`);
}
