/**
 * Observes every request until its response ends. Assigns an id, measures the duration, and writes a trace span and, if
 * configured, a log line.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { secondsSince, time } from '../../core/signals.js';
import { isTracing, type Span, startServerSpan } from '../../core/traces.js';
import type { Context } from '../../domain/context.js';
import { addressOf } from './address.js';
import { idOf, takeId } from './request-ids.js';
import { methodOf, routeOf } from './routes.js';

const MAX_PATH = 500;

/**
 * @returns an observer function, which the gateway must call for each request before it calls the request's handlers
 */
export function createObserver({ config, log }: Pick<Context, 'config' | 'log'>) {
  const { accessLog } = config.telemetry;
  return (req: IncomingMessage, res: ServerResponse): void => {
    const startedAt = performance.now();
    const target = req.url ?? '/'; // save the target now, because routers change `req.url` later
    takeId(req, res);
    const method = methodOf(req.method);
    const span = isTracing() ? startSpan(req, res, `${method} ${routeOf(target)}`) : undefined;
    res.once('close', () => {
      const seconds = secondsSince(startedAt);
      const route = routeOf(target);
      time('tapegate_http_request_seconds', { method, route, status: statusOf(res) }, seconds);
      if (span) endSpan(span, res);
      if (!accessLog) return;
      const status = res.headersSent ? res.statusCode : undefined;
      const ms = Math.round(seconds * 10_000) / 10;
      const fields = { method: req.method, path: pathOf(target), route, status, ms, address: addressOf(req) };
      log.info({ ...fields, ...idOf(res) }, 'HTTP request completed');
    });
  };
}

/** Returns a request target's path. Omits the query string, because it can be long or contain secrets. */
const pathOf = (target: string): string => (target.split('?', 1)[0] ?? '').slice(0, MAX_PATH);

function statusOf({ headersSent, statusCode }: ServerResponse): string {
  return headersSent ? `${Math.floor(statusCode / 100)}xx` : 'gone';
}

const spans = new WeakMap<ServerResponse, Span>();

/** Returns the trace context of a request; undefined if the request is not traced. */
export function traceparentOf(res: ServerResponse): string | undefined {
  return isTracing() ? spans.get(res)?.traceparent : undefined;
}

function startSpan(req: IncomingMessage, res: ServerResponse, name: string): Span | undefined {
  const [method = '', route = ''] = name.split(' ');
  const { xRequestId = '' } = idOf(res);
  const attributes = { 'http.request.method': method, 'http.route': route, 'tapegate.x_request_id': xRequestId };
  const span = startServerSpan(name, req.headers.traceparent, attributes);
  if (span) spans.set(res, span);
  return span;
}

function endSpan(span: Span, { headersSent, statusCode }: ServerResponse): void {
  const isFault = headersSent && statusCode >= 500;
  span.end(
    headersSent ? { 'http.response.status_code': statusCode } : {},
    isFault ? `status ${statusCode}` : undefined,
  );
}
