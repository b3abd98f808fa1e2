/** The schema as text, for generators and for people; sent again only when it has changed. */
import type { Request, Response } from 'express';
import { KeptBody } from '../src/encodings.js';
import { HttpError } from '../src/http-body.js';
import { checkMethod } from './http.js';
import { printSorted } from './printed.js';
import { schema } from './schema.js';

/** Below `/graphql`. */
export const SDL_PATH = '/schema.graphql';

/** @param isTold where questions about the schema are refused it is not there either */
export function createSdl(isTold: boolean): (req: Request, res: Response) => Promise<void> {
  let body: KeptBody | undefined;
  return async (req, res) => {
    if (!isTold) throw new HttpError(404, `there is nothing at ${req.originalUrl.split('?')[0]}`);
    checkMethod(req, ['GET', 'HEAD']);
    body ??= new KeptBody(Buffer.from(printSorted(schema))); // when it is first asked for
    res.setHeader('Content-Type', 'text/plain; charset=utf-8');
    await body.send(res);
  };
}
