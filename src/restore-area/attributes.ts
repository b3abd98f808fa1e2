/**
 * Sets restored files' owner, group, mode and modification time, regardless of the umask. Never sets a set-user-id or
 * set-group-id bit.
 */
import type { Stats } from 'node:fs';
import { codeOf } from '../core/errors.js';
import { secondsOf } from '../core/time.js';
import type { FileAttributes } from '../domain/catalogue/attributes.js';
import { type Access, DIRECTORY_MODE } from '../domain/catalogue/directory-modes.js';
import type { Context } from '../domain/context.js';
import { changeMode, changeOwner, changeTimes, statFile } from './descriptors.js';

/** A restored file's attributes. If an attribute is null, the file system's default remains. */
export interface WantedAttributes {
  /** The file's permission bits, without set-user-id, set-group-id and sticky bits. */
  mode: number;
  uid: number | null;
  gid: number | null;
  mtime: string | null;
}

const FILE_MODE = 0o644;

const PERMISSIONS = 0o777;

/**
 * Returns a restored file's attributes. A mode or group in the settings takes precedence over the mode or group in the
 * catalogue.
 */
export function wantedAttributes(config: Context['config'], original: FileAttributes): WantedAttributes {
  return {
    mode: (config.restoreMode ?? original.mode ?? FILE_MODE) & PERMISSIONS,
    uid: original.uid === null ? null : Number(original.uid),
    gid: config.restoreGroup ?? (original.gid === null ? null : Number(original.gid)),
    mtime: original.mtime,
  };
}

export interface DirectoryAttributes {
  mode: number;
  gid: number | null;
}

/**
 * Returns a restored directory's attributes. If the settings contain a file mode, this mode also determines which users
 * can enter the directory. Gives write permission only to the owner, because only Tapegate is allowed to write in the
 * restore area (exposure.ts).
 */
export function wantedDirectory(
  { restoreMode, restoreGroup }: Context['config'],
  original: Access | undefined,
): DirectoryAttributes {
  const gid = restoreGroup ?? (original?.gid == null ? null : Number(original.gid));
  const mode =
    restoreMode === undefined ? (original?.mode ?? DIRECTORY_MODE) : restoreMode | ((restoreMode & 0o444) >> 2);
  return { mode: 0o700 | (mode & 0o055), gid };
}

/** Sets an open file's attributes. Leaves the owner unchanged if this process does not run as root. */
export async function setAttributes(fd: number, wanted: WantedAttributes): Promise<void> {
  const stats = await statFile(fd);
  const mode = (await setOwner(fd, wanted, stats)) ? wanted.mode : withoutGroup(wanted.mode);
  if ((stats.mode & 0o7777) !== mode) await changeMode(fd, mode).catch(ignoreRefusal);
  if (wanted.mtime !== null) await changeTimes(fd, new Date(), toFileTime(wanted.mtime)).catch(ignoreRefusal);
}

async function setOwner(fd: number, { uid, gid }: WantedAttributes, stats: Stats): Promise<boolean> {
  const owner = uid === null || uid === stats.uid || process.geteuid?.() !== 0 ? KEEP : uid;
  const group = gid === null || gid === stats.gid ? KEEP : gid;
  if (owner === KEEP && group === KEEP) return true;
  const isSet = await changeOwner(fd, owner, group).then(
    () => true,
    (error: unknown) => ignoreRefusal(error) ?? false,
  );
  return isSet || group === KEEP;
}

/**
 * Returns the mode for a file whose group cannot be set. This mode gives the current group only the permissions that it
 * gives to all other users.
 */
export const withoutGroup = (mode: number): number => (mode & ~0o070) | ((mode & 0o007) << 3);

const KEEP = -1;

/**
 * Error codes that mean that this process or the file system cannot set an attribute. After such an error, Tapegate
 * leaves the attribute unchanged.
 */
const REFUSALS = ['EPERM', 'EINVAL', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP', 'EOVERFLOW'];

export function ignoreRefusal(error: unknown): undefined {
  if (!REFUSALS.includes(codeOf(error) ?? '')) throw error;
}

/**
 * Converts a time to a value that `futimes` accepts. Adds half a microsecond, because Node.js truncates times to whole
 * microseconds, and rounding errors could lower the result. Converts a negative number to a Date, because Node.js would
 * replace a negative number with the current time.
 */
function toFileTime(time: string): number | Date {
  const seconds = secondsOf(time);
  return seconds < 0 ? new Date(seconds * 1000) : (Math.round(seconds * 1e6) + 0.5) / 1e6;
}
