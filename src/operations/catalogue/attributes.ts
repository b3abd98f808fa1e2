/** What the catalogue has of the file that was archived, beside its bytes. All of it may be unknown. */
import { parseTime, timeFromMicros } from '../../time.js';

export interface FileAttributes {
  /** Permission and set-id bits, as they were. */
  mode: number | null;
  /** Time of modification. */
  mtime: string | null;
  uid: bigint | null;
  gid: bigint | null;
}

const MODE_BITS = 0o7777n;

/** The attributes of a file on disk; a time that the catalogue cannot hold is unknown. */
export function attributesOf(stats: { mode: bigint; mtimeNs: bigint; uid: bigint; gid: bigint }): FileAttributes {
  const { mode, mtimeNs, uid, gid } = stats;
  return { mode: Number(mode & MODE_BITS), mtime: timeFromMicros(mtimeNs / 1000n) ?? null, uid, gid };
}

/** `0640`, as `find -printf %m` and `stat -c %a` print it; undefined for anything else. */
export function parseMode(text: string): number | undefined {
  return /^0?[0-7]{1,4}$/.test(text) ? Number.parseInt(text, 8) : undefined;
}

/** A UTC date-time, or seconds since 1970 as `find -printf %T@` prints them, cut to microseconds. */
export function parseFileTime(text: string): string | undefined {
  const [, sign = '', seconds, digits = ''] = /^(-?)(\d{1,12})(?:\.(\d{1,10}))?$/.exec(text) ?? [];
  if (seconds === undefined) return parseTime(text);
  const micros = BigInt(seconds + digits.slice(0, 6).padEnd(6, '0'));
  return timeFromMicros(sign === '-' ? -micros : micros);
}

/** The greatest user or group: the one after it means "none". */
const MAX_OWNER = 2n ** 32n - 2n;

/** The number of a user or a group. */
export function parseOwner(text: string): bigint | undefined {
  if (!/^\d{1,10}$/.test(text)) return undefined;
  const owner = BigInt(text);
  return owner <= MAX_OWNER ? owner : undefined;
}
