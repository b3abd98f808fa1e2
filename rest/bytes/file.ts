/** GET and HEAD of a restored file. */
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import type { Request, Response } from 'express';
import type { Context } from '../../src/context.js';
import { logFailure, quote } from '../../src/errors.js';
import { HttpError } from '../../src/http-body.js';
import { findHostsOf, findServed, type ServedCopy, type Unserved } from '../../src/operations/disks/copies.js';
import { findPathProblem } from '../../src/operations/input.js';
import { DISCOVERY_PATH } from '../tape/discovery.js';
import { checkConditions, isRangeGood } from './conditions.js';
import type { ClosedCopy, Copies, OpenCopy } from './copies.js';
import { digestHeaders } from './digests.js';
import { hrefOf, readLogicalPath } from './path.js';
import { type Range, readRanges } from './ranges.js';
import { sendParts } from './send.js';

export async function getFile(ctx: Context, copies: Copies, req: Request, res: Response): Promise<void> {
  const path = readLogicalPath(req.path);
  const found = findPathProblem(path) === undefined ? await findServed(ctx, path) : { problem: 'UNKNOWN' as const };
  if ('problem' in found) throw refusalOf(found.problem, path);
  const { copy } = found;
  const opened = await copies.open(copy, { isPublic: ctx.config.door.webdav === 'public' });
  if ('closed' in opened) throw await explainClosed(ctx, copy, opened);
  try {
    await answer(req, res, copy, opened);
  } catch (error) {
    if (res.headersSent || res.destroyed || res.closed) throw error;
    for (const name of OF_FILE) res.removeHeader(name);
    if (error instanceof HttpError) throw error;
    logFailure(ctx.log, error, 'a copy cannot be read', { path });
    throw unreadable(path);
  } finally {
    opened.close();
  }
}

/** What is said of a file: with an error that is told instead, a reader would wait for as many bytes. */
const OF_FILE = ['Content-Length', 'Content-Range', 'Content-Type', 'ETag', 'Last-Modified', 'Digest', 'Repr-Digest'];

const unreadable = (path: string) =>
  new HttpError(503, `the disk that has ${quote(path)} cannot be read here at the moment`, { 'Retry-After': '30' });

const refusals: Record<Unserved, (path: string) => HttpError> = {
  UNKNOWN: (path) => new HttpError(404, `there is no file ${quote(path)}`),
  FOLDER: (path) => new HttpError(404, `${quote(path)} is a folder, which has no bytes: PROPFIND tells what is in it`),
  NOT_YOURS: (path) => new HttpError(403, `you may not read ${quote(path)}`),
  ON_TAPE: (path) =>
    new HttpError(
      409,
      `${quote(path)} is on tape: stage it first, by the WLCG Tape REST API (${DISCOVERY_PATH}) or a request`,
    ),
  ELSEWHERE: (path) =>
    new HttpError(409, `${quote(path)} is on disk at its primary place, or was changed there, and is not served here`),
  DISK_FAILS: (path) =>
    new HttpError(503, `the disk that has ${quote(path)} does not work at the moment`, { 'Retry-After': '60' }),
};

const refusalOf = (problem: Unserved, path: string) => refusals[problem](path);

/** Where the disk is on another host, whose gateway is known, readers are sent there. */
async function explainClosed(
  ctx: Context,
  { path, diskId }: ServedCopy,
  { closed, message }: ClosedCopy,
): Promise<HttpError> {
  ctx.log.debug({ path, closed }, message);
  if (closed === 'private')
    return new HttpError(403, `${quote(path)} is not for everybody, and only what is is served here`);
  if (closed === 'gone' || closed === 'changed') {
    return new HttpError(
      409,
      `what stands for ${quote(path)} on disk is not the copy that was restored: stage it again`,
    );
  }
  if (closed === 'absent') {
    const hosts = await findHostsOf(ctx, diskId);
    const urls = hosts.flatMap((host) => (host === hostname() ? [] : (ctx.config.door.gateways.get(host) ?? [])));
    const url = urls[Math.floor(Math.random() * urls.length)];
    if (url !== undefined)
      return new HttpError(307, `another gateway has ${quote(path)}`, { Location: url + hrefOf('', path) });
  }
  return unreadable(path);
}

async function answer(req: Request, res: Response, copy: ServedCopy, opened: OpenCopy): Promise<void> {
  const size = Number(copy.size);
  const validators = { etag: etagOf(copy), modifiedAt: new Date(Number(opened.mtimeNs / 1_000_000n)) };
  res.setHeader('ETag', validators.etag);
  res.setHeader('Last-Modified', validators.modifiedAt.toUTCString());
  res.setHeader('Accept-Ranges', 'bytes');
  const status = checkConditions(req.headers, validators);
  if (status === 304) return void res.status(304).end();
  if (status === 412) throw new HttpError(412, `${quote(copy.path)} is not what If-Match or If-Unmodified-Since names`);
  const wanted = { digest: oneOf(req.headers['want-digest']), repr: oneOf(req.headers['want-repr-digest']) };
  res.set(digestHeaders([copy.checksum, copy.copyChecksum], wanted));
  const isRanged = req.method === 'GET' && isRangeGood(oneOf(req.headers['if-range']), validators);
  const ranges = isRanged ? readRanges(req.headers.range, size) : undefined;
  if (ranges?.length === 0) {
    throw new HttpError(416, `${quote(copy.path)} has ${size} bytes`, { 'Content-Range': `bytes */${size}` });
  }
  const body = ranges ? rangedBody(res, ranges, size) : wholeBody(res, size);
  if (req.method === 'HEAD') return void res.end();
  await sendParts(res, opened, body);
}

const oneOf = (header: string | string[] | undefined) => (Array.isArray(header) ? header.join(',') : header);

const TYPE = 'application/octet-stream';

function wholeBody(res: Response, size: number) {
  res.status(200).setHeader('Content-Type', TYPE);
  res.setHeader('Content-Length', size);
  return { parts: [{ head: '', range: { start: 0, length: size } }], tail: '' };
}

/** As several parts where there are several ranges. */
function rangedBody(res: Response, ranges: readonly Range[], size: number) {
  res.status(206);
  const [first] = ranges;
  if (first && ranges.length === 1) {
    res.setHeader('Content-Type', TYPE);
    res.setHeader('Content-Range', contentRange(first, size));
    res.setHeader('Content-Length', first.length);
    return { parts: [{ head: '', range: first }], tail: '' };
  }
  const boundary = randomBytes(16).toString('hex');
  const parts = ranges.map((range, n) => {
    const lines = [
      `${n === 0 ? '' : '\r\n'}--${boundary}`,
      `Content-Type: ${TYPE}`,
      `Content-Range: ${contentRange(range, size)}`,
    ];
    return { head: `${lines.join('\r\n')}\r\n\r\n`, range };
  });
  const tail = `\r\n--${boundary}--\r\n`;
  res.setHeader('Content-Type', `multipart/byteranges; boundary=${boundary}`);
  res.setHeader(
    'Content-Length',
    parts.reduce((sum, { head, range }) => sum + head.length + range.length, tail.length),
  );
  return { parts, tail };
}

const contentRange = ({ start, length }: Range, size: number) => `bytes ${start}-${start + length - 1}/${size}`;

/** The same for the same bytes, at whichever gateway and after whichever restore, where a checksum tells them; else that of this copy. */
function etagOf({ checksum, copyChecksum, size, ino, mtimeNs }: ServedCopy): string {
  const known = copyChecksum ?? checksum;
  if (known?.startsWith('sha256:') || known?.startsWith('md5:')) return `"${known.replace(':', '-')}"`;
  return `"${[size, mtimeNs, ino, known ?? '']
    .map((part) => String(part ?? ''))
    .join('-')
    .replace(':', '-')}"`;
}
