/** Conditions on what a reader has already: RFC 9110, 13. */
import type { IncomingHttpHeaders } from 'node:http';

/** Of the file as it is. */
export interface Validators {
  /** Strong, with its quotes. */
  etag: string;
  modifiedAt: Date;
}

/** @returns 304 where the reader has it, 412 where it wanted another one, undefined where it is to have it */
export function checkConditions(headers: IncomingHttpHeaders, { etag, modifiedAt }: Validators): 304 | 412 | undefined {
  const modified = Math.floor(modifiedAt.getTime() / 1000) * 1000;
  const ifMatch = headers['if-match'];
  if (ifMatch !== undefined) {
    if (!names(ifMatch, etag)) return 412;
  } else if (timeOf(headers['if-unmodified-since']) < modified) return 412;
  const ifNoneMatch = headers['if-none-match'];
  if (ifNoneMatch !== undefined) return names(ifNoneMatch.replace(/(^|,)\s*W\//g, '$1'), etag) ? 304 : undefined;
  return timeOf(headers['if-modified-since']) >= modified ? 304 : undefined;
}

/** Are ranges of the file those that the reader goes on with? */
export function isRangeGood(ifRange: string | undefined, { etag, modifiedAt }: Validators): boolean {
  if (ifRange === undefined || ifRange === etag) return true;
  if (ifRange.includes('"')) return false;
  return Date.parse(ifRange) === Math.floor(modifiedAt.getTime() / 1000) * 1000;
}

const names = (list: string, etag: string) => list.split(',').some((part) => ['*', etag].includes(part.trim()));

/** NaN, which is neither before nor after anything, where there is none. */
const timeOf = (header: string | undefined): number => Date.parse(header ?? '');
