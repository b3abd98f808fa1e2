/** Reads a host's operator token. Small, since every command may need it. */
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import path from 'node:path';
import { codeOf } from '../errors.js';

export function operatorTokenFile(dataDir: string): string {
  return path.join(dataDir, 'operator.token');
}

export interface OperatorToken {
  secret: string;
  /** Uid of the file's owner. */
  owner: number;
}

/** DATA_DIR may belong to any user: links are not followed, and pipes not waited for. */
const FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/**
 * Returns undefined if the file does not exist, is not readable, or is readable by others. Root also accepts another
 * user's file, because it works for the server's user.
 */
export async function readOperatorToken(dataDir: string): Promise<OperatorToken | undefined> {
  const found = await readOwnFile(operatorTokenFile(dataDir));
  return found && { secret: found.text.trim(), owner: found.owner };
}

/** Does the same for any file in DATA_DIR. */
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
