/** Compares the gateway with a minimal reference server. Clients in another process load the two servers in turns. */
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { inTurns, tellFigure, WARM_ROUNDS } from './figures.js';
import { type Load, startLoad } from './load.js';

export interface Pair {
  /** Request listener to serve in this process, or the URL of a running server. */
  reference: RequestListener | string;
  /** Name of the reference. */
  beside: string;
  work: string;
  bound: number;
  /** Path and query string to request from both servers. */
  path: string;
  load: Partial<Load>;
}

export interface Turns {
  clients: number;
  /** Duration of one turn. */
  seconds: number;
  rounds: number;
}

/** Serves `listener` while `work` runs. If `listener` is a URL, `work` gets that URL. */
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
 * Prints the request rates of the gateway and of the reference.
 * @param url of the gateway
 * @returns the gateway's median latency in its last turn, in milliseconds
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
