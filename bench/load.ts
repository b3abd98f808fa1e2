/**
 * Load generator of a benchmark, in its own process. Clients and the measured server do not share an event loop. Each
 * client repeats requests on one connection.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import http from 'node:http';
import { fileURLToPath } from 'node:url';

export interface Load {
  url: string;
  method?: string;
  headers?: Record<string, string>;
  /** Bodies to send in turn; undefined for GET. Each client starts with a different body. */
  bodies?: readonly string[];
  clients: number;
  seconds: number;
  /** Text that every answer must contain. An answer without the text fails the run. */
  holds?: string;
}

interface Answered {
  perSecond: number;
  /** In milliseconds. */
  median: number;
  p99: number;
}

export interface LoadProcess {
  /** @throws Error for the first answer that has another status than 200 or lacks `holds` */
  run(load: Load): Promise<Answered>;
  close(): void;
}

export function startLoad(): LoadProcess {
  const child: ChildProcess = fork(fileURLToPath(import.meta.url), { env: { ...process.env, IS_LOAD: '1' } });
  return {
    run: async (load) => {
      child.send(load);
      const [answer] = (await once(child, 'message')) as [Answered | { error: string }];
      if ('error' in answer) throw new Error(answer.error);
      return answer;
    },
    close: () => child.disconnect(),
  };
}

async function ask(load: Load, agent: http.Agent, turn: number): Promise<void> {
  const { url, method = 'GET', headers = {}, bodies } = load;
  const body = bodies?.[turn % bodies.length];
  const length = body === undefined ? {} : { 'Content-Length': Buffer.byteLength(body) };
  const req = http.request(url, { agent, method, headers: { ...headers, ...length } });
  req.end(body);
  const [res] = (await once(req, 'response')) as [http.IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of res) chunks.push(chunk);
  if (res.statusCode === 200 && (load.holds === undefined || Buffer.concat(chunks).includes(load.holds))) return;
  const text = Buffer.concat(chunks).toString().slice(0, 500);
  throw new Error(`${method} ${url} answered ${res.statusCode}: ${text}`);
}

async function run(load: Load): Promise<Answered> {
  const agent = new http.Agent({ keepAlive: true, maxSockets: load.clients });
  const start = performance.now();
  const end = start + load.seconds * 1000;
  const times: number[] = [];
  const client = async (first: number) => {
    for (let turn = first; performance.now() < end; turn += load.clients) {
      const begun = performance.now();
      await ask(load, agent, turn);
      times.push(performance.now() - begun);
    }
  };
  try {
    await Promise.all(Array.from({ length: load.clients }, (_, first) => client(first)));
  } finally {
    agent.destroy();
  }
  const seconds = (performance.now() - start) / 1000;
  times.sort((a, b) => a - b);
  const at = (share: number) => times[Math.floor(times.length * share)] ?? Number.NaN;
  return { perSecond: times.length / seconds, median: at(0.5), p99: at(0.99) };
}

if (process.env.IS_LOAD) {
  process.on('message', (load: Load) => {
    run(load).then(
      (answered) => process.send?.(answered),
      (error: Error) => process.send?.({ error: error.message }),
    );
  });
}
