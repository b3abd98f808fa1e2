/** One thing asked of a gateway and of the least that could give the same answer, by clients in another process, in turns. */
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { inTurns, tellFigure, WARM_ROUNDS } from './figures.js';
import { type Load, startLoad } from './load.js';

export interface Pair {
  /** Answers in the gateway's place: in this process, or a server at an address. */
  reference: RequestListener | string;
  /** What the reference is. */
  beside: string;
  work: string;
  bound: number;
  /** What is asked for, below the address of either. */
  path: string;
  load: Partial<Load>;
}

export interface Turns {
  clients: number;
  /** Of each turn. */
  seconds: number;
  rounds: number;
}

/** Runs `work` with the address of a server that answers by `listener`. */
export async function withServer<T>(listener: RequestListener | string, work: (url: string) => Promise<T>): Promise<T> {
  if (typeof listener === 'string') return await work(listener);
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  try {
    return await work(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

/**
 * Tells the rates of both.
 * @param url of the gateway
 * @returns of the gateway, the median of what an answer takes, in milliseconds
 */
export async function compare(url: string, pair: Pair, { clients, seconds, rounds }: Turns): Promise<number> {
  const { reference, beside, work, bound, path, load: what } = pair;
  return await withServer(reference, async (other) => {
    const load = startLoad();
    let latency = Number.NaN;
    const at = (base: string) => async () => {
      const answered = await load.run({ ...what, url: `${base}${path}`, clients, seconds });
      if (base === url) latency = answered.median;
      return answered.perSecond;
    };
    try {
      const ways = { ours: at(url), reference: at(other) };
      await inTurns(ways, WARM_ROUNDS);
      const rates = await inTurns(ways, rounds);
      const each = (all: readonly number[]) => all.map((rate) => rate.toFixed(0)).join(' ');
      console.log(`Tapegate ${each(rates.ours.all)}, ${beside} ${each(rates.reference.all)}`);
      tellFigure({ work, ours: rates.ours.median, reference: rates.reference.median, beside, unit: '/s', bound });
      return latency;
    } finally {
      load.close();
    }
  });
}
