/** The operator's token of a host: `DATA_DIR/operator.token`. Read by every command, so that nothing else is loaded here. */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { codeOf } from '../errors.js';

export function operatorTokenFile(dataDir: string): string {
  return path.join(dataDir, 'operator.token');
}

/** Undefined where there is none, or where it is not for us to read. */
export async function readOperatorToken(dataDir: string): Promise<string | undefined> {
  try {
    return (await readFile(operatorTokenFile(dataDir), 'utf8')).trim();
  } catch (error) {
    if (['ENOENT', 'EACCES', 'ENOTDIR'].includes(codeOf(error) ?? '')) return undefined;
    throw error;
  }
}
