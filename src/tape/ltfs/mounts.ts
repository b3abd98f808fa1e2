/** What is mounted, as the system tells without a look at what may hang. */
import { readFile, realpath } from 'node:fs/promises';
import path from 'node:path';
import { messageOf } from '../../errors.js';
import { DriveError, LibraryError } from '../backend.js';

/**
 * @param table a file in the form of /proc/self/mountinfo
 * @throws DriveError where the folder above the mount point cannot be read, LibraryError where the table cannot
 */
export async function isMounted(table: string, mountPoint: string): Promise<boolean> {
  const tell = (error: unknown) =>
    [`what is mounted at ${mountPoint} is not known: ${messageOf(error)}`, { cause: error }] as const;
  // a dead file system answers nothing about its own place, the folder above it does
  const folder = await realpath(path.dirname(mountPoint)).catch((error: unknown) => {
    throw new DriveError('POLICY', ...tell(error));
  });
  const mounts = await readFile(table, 'utf8').catch((error: unknown) => {
    throw new LibraryError('POLICY', ...tell(error));
  });
  return readMountPoints(mounts).includes(path.join(folder, path.basename(mountPoint)));
}

/** The fifth field of each line; space, tab, line feed and backslash are written in octal digits. */
export function readMountPoints(table: string): string[] {
  return table
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '')
    .filter((field) => field !== '')
    .map(unescapeField);
}

function unescapeField(field: string): string {
  if (!field.includes('\\')) return field;
  const bytes = field.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
  return bytes;
}
