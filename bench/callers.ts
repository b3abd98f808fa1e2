/**
 * What it costs to be known: 16 clients in another process read a request of 25 files again and again, for SECONDS (5) a turn and ROUNDS
 * (5) turns each way, in alternating order: as anybody, with an API token, and with the token as password of Basic.
 *
 *   npm run build && node dist/bench/callers.js
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import http from 'node:http';
import { fileURLToPath } from 'node:url';
import { startGateway } from '../src/app.js';
import { createToken } from '../src/operations/access/tokens.js';
import { setQuota } from '../src/operations/quotas/quotas.js';
import { createRequest } from '../src/operations/requests/create.js';
import { withBench } from './kit.js';

const CLIENTS = 16;
const FILES = 25;
const seconds = Number(process.env.SECONDS ?? 5);
const rounds = Number(process.env.ROUNDS ?? 5);

interface Turn {
  url: string;
  headers: Record<string, string>;
}

/** Answers a second. */
async function readAgain({ url, headers }: Turn): Promise<number> {
  const agent = new http.Agent({ keepAlive: true, maxSockets: CLIENTS });
  const end = performance.now() + seconds * 1000;
  let answers = 0;
  const client = async () => {
    while (performance.now() < end) {
      const [response] = (await once(http.get(url, { agent, headers }), 'response')) as [http.IncomingMessage];
      if (response.statusCode !== 200) throw new Error(`${url} answered ${response.statusCode}`);
      for await (const _ of response);
      answers += 1;
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
  agent.destroy();
  return answers / seconds;
}

const median = (values: readonly number[]) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;

async function measure(ways: Map<string, Turn>): Promise<Map<string, number[]>> {
  const child = fork(fileURLToPath(import.meta.url), { env: { ...process.env, IS_CLIENT: '1' } });
  const rates = new Map([...ways.keys()].map((name) => [name, [] as number[]]));
  for (let round = 0; round < rounds; round++) {
    for (const [name, turn] of round % 2 === 0 ? ways : [...ways].reverse()) {
      child.send(turn);
      const [rate] = (await once(child, 'message')) as [number];
      rates.get(name)?.push(rate);
    }
  }
  child.disconnect();
  return rates;
}

async function bench(): Promise<void> {
  await withBench(
    async (ctx) => {
      const gateway = await startGateway(ctx);
      await setQuota(ctx, { user: 'alice', size: 10n ** 12n });
      const files = Array.from({ length: FILES }, (_, n) => `/bench/${n}`);
      const id = await createRequest(ctx, { quota: 'alice', files });
      const { secret } = await createToken(ctx, { name: 'alice', role: 'USER' });
      const url = `${gateway.url}/tape_control/api/v1/requests/${id}`;
      const basic = Buffer.from(`alice:${secret}`).toString('base64');
      const rates = await measure(
        new Map([
          ['anybody', { url, headers: {} }],
          ['token', { url, headers: { Authorization: `Bearer ${secret}` } }],
          ['password', { url, headers: { Authorization: `Basic ${basic}` } }],
        ]),
      );
      const reference = median(rates.get('anybody') ?? []);
      for (const [name, each] of rates) {
        const all = each.map((rate) => rate.toFixed(0)).join(' ');
        console.log(
          `${name.padEnd(9)} ${median(each).toFixed(0)}/s (${all}), ${(median(each) / reference).toFixed(3)} of anybody`,
        );
      }
      await gateway.close();
    },
    { PORT: '0' },
  );
}

if (process.env.IS_CLIENT)
  process.on('message', (turn: Turn) => void readAgain(turn).then((rate) => process.send?.(rate)));
else await bench();
