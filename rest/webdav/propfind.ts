/** Answers PROPFIND with depth 0 or 1 (RFC 4918). Grid clients use PROPFIND to check files and to list directories. */
import type { Request, Response } from 'express';
import { quote } from '../../src/core/errors.js';
import { type Entry, listDirectory, readEntry } from '../../src/domain/catalogue/directories.js';
import type { Context } from '../../src/domain/context.js';
import { findPathProblem } from '../../src/domain/input.js';
import { HttpError } from '../../src/gateway/http/http-body.js';
import { hrefOf, readLogicalPath } from '../v1/paths.js';

/** Takes a slot of the caller's limiter. @returns a function that releases the slot @throws HttpError 429, 503 */
export type Enter = (req: Request) => () => void;

/** Maximum number of entries in a directory listing. GraphQL can page through larger directories. */
const MOST = 10_000;

/**
 * Answers PROPFIND with all properties, even if the client requests only some.
 * @param enter takes a slot of the limiter for directory listings
 */
export async function propfind(ctx: Context, enter: Enter, req: Request, res: Response): Promise<void> {
  const path = readLogicalPath(req.path);
  const depth = req.headers.depth ?? 'infinity';
  if (depth !== '0' && depth !== '1')
    throw new HttpError(403, `the Depth header must be 0 or 1, not ${quote(String(depth))}`);
  const isPath = path === '' || findPathProblem(path) === undefined;
  const entry = isPath ? await readEntry(ctx, path) : undefined;
  if (!entry) throw new HttpError(404, `there is no file or directory ${quote(path)}`);
  if (depth === '0' || !entry.isDirectory) return send(ctx, res, [entry]);
  const leave = enter(req);
  try {
    const entries = await listDirectory(ctx, path, { limit: MOST });
    if (entries.length > MOST)
      throw new HttpError(507, `${quote(path)} has more than ${MOST} entries: list it with GraphQL`);
    send(ctx, res, [entry, ...entries]);
  } catch (error) {
    leave();
    throw error;
  }
  // keep the slot until the response closes, because the response uses memory until the client has read the response
  if (res.closed) leave();
  else res.once('close', leave);
}

const HEAD = '<?xml version="1.0" encoding="utf-8"?>\n<D:multistatus xmlns:D="DAV:">';
const TAIL = '</D:multistatus>\n';

function send({ config }: Context, res: Response, entries: readonly Entry[]): void {
  const prefix = config.publicUrl === undefined ? '' : new URL(config.publicUrl).pathname.replace(/\/$/, '');
  const responses = entries.map((each) => present(each, hrefOf(prefix, each.path)));
  res.status(207).setHeader('Content-Type', 'application/xml; charset=utf-8');
  res.end(HEAD + responses.join('') + TAIL);
}

function present({ path, isDirectory, size, mtime }: Entry, href: string): string {
  const properties = [
    `<D:displayname>${escapeXml(path.slice(path.lastIndexOf('/') + 1))}</D:displayname>`,
    `<D:resourcetype>${isDirectory ? '<D:collection/>' : ''}</D:resourcetype>`,
    isDirectory ? '' : `<D:getcontentlength>${size}</D:getcontentlength>`,
    mtime === null ? '' : `<D:getlastmodified>${new Date(`${mtime.slice(0, 23)}Z`).toUTCString()}</D:getlastmodified>`,
  ];
  return (
    `<D:response><D:href>${escapeXml(isDirectory ? `${href}/` : href)}</D:href><D:propstat><D:prop>${properties.join('')}</D:prop>` +
    '<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>'
  );
}

const ENTITIES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };

/** Escapes text for XML, and replaces characters that XML does not allow. */
function escapeXml(text: string): string {
  return text
    .replace(/[&<>"]/g, (character) => ENTITIES[character] ?? '')
    .replace(/(?![\t\n\r])\p{Cc}|[\ufffe\uffff]/gu, '\ufffd');
}
