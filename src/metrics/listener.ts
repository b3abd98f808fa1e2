/**
 * A port for metrics alone (METRICS_LISTEN): of an engine, which has no other, and of a gateway where it is to be another one than callers
 * have. Whoever reaches it may read them: they name drives, libraries and disks, and no user, path or address.
 */
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Context } from '../context.js';
import { logFailure } from '../errors.js';
import type { Metrics } from './metrics.js';

export interface MetricsListener {
  /** `http://host:port` */
  url: string;
  close(): Promise<void>;
}

/** For whoever scrapes: one at a time each, and few of them. */
const CONNECTIONS = 20;
const REQUEST_MS = 10_000;

/** @throws Error when the port is taken */
export async function listenForMetrics(
  { log }: Pick<Context, 'log'>,
  metrics: Metrics,
  { port, host }: { port: number; host: string },
): Promise<MetricsListener> {
  const server = createServer({ requestTimeout: REQUEST_MS, headersTimeout: REQUEST_MS }, (req, res) => {
    const [path] = (req.url ?? '/').split('?');
    if (path !== '/metrics') return end(res, 404, `there is nothing at ${path}, only /metrics`);
    if (req.method !== 'GET' && req.method !== 'HEAD') return end(res, 405, 'metrics are read by GET');
    tellMetrics(metrics, res).catch((error) => {
      logFailure(log, error, 'metrics');
      end(res, 500, 'Internal error');
    });
  });
  server.maxConnections = CONNECTIONS;
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(port, host, resolve);
  });
  const { address, family, port: taken } = server.address() as AddressInfo;
  return { url: `http://${family === 'IPv6' ? `[${address}]` : address}:${taken}`, close: () => close(server) };
}

/** Also for the path of a gateway. */
export async function tellMetrics(metrics: Metrics, res: ServerResponse): Promise<void> {
  const text = await metrics.text();
  res.setHeader('Content-Type', metrics.contentType);
  res.setHeader('Cache-Control', 'no-store');
  res.end(text);
}

function end(res: ServerResponse, status: number, text: string): void {
  if (res.headersSent) return void res.destroy();
  res.writeHead(status, { 'Content-Type': 'text/plain; charset=utf-8' }).end(`${text}\n`);
}

async function close(server: Server): Promise<void> {
  const closed = new Promise<void>((resolve) => {
    server.close(() => resolve());
  });
  server.closeAllConnections();
  await closed;
}
