/** Assigns an id to each HTTP request, for logs and the response: the client's own id, or a new id. */
import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';

const NAME = 'X-Request-Id';

const ID = /^[\w.~+/=:@-]{1,128}$/;

export function takeId(req: IncomingMessage, res: ServerResponse): void {
  const given = req.headers['x-request-id'];
  res.setHeader(NAME, typeof given === 'string' && ID.test(given) ? given : randomUUID());
}

export function idOf(res: Pick<ServerResponse, 'getHeader'>): { xRequestId?: string } {
  const id = res.getHeader(NAME);
  return typeof id === 'string' ? { xRequestId: id } : {};
}
