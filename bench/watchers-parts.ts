/** Processes of `watchers.ts`: a gateway, a plain graphql-sse server, and the watchers of each server. */
import { type ChildProcess, fork } from 'node:child_process';
import { EventEmitter, on, once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { writeHeapSnapshot } from 'node:v8';
import { buildSchema } from 'graphql';
import { createHandler } from 'graphql-sse/lib/use/http';
import { openRuntime } from '../src/cli/connection/runtime.js';
import { readConfig } from '../src/config/config.js';
import { startGateway } from '../src/main/app.js';

/** In bytes. */
export interface Memory {
  heap: number;
  resident: number;
  /** Highest resident size of the process so far. */
  peak: number;
}

/**
 * Arrival times of an event in milliseconds since 1970, at the last watcher and at 99 % of the watchers. With the
 * event.
 */
export interface Told {
  last: number;
  p99: number;
  message: string;
}

export interface Part {
  ask<Answer>(what: string, given?: object): Promise<Answer>;
  close(): Promise<void>;
}

interface Answered {
  answer?: unknown;
  error?: string;
}

type Work = Record<string, (given: never) => unknown>;

export function startPart(name: 'gateway' | 'plain' | 'load', env: Record<string, string> = {}): Part {
  const child: ChildProcess = fork(fileURLToPath(import.meta.url), {
    env: { ...process.env, ...env, BENCH_PART: name },
    execArgv: ['--expose-gc', ...(process.env.NODE_FLAGS?.split(' ') ?? [])],
  });
  let hear = (_answer: Answered) => {};
  child.on('message', (answer: Answered) => hear(answer)).once('exit', () => hear({ error: 'it has ended' }));
  return {
    ask: async <Answer>(what: string, given = {}) => {
      const answered = new Promise<Answered>((resolve) => {
        hear = resolve;
      });
      child.send({ what, given });
      const { answer, error } = await answered;
      if (error !== undefined) throw new Error(`${name}: ${error}`);
      return answer as Answer;
    },
    close: async () => {
      const ended = child.exitCode === null ? once(child, 'exit') : undefined;
      if (child.connected) child.disconnect();
      await ended;
    },
  };
}

const now = () => performance.timeOrigin + performance.now();

/** Collects garbage, and returns the memory that remains in use. */
async function readMemory(): Promise<Memory> {
  for (let turn = 0; turn < 3; turn++) {
    globalThis.gc?.();
    await sleep(200);
  }
  if (process.env.HEAP_SNAPSHOT)
    writeHeapSnapshot(`${process.env.HEAP_SNAPSHOT}-${process.env.BENCH_PART}-${Date.now()}.heapsnapshot`);
  const peakKb = Number(/VmHWM:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]);
  const { heapUsed, rss } = process.memoryUsage();
  return { heap: heapUsed, resident: rss, peak: peakKb * 1024 };
}

/** Limits far above the load, because rate limits are not measured here. */
const MANY = '1000000';
const LIMITS = { TAPEGATE_STREAMS: MANY, TAPEGATE_RATE_LIMIT: MANY };

async function serveGateway(): Promise<Work> {
  const { DATA_DIR = '' } = process.env;
  const config = readConfig({ DATA_DIR, PORT: '0', LOG_LEVEL: 'warn', ...LIMITS });
  const runtime = await openRuntime(config);
  await runtime.ctx.events.open();
  const gateway = await startGateway(runtime.ctx);
  process.once('disconnect', () => void gateway.close().then(() => runtime.close()));
  return { open: () => gateway.url, memory: readMemory };
}

const PLAIN_SCHEMA = `
  type Query { ok: Boolean }
  type RequestProgress {
    state: String! filesTotal: Int! filesOnDisk: Int! filesFailed: Int! bytesTotal: String! bytesOnDisk: String!
    end: End at: String! eventId: String!
  }
  type End { planned: String! }
  type Subscription { requestProgress(requestId: Int!): RequestProgress! }`;

/**
 * Serves graphql-sse on `node:http`, as in the documentation of graphql-sse, without authentication, limits and
 * database.
 */
async function servePlain(): Promise<Work> {
  const { MESSAGE = '' } = process.env;
  const { data } = JSON.parse(/^data: (.*)$/m.exec(MESSAGE)?.[1] ?? '{}');
  const events = new EventEmitter().setMaxListeners(0);
  const schema = buildSchema(PLAIN_SCHEMA);
  const field = schema.getSubscriptionType()?.getFields().requestProgress;
  if (field) {
    field.subscribe = async function* source() {
      yield data;
      for await (const [event] of on(events, 'event')) yield event;
    };
  }
  const handle = createHandler({ schema });
  const server = createServer((req, res) => void handle(req, res).catch(() => res.destroy()));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  process.once('disconnect', () => {
    server.closeAllConnections();
    server.close();
  });
  return {
    open: () => `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    memory: readMemory,
    write: () => {
      const at = now();
      events.emit('event', data);
      return at;
    },
  };
}

/** Maximum number of connections that open at the same time. More would overflow the system's accept queue. */
const AT_ONCE = 500;
/** Number of client addresses. The gateway gives one address at most half of its connections. */
const ADDRESSES = 8;
const EVENT = Buffer.from('event: next');
const TELL_MS = 60_000;

function watch(): Work {
  const sockets = new Set<Socket>();
  let arrivals = new Float64Array(0);
  let count = 0;
  let came = 0;
  let onTold = () => {};
  let message = '';
  /** One receive buffer for all sockets, because messages are scanned and not stored. */
  const buffer = Buffer.alloc(16 * 1024);
  const took = (bytes: Buffer) => {
    if (count === 0) message = /event: next[\s\S]*?\n\n/.exec(bytes.toString())?.[0] ?? '';
    arrivals[count++] = now();
    if (count === arrivals.length) onTold();
  };
  const open = async ({ hostname, port, pathname, search }: URL) => {
    await new Promise<void>((resolve, reject) => {
      let isIn = false;
      let first = '';
      const enter = (text: string) => {
        first += text;
        const refusal = /^HTTP\/1.1 (?!200)/.test(first);
        if (refusal) reject(new Error(first.slice(0, 500)));
        if (refusal || !/event: next[\s\S]*\n\n\r\n$/.test(first)) return;
        [isIn, first] = [true, ''];
        resolve();
      };
      const callback = (size: number) => {
        const bytes = buffer.subarray(0, size);
        if (!isIn) enter(bytes.toString());
        else if (bytes.includes(EVENT)) took(bytes);
        return true;
      };
      const localAddress = `127.0.0.${2 + (came++ % ADDRESSES)}`;
      const socket = connect({ host: hostname, port: Number(port), localAddress, onread: { buffer, callback } });
      sockets.add(socket);
      socket.once('error', reject).once('close', () => {
        sockets.delete(socket);
        reject(new Error('a connection was ended'));
      });
      socket.write(`GET ${pathname}${search} HTTP/1.1\r\nHost: ${hostname}\r\nAccept: text/event-stream\r\n\r\n`);
    });
  };
  return {
    connect: async ({ url, count: wanted }: { url: string; count: number }) => {
      const start = now();
      let left = wanted;
      const next = async () => {
        while (left-- > 0) await open(new URL(url));
      };
      await Promise.all(Array.from({ length: AT_ONCE }, next));
      return (now() - start) / 1000;
    },
    leave: () => {
      for (const socket of sockets) socket.destroy();
    },
    expect: () => {
      [arrivals, count] = [new Float64Array(sockets.size), 0];
    },
    told: async () => {
      await new Promise<void>((resolve, reject) => {
        const late = setTimeout(() => reject(new Error(`${count} of ${arrivals.length} were told`)), TELL_MS);
        onTold = () => {
          clearTimeout(late);
          resolve();
        };
        if (count === arrivals.length) onTold();
      });
      const last = arrivals.at(-1) ?? Number.NaN;
      return { last, p99: arrivals[Math.floor(arrivals.length * 0.99)] ?? last, message };
    },
  };
}

const parts: Record<string, () => Work | Promise<Work>> = { gateway: serveGateway, plain: servePlain, load: watch };
const part = parts[process.env.BENCH_PART ?? ''];
if (part && process.send) {
  const work = Promise.resolve(part());
  process.on('message', ({ what, given }: { what: string; given: never }) => {
    Promise.resolve(work.then((known) => known[what]?.(given))).then(
      (answer) => process.send?.({ answer }),
      (error: Error) => process.send?.({ error: error.message }),
    );
  });
  // open sockets would keep the process alive
  if (part === watch) process.once('disconnect', () => process.exit());
}
