/** Where the operator's token of a host is, and how it is read: light, since every command may need it. */
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
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

/** Undefined where there is none, or where it is not for us to read. */
export async function readOperatorToken(dataDir: string): Promise<OperatorToken | undefined> {
  try {
    // DATA_DIR may be anybody's: what is no file, such as a pipe that nobody writes to, is not waited for
    const file = await open(operatorTokenFile(dataDir), constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const found = await file.stat();
      return found.isFile() ? { secret: (await file.readFile('utf8')).trim(), owner: found.uid } : undefined;
    } finally {
      await file.close();
    }
  } catch (error) {
    if (['ENOENT', 'EACCES', 'ENOTDIR'].includes(codeOf(error) ?? '')) return undefined;
    throw error;
  }
}
