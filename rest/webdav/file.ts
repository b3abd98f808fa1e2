/**
 * Answers GET and HEAD requests for a restored file. Supports conditions and ranges (RFC 9110, sections 13 and 14),
 * `Repr-Digest` (RFC 9530) and `Digest` (RFC 3230).
 */
import { randomBytes } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { hostname } from 'node:os';
import type { Request, Response } from 'express';
import { logFailure, quote } from '../../src/core/errors.js';
import type { Context } from '../../src/domain/context.js';
import {
  findHostsOf,
  findServed,
  type Listed,
  readListed,
  type ServedCopy,
  type Unserved,
} from '../../src/domain/disks/disk-copies.js';
import { recordMissingFiles } from '../../src/domain/disks/missing.js';
import { findPathProblem } from '../../src/domain/input.js';
import { HttpError } from '../../src/gateway/http/http-body.js';
import { DISCOVERY_PATH } from '../tape/discovery.js';
import { hrefOf, readLogicalPath } from '../v1/paths.js';
import { type ClosedCopy, type Copies, type OpenCopy, type Range, sendParts } from './send.js';

export async function getFile(ctx: Context, copies: Copies, req: Request, res: Response): Promise<void> {
  const path = readLogicalPath(req.path);
  const found = findPathProblem(path) === undefined ? await findServed(ctx, path) : { problem: 'UNKNOWN' as const };
  if ('problem' in found) {
    const listed = found.problem === 'ON_TAPE' && req.method === 'HEAD' ? await readListed(ctx, path) : undefined;
    if (listed) return describeNearline(req, res, listed);
    throw refusalOf(found.problem, path);
  }
  const { copy } = found;
  const opened = await copies.open(copy, { isPublic: ctx.config.transfer.webdav === 'public' });
  if ('closed' in opened) throw await explainClosed(ctx, copy, opened);
  try {
    await answer(req, res, copy, opened);
  } catch (error) {
    if (res.headersSent || res.destroyed || res.closed) throw error;
    for (const name of OF_FILE) res.removeHeader(name);
    if (error instanceof HttpError) throw error;
    logFailure(ctx.log, error, 'cannot read the restored copy of a file', { path });
    throw unreadable(path);
  } finally {
    opened.close();
  }
}

/**
 * Answers HEAD requests for a file on tape with the tape copy's size and checksum, as StoRM and dCache do. Clients send
 * HEAD before they stage a file.
 */
function describeNearline(req: Request, res: Response, { size, mtime, checksum, adler32 }: Listed): void {
  res.set({ 'Content-Type': TYPE, 'Content-Length': String(size), 'Accept-Ranges': 'bytes', Locality: 'NEARLINE' });
  if (mtime !== null) res.set('Last-Modified', new Date(`${mtime.slice(0, 23)}Z`).toUTCString());
  res.set(digestHeaders([checksum, withAlgorithm(adler32)], wantedBy(req)));
  res.status(200).end();
}

/** Headers that describe the file. An error response must not contain these headers. */
const OF_FILE = ['Content-Length', 'Content-Range', 'Content-Type', 'ETag', 'Last-Modified', 'Digest', 'Repr-Digest'];

const unreadable = (path: string) =>
  new HttpError(503, `the disk with the copy of ${quote(path)} is temporarily unreadable on this host`, {
    'Retry-After': '30',
  });

const refusals: Record<Unserved, (path: string) => HttpError> = {
  UNKNOWN: (path) => new HttpError(404, `there is no file ${quote(path)}`),
  DIRECTORY: (path) => new HttpError(404, `${quote(path)} is a directory: list it with PROPFIND`),
  NOT_YOURS: (path) => new HttpError(403, `you are not allowed to read ${quote(path)}`),
  // use status 415, as StoRM does, because clients interpret status 409 as "already exists", and then might remove the
  // file
  ON_TAPE: (path) =>
    new HttpError(
      415,
      `${quote(path)} is on tape: stage it first, either with the WLCG Tape REST API (${DISCOVERY_PATH}) or with a Tapegate request`,
    ),
  ELSEWHERE: (path) =>
    new HttpError(
      415,
      `the gateway serves only unchanged restored copies, but ${quote(path)} is at its primary path or was changed on disk`,
    ),
  DISK_FAILS: (path) =>
    new HttpError(503, `the disk with the copy of ${quote(path)} is temporarily unavailable`, { 'Retry-After': '60' }),
};

/** Returns the error for a file that the gateway cannot serve. */
export const refusalOf = (problem: Unserved, path: string) => refusals[problem](path);

/**
 * Returns the error for a copy that this gateway cannot open. If another gateway's host mounts the disk, the error
 * redirects the client to that gateway.
 */
export async function explainClosed(
  ctx: Context,
  { fileId, path, diskId }: ServedCopy,
  { closed, message }: ClosedCopy,
): Promise<HttpError> {
  ctx.log.debug({ path, closed }, message);
  if (closed === 'private')
    return new HttpError(
      403,
      `this gateway serves only files that all users of the host may read, and ${quote(path)} is not one of them`,
    );
  if (closed === 'gone' && (await recordMissingFiles(ctx, [fileId])).size > 0) return refusalOf('ON_TAPE', path);
  if (closed === 'gone' || closed === 'changed') {
    return new HttpError(415, `the restored copy of ${quote(path)} was replaced on disk: stage the file again`);
  }
  if (closed === 'absent') {
    const hosts = await findHostsOf(ctx, diskId);
    const urls = hosts.flatMap((host) => (host === hostname() ? [] : (ctx.config.transfer.gateways.get(host) ?? [])));
    const url = urls[Math.floor(Math.random() * urls.length)];
    if (url !== undefined)
      return new HttpError(307, `another gateway serves ${quote(path)}`, { Location: url + hrefOf('', path) });
  }
  return unreadable(path);
}

async function answer(req: Request, res: Response, copy: ServedCopy, opened: OpenCopy): Promise<void> {
  const size = Number(copy.size);
  const validators = { etag: etagOf(copy), modifiedAt: httpDateOf(opened.mtimeNs) };
  res.setHeader('ETag', validators.etag);
  res.setHeader('Last-Modified', validators.modifiedAt.toUTCString());
  res.setHeader('Accept-Ranges', 'bytes');
  const status = checkConditions(req.headers, validators);
  if (status === 304) return void res.status(304).end();
  if (status === 412)
    throw new HttpError(412, `${quote(copy.path)} does not match the If-Match or If-Unmodified-Since header`);
  res.set(digestHeaders([copy.checksum, copy.copyChecksum, withAlgorithm(copy.adler32)], wantedBy(req)));
  const isRanged = req.method === 'GET' && isRangeGood(oneOf(req.headers['if-range']), validators);
  const ranges = isRanged ? readRanges(req.headers.range, size) : undefined;
  if (ranges?.length === 0) {
    throw new HttpError(416, `the requested range is outside ${quote(copy.path)}, which has ${size} bytes`, {
      'Content-Range': `bytes */${size}`,
    });
  }
  const body = ranges ? rangedBody(res, ranges, size) : wholeBody(res, size);
  if (req.method === 'HEAD') return void res.end();
  await sendParts(res, opened, body);
}

const [FIRST_DATE, LAST_DATE] = [Date.parse('0001-01-01T00:00:00Z'), Date.parse('9999-12-31T23:59:59Z')];

/** Returns a date for an HTTP header. Limits the year to four digits, as HTTP requires. */
const httpDateOf = (ns: bigint): Date => new Date(Math.min(Math.max(Number(ns / 1_000_000n), FIRST_DATE), LAST_DATE));

const oneOf = (header: string | string[] | undefined) => (Array.isArray(header) ? header.join(',') : header);

const wantedBy = ({ headers }: Request): WantedDigests => ({
  digest: oneOf(headers['want-digest']),
  repr: oneOf(headers['want-repr-digest']),
});

const TYPE = 'application/octet-stream';

function wholeBody(res: Response, size: number) {
  res.status(200).setHeader('Content-Type', TYPE);
  res.setHeader('Content-Length', size);
  return { parts: [{ head: '', range: { start: 0, length: size } }], tail: '' };
}

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

/**
 * Returns the ETag of a copy. If possible, uses an MD5 or SHA-256 checksum, so that all gateways send the same ETag for
 * a file.
 */
function etagOf({ checksum, copyChecksum, size, ino, mtimeNs }: ServedCopy): string {
  const known = copyChecksum ?? checksum;
  if (known?.startsWith('sha256:') || known?.startsWith('md5:')) return `"${known.replace(':', '-')}"`;
  return `"${[size, mtimeNs, ino, known ?? '']
    .map((part) => String(part ?? ''))
    .join('-')
    .replace(':', '-')}"`;
}

interface Validators {
  etag: string;
  modifiedAt: Date;
}

/** @returns 304 if the client already has the file, 412 if a precondition fails, otherwise undefined */
function checkConditions(headers: IncomingHttpHeaders, { etag, modifiedAt }: Validators): 304 | 412 | undefined {
  const modified = Math.floor(modifiedAt.getTime() / 1000) * 1000;
  const ifMatch = headers['if-match'];
  if (ifMatch !== undefined) {
    if (!names(ifMatch, etag)) return 412;
  } else if (timeOf(headers['if-unmodified-since']) < modified) return 412;
  const ifNoneMatch = headers['if-none-match'];
  if (ifNoneMatch !== undefined) return names(ifNoneMatch.replace(/(^|,)\s*W\//g, '$1'), etag) ? 304 : undefined;
  return timeOf(headers['if-modified-since']) >= modified ? 304 : undefined;
}

function isRangeGood(ifRange: string | undefined, { etag, modifiedAt }: Validators): boolean {
  if (ifRange === undefined || ifRange === etag) return true;
  if (ifRange.includes('"')) return false;
  return Date.parse(ifRange) === Math.floor(modifiedAt.getTime() / 1000) * 1000;
}

const names = (list: string, etag: string) => list.split(',').some((part) => ['*', etag].includes(part.trim()));

/** Parses a date header. Returns NaN if the header is absent, because every comparison with NaN is false. */
const timeOf = (header: string | undefined): number => Date.parse(header ?? '');

/**
 * Maximum number of ranges in a request. If a request exceeds the maximum, or if its ranges are together larger than
 * the file, the gateway sends the whole file.
 */
const MOST_RANGES = 1000;

/**
 * Parses a `Range` header.
 * @param size the file's size in bytes
 * @returns the ranges; undefined for the whole file; an empty list if no range is within the file
 */
function readRanges(header: string | undefined, size: number): Range[] | undefined {
  const [, list] = /^bytes=([\d\s,-]+)$/.exec(header ?? '') ?? [];
  const parts = list?.split(',').map((part) => part.trim()) ?? [];
  if (parts.length === 0 || parts.length > MOST_RANGES) return undefined;
  const ranges: Range[] = [];
  for (const part of parts) {
    const [, from = '', to = ''] = /^(\d*)-(\d*)$/.exec(part) ?? [];
    if (from === '' && to === '') return undefined;
    const start = from === '' ? Math.max(0, size - Number(to)) : Number(from);
    const last = from === '' || to === '' ? size - 1 : Math.min(Number(to), size - 1);
    if (from !== '' && to !== '' && Number(from) > Number(to)) return undefined;
    if (start < size && last >= start && !(from === '' && Number(to) === 0))
      ranges.push({ start, length: last - start + 1 });
  }
  const asked = ranges.reduce((sum, { length }) => sum + length, 0);
  return ranges.length > 1 && asked > size ? undefined : ranges;
}

/**
 * For each checksum algorithm in the catalogue, the algorithm's names in the response headers `Digest` and
 * `Repr-Digest`. The davix client requests some algorithms by another name (`alias`), and expects that name in the
 * response.
 */
const algorithms: Record<string, { digest: string; alias?: string; form: 'hex' | 'base64'; repr: string }> = {
  adler32: { digest: 'adler32', form: 'hex', repr: 'adler' },
  md5: { digest: 'md5', form: 'base64', repr: 'md5' },
  sha256: { digest: 'sha-256', alias: 'SHA256', form: 'base64', repr: 'sha-256' },
};

/**
 * Values of the request headers `Want-Digest` and `Want-Repr-Digest`. If a header is missing, the response contains all
 * known checksums.
 */
interface WantedDigests {
  digest: string | undefined;
  repr: string | undefined;
}

const withAlgorithm = (adler32: string | null) => (adler32 === null ? null : `adler32:${adler32}`);

/** @param checksums checksums of the form `algorithm:hex`; null stands for an unknown checksum */
function digestHeaders(checksums: readonly (string | null)[], wanted: WantedDigests): Record<string, string> {
  const values = new Map(
    checksums.flatMap((checksum): [string, string][] => {
      const [, name = '', hex = ''] = /^(\w+):([0-9a-f]+)$/.exec(checksum ?? '') ?? [];
      return Object.hasOwn(algorithms, name) ? [[name, hex]] : [];
    }),
  );
  const named = [...values].map(([name, hex]) => ({ ...(algorithms[name] as (typeof algorithms)[string]), hex }));
  const inDigest = named.filter(({ digest }) => isWanted(wanted.digest, digest, /;\s*q\s*=\s*0(\.0*)?\s*$/i));
  const inRepr = named.filter(({ repr }) => isWanted(wanted.repr, repr, /=0\s*$/));
  const base64 = (hex: string) => Buffer.from(hex, 'hex').toString('base64');
  const isAliasWanted = (alias: string) => namesOf(wanted.digest ?? '').some((name) => name.toUpperCase() === alias);
  const inWords = inDigest.flatMap(({ digest, alias, form, hex }) =>
    [digest, ...(alias !== undefined && isAliasWanted(alias) ? [alias] : [])].map(
      (name) => `${name}=${form === 'hex' ? hex : base64(hex)}`,
    ),
  );
  return {
    // do not put a space after a comma, because davix would not find the next value
    ...(inWords.length > 0 && { Digest: inWords.join(',') }),
    ...(inRepr.length > 0 && { 'Repr-Digest': inRepr.map(({ repr, hex }) => `${repr}=:${base64(hex)}:`).join(', ') }),
  };
}

/**
 * Normalizes the name of a checksum algorithm, because clients use different names: davix sends SHA256 instead of
 * sha-256.
 */
const canonical = (algorithm: string) => algorithm.toLowerCase().replaceAll(/[-_]/g, '');

const namesOf = (list: string) => list.split(',').map((part) => part.replace(/[;=].*$/s, '').trim());

/**
 * Returns whether a header requests the algorithm `name`.
 * @param refused matches an item of the header that excludes the algorithm, such as `md5;q=0`
 */
function isWanted(list: string | undefined, name: string, refused: RegExp): boolean {
  if (list === undefined) return true;
  return list.split(',').some((part) => {
    const [wanted = ''] = namesOf(part);
    return canonical(wanted) === canonical(name) && !refused.test(part);
  });
}
