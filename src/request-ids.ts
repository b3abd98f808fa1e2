/** By what one request over HTTP is known in the log: `X-Request-Id`, as its sender has it, or one of our own; each answer has it. */
import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';

const NAME = 'X-Request-Id';

/** It stands in logs as it came: others are not taken. */
const ID = /^[\w.~+/=:@-]{1,128}$/;

/** To be called once, first of all. */
export function takeId(req: IncomingMessage, res: ServerResponse): void {
  const given = req.headers['x-request-id'];
  res.setHeader(NAME, typeof given === 'string' && ID.test(given) ? given : randomUUID());
}

/** For a line of the log. */
export function idOf(res: Pick<ServerResponse, 'getHeader'>): { xRequestId?: string } {
  const id = res.getHeader(NAME);
  return typeof id === 'string' ? { xRequestId: id } : {};
}
