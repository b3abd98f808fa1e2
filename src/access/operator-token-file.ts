/** Where the operator's token of a host is, and how it is read: light, since every command may need it. */
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import path from 'node:path';
import { codeOf } from '../errors.js';

export function operatorTokenFile(dataDir: string): string {
  return path.join(dataDir, 'operator.token');
}

export interface OperatorToken {
  secret: string;
  /** Id of the system user whose file it is, and who knows it. */
  owner: number;
}

/** DATA_DIR may be anybody's: a link is not followed, and a pipe that nobody writes to not waited for. */
const FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/**
 * Undefined where there is none, where it is not for us to read, or where others might read it, who have it by now. Of another
 * user than ourselves and root it is taken by root alone, which works for the user as whom the server runs.
 */
export async function readOperatorToken(dataDir: string): Promise<OperatorToken | undefined> {
  const found = await readOwnFile(operatorTokenFile(dataDir));
  return found && { secret: found.text.trim(), owner: found.owner };
}

/** The same of any file in DATA_DIR. */
export async function readOwnFile(name: string): Promise<{ text: string; owner: number } | undefined> {
  let file: FileHandle | undefined;
  try {
    file = await open(name, FLAGS);
    const stats = await file.stat();
    const self = process.geteuid?.() ?? stats.uid;
    const isTrusted = self === 0 || stats.uid === 0 || stats.uid === self;
    if (!stats.isFile() || !isTrusted || (stats.mode & 0o077) !== 0) return undefined;
    return { text: await file.readFile('utf8'), owner: stats.uid };
  } catch (error) {
    if (['ENOENT', 'EACCES', 'ENOTDIR', 'ELOOP', 'ENXIO'].includes(codeOf(error) ?? '')) return undefined;
    throw error;
  } finally {
    await file?.close();
  }
}
