/** What callers may take of the gateway, put together in one place. */
import type { RequestHandler } from 'express';
import type { Config } from '../../config.js';
import { limitBody } from '../../http-body.js';
import { BodyRooms } from './bodies.js';
import { limitKey } from './key.js';

/** To stand before all that answers. */
export function limitCallers({ limits }: Config): RequestHandler[] {
  const bodies = new BodyRooms(limits);
  return [
    (req, res, next) => {
      limitBody(req, () => bodies.enter(limitKey(req), res));
      next();
    },
  ];
}
