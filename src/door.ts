/** What the world's transfer tools meet, put together: the WLCG Tape REST API, and the bytes of restored files. */
import type { Express, Request, RequestHandler } from 'express';
import { createBytesHandler } from '../rest/bytes/router.js';
import { createDiscovery, DISCOVERY_PATH, TAPE_PATH } from '../rest/tape/discovery.js';
import { WEBDAV_ROOT } from '../rest/tape/paths.js';
import { createProblemHandler, createTapeRouter } from '../rest/tape/router.js';
import { limitKey, Shares } from './access/limits.js';
import type { Context } from './context.js';
import { CopyDoor } from './engine/disk/copy-door.js';

/** Whose callers are to be known, and are limited. */
export const DOOR_PATHS = [TAPE_PATH, WEBDAV_ROOT];

const SLASHES = /^\/{2,}(?=(?:webdav|tape_rest)(?:[/?]|$))/;

/** Before who asks is asked for: grid clients join the name of a host and a path by slashes that both have. */
export const joinSlashes: RequestHandler = (req, _res, next) => {
  req.url = req.url.replace(SLASHES, '/');
  next();
};

/** @param contextFor gives the context in which a request is served */
export function mountDoor(app: Express, ctx: Context, contextFor: (req: Request) => Context): void {
  app.get(DISCOVERY_PATH, createDiscovery(ctx.config));
  app.use(TAPE_PATH, createTapeRouter(contextFor, ctx.log));
  const copies = new CopyDoor({ calls: ctx.config.door.diskCalls, seconds: ctx.config.diskTimeout });
  const { downloads, longLists } = ctx.config.limits;
  const shareOf = (what: string, all: number) => {
    const shares = new Shares(what, { all, one: Math.floor(all / 2) });
    return (req: Request) => shares.take(limitKey(req));
  };
  const [enter, enterFolder] = [
    shareOf('files that are read', downloads),
    shareOf('folders that are listed', longLists),
  ];
  app.use(WEBDAV_ROOT, createBytesHandler(contextFor, { copies, enter, enterFolder }));
}

/** For what goes wrong there, or on the way there. */
export function mountDoorErrors(app: Express, { log }: Context): void {
  app.use([...DOOR_PATHS], createProblemHandler(log));
}
