/** Read-only WebDAV for restored files: the subset that grid clients use. */
import type { Request, RequestHandler } from 'express';
import type { Context } from '../../src/domain/context.js';
import { checkMethod, HttpError } from '../../src/gateway/http/http-body.js';
import { getFile } from './file.js';
import { type Enter, propfind } from './propfind.js';
import type { Copies } from './send.js';

const ALLOW = ['OPTIONS', 'GET', 'HEAD', 'PROPFIND'];

interface TransferHandlers {
  copies: Copies;
  enter: Enter;
  enterDirectory: Enter;
}

/** Creates the handler for WebDAV requests, which must be mounted at `WEBDAV_ROOT`. */
export function createBytesHandler(
  contextOf: (req: Request) => Context,
  { copies, enter, enterDirectory }: TransferHandlers,
): RequestHandler {
  return async (req, res) => {
    const ctx = contextOf(req);
    if (ctx.config.transfer.webdav === 'off')
      throw new HttpError(404, 'this gateway does not serve file contents (TAPEGATE_WEBDAV is off)');
    if (req.method === 'GET' || req.method === 'HEAD') {
      const leave = enter(req);
      return await getFile(ctx, copies, req, res).finally(leave);
    }
    if (req.method === 'PROPFIND') return await propfind(ctx, enterDirectory, req, res);
    checkMethod(req, ALLOW);
    res
      .set({ Allow: ALLOW.join(', '), DAV: '1' })
      .status(200)
      .end();
  };
}
