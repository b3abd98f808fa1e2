/** Mode, owner and modification time of archived files. */
import { parseTime, timeFromMicros } from '../../core/time.js';

export interface FileAttributes {
  /** The permission, set-user-ID, set-group-ID and sticky bits. */
  mode: number | null;
  mtime: string | null;
  uid: bigint | null;
  gid: bigint | null;
}

const MODE_BITS = 0o7777n;

/**
 * Returns the attributes that a file has on disk. If the database cannot store the file's modification time, returns
 * null for it.
 */
export function attributesOf(stats: { mode: bigint; mtimeNs: bigint; uid: bigint; gid: bigint }): FileAttributes {
  const { mode, mtimeNs, uid, gid } = stats;
  return { mode: Number(mode & MODE_BITS), mtime: timeFromMicros(mtimeNs / 1000n) ?? null, uid, gid };
}

/** Parses an octal mode such as `0640`, as printed by `find -printf %m` and `stat -c %a`. */
export function parseMode(text: string): number | undefined {
  return /^0?[0-7]{1,4}$/.test(text) ? Number.parseInt(text, 8) : undefined;
}

/**
 * Parses a UTC date-time, or seconds since 1970 as printed by `find -printf %T@`. Truncates the time to microseconds.
 */
export function parseFileTime(text: string): string | undefined {
  const [, sign = '', seconds, digits = ''] = /^(-?)(\d{1,12})(?:\.(\d{1,10}))?$/.exec(text) ?? [];
  if (seconds === undefined) return parseTime(text);
  const micros = BigInt(seconds + digits.slice(0, 6).padEnd(6, '0'));
  return timeFromMicros(sign === '-' ? -micros : micros);
}

/**
 * The largest user or group id. The next number, 2^32 - 1, is reserved: system calls use it for "no user" or "no
 * group".
 */
const MAX_OWNER = 2n ** 32n - 2n;

export function parseOwner(text: string): bigint | undefined {
  if (!/^\d{1,10}$/.test(text)) return undefined;
  const owner = BigInt(text);
  return owner <= MAX_OWNER ? owner : undefined;
}
