/** Every request is observed from its header to the end of its answer: timed, by the template of its route. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { secondsSince, time } from '../signals.js';
import { methodOf, routeOf } from './routes.js';

/** Of a request whose target is a path. */
export function observe(req: IncomingMessage, res: ServerResponse): void {
  const startedAt = performance.now();
  const target = req.url ?? '/'; // routers change it meanwhile
  res.once('close', () => {
    const labels = { method: methodOf(req.method), route: routeOf(target), status: statusOf(res) };
    time('tapegate_http_request_seconds', labels, secondsSince(startedAt));
  });
}

/** `2xx`; `gone` for who has left without an answer. */
function statusOf({ headersSent, statusCode }: ServerResponse): string {
  return headersSent ? `${Math.floor(statusCode / 100)}xx` : 'gone';
}
