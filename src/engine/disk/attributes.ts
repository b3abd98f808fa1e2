/**
 * What a restored file has of its original beside the bytes: time of modification, mode, owner and group. Nothing of it
 * comes from the umask of the process, and no file gets a set-id bit.
 */
import type { Stats } from 'node:fs';
import type { Context } from '../../context.js';
import { codeOf } from '../../errors.js';
import type { FileAttributes } from '../../operations/catalogue/attributes.js';
import { secondsOf } from '../../time.js';
import { changeMode, changeOwner, changeTimes, statFile } from './descriptors.js';

/** As a restored file gets them; null leaves what the file system gives. */
export interface WantedAttributes {
  /** Permission bits only. */
  mode: number;
  uid: number | null;
  gid: number | null;
  mtime: string | null;
}

/** Of files of which the catalogue has no mode, and of folders. */
const FILE_MODE = 0o644;
export const FOLDER_MODE = 0o755;

const PERMISSIONS = 0o777;

/** What the configuration says goes before what the catalogue has of the original. */
export function wantedAttributes(config: Context['config'], original: FileAttributes): WantedAttributes {
  return {
    mode: (config.restoreMode ?? original.mode ?? FILE_MODE) & PERMISSIONS,
    uid: original.uid === null ? null : Number(original.uid),
    gid: config.restoreGroup ?? (original.gid === null ? null : Number(original.gid)),
    mtime: original.mtime,
  };
}

/**
 * Gives an open file its attributes. Owner and group as far as this process may: root may give files away, others only to
 * their own groups.
 */
export async function setAttributes(fd: number, wanted: WantedAttributes): Promise<void> {
  const stats = await statFile(fd);
  await setOwner(fd, wanted, stats);
  // after the owner, since the mode says what that owner may do; what is right already costs no call
  if ((stats.mode & 0o7777) !== wanted.mode) await changeMode(fd, wanted.mode).catch(ignoreRefusal);
  if (wanted.mtime !== null) await changeTimes(fd, new Date(), toFileTime(wanted.mtime));
}

async function setOwner(fd: number, { uid, gid }: WantedAttributes, stats: Stats): Promise<void> {
  const owner = uid === null || uid === stats.uid || process.geteuid?.() !== 0 ? KEEP : uid;
  const group = gid === null || gid === stats.gid ? KEEP : gid;
  if (owner !== KEEP || group !== KEEP) await changeOwner(fd, owner, group).catch(ignoreRefusal);
}

const KEEP = -1;

/** Of what this process, or the file system, cannot do; the bytes are restored all the same. */
const REFUSALS = ['EPERM', 'EINVAL', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP'];

function ignoreRefusal(error: unknown): void {
  if (!REFUSALS.includes(codeOf(error) ?? '')) throw error;
}

/**
 * Seconds are cut to microseconds on their way to the system, and a number of them may be a little less than it should
 * be: half a microsecond more makes it right. Negative numbers count as now, hence a Date.
 */
function toFileTime(time: string): number | Date {
  const seconds = secondsOf(time);
  return seconds < 0 ? new Date(seconds * 1000) : (Math.round(seconds * 1e6) + 0.5) / 1e6;
}
