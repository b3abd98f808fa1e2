/**
 * Serves the metrics of an engine or a gateway on a separate port (TAPEGATE_METRICS_LISTEN). Does not require
 * authentication, because metrics name drives, libraries and disks, but not users, paths or addresses.
 */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { logFailure } from '../core/errors.js';
import type { Context } from '../domain/context.js';
import type { Metrics } from './metrics.js';

interface MetricsListener {
  url: string;
  close(): Promise<void>;
}

const CONNECTIONS = 20;
const REQUEST_MS = 10_000;

export async function listenForMetrics(
  { log }: Pick<Context, 'log'>,
  metrics: Metrics,
  { port, host }: { port: number; host: string },
): Promise<MetricsListener> {
  const server = createServer({ requestTimeout: REQUEST_MS, headersTimeout: REQUEST_MS }, (req, res) => {
    const [path] = (req.url ?? '/').split('?');
    if (path !== '/metrics') return end(res, 404, `there is nothing at ${path}: metrics are at /metrics`);
    if (req.method !== 'GET' && req.method !== 'HEAD') return end(res, 405, 'metrics support only GET and HEAD');
    sendMetrics(metrics, res).catch((error) => {
      logFailure(log, error, 'cannot send metrics');
      end(res, 500, 'Internal error');
    });
  });
  server.maxConnections = CONNECTIONS;
  await once(server.listen(port, host), 'listening');
  const { address, family, port: taken } = server.address() as AddressInfo;
  return {
    url: `http://${family === 'IPv6' ? `[${address}]` : address}:${taken}`,
    close: async () => {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

export async function sendMetrics(metrics: Metrics, res: ServerResponse): Promise<void> {
  const text = await metrics.text();
  res.setHeader('Content-Type', metrics.contentType);
  res.setHeader('Cache-Control', 'no-store');
  res.end(text);
}

function end(res: ServerResponse, status: number, text: string): void {
  if (res.headersSent) return void res.destroy();
  res.writeHead(status, { 'Content-Type': 'text/plain; charset=utf-8' }).end(`${text}\n`);
}
