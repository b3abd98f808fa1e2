/** Where the OpenAPI document of the REST contract is read: by programs, and by people. It says nothing of anybody. */
import { createHash } from 'node:crypto';
import type { RequestHandler } from 'express';
import { KeptBody } from '../src/encodings.js';
import { HttpError } from '../src/http-body.js';
import { describeRest } from './openapi.js';
import { renderPage, STYLE } from './openapi-page.js';

interface Kept {
  type: string;
  policy?: string;
  body: KeptBody;
}

const POLICY = [
  "default-src 'none'",
  `style-src 'sha256-${createHash('sha256').update(STYLE).digest('base64')}'`,
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');

/** Answers GET and HEAD of `/openapi.json` and of `/openapi`, and leaves all else alone. @param publicUrl where users find the gateway */
export function createOpenapi(publicUrl: string | undefined): RequestHandler {
  let kept: Map<string, Kept> | undefined;
  return (req, res, next) => {
    if (req.path !== '/openapi.json' && req.path !== '/openapi') return next();
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      throw new HttpError(405, `${req.method} is not allowed here, only GET, HEAD`, { Allow: 'GET, HEAD' });
    }
    kept ??= keepBoth(publicUrl); // when it is first asked for
    const { type, policy, body } = kept.get(req.path) as Kept;
    res.setHeader('Content-Type', type);
    if (policy !== undefined) res.setHeader('Content-Security-Policy', policy);
    body.send(res).catch(next);
  };
}

function keepBoth(publicUrl: string | undefined): Map<string, Kept> {
  const document = describeRest(publicUrl);
  const json = new KeptBody(Buffer.from(`${JSON.stringify(document, null, 2)}\n`));
  const page = new KeptBody(Buffer.from(renderPage(document)));
  return new Map<string, Kept>([
    ['/openapi.json', { type: 'application/json', body: json }],
    ['/openapi', { type: 'text/html; charset=utf-8', policy: POLICY, body: page }],
  ]);
}
