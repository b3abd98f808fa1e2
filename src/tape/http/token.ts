/** Bearer tokens: they are short-lived, so that each use reads them anew. */
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { messageOf } from '../../errors.js';
import { LibraryError } from '../backend.js';

/** Where a token is; no setting ever holds one. */
export type TokenPlace = { file: string } | { variable: string };

/** Of this process. */
export type Environment = Readonly<Record<string, string | undefined>>;

const MAX_BYTES = 64 * 1024;

/**
 * @returns the token
 * @throws LibraryError POLICY when there is none, when others may read its file, or when it is no token; its text is told to nobody
 */
export async function readToken(place: TokenPlace, env: Environment): Promise<string> {
  const token = 'file' in place ? await readFile(place.file) : readVariable(place.variable, env);
  if (/^[\x21-\x7e]+$/.test(token)) return token;
  const where = 'file' in place ? `the file ${place.file}` : `the variable ${place.variable}`;
  throw new LibraryError(
    'POLICY',
    `${where} has ${token === '' ? 'nothing in it' : 'more than one word in it'}, where a token should be`,
  );
}

function readVariable(name: string, env: Environment): string {
  const value = env[name];
  if (value !== undefined) return value.trim();
  throw new LibraryError('POLICY', `the variable ${name}, which should hold the token, is not set`);
}

async function readFile(file: string): Promise<string> {
  try {
    // without blocking, since a pipe in its place would be waited for
    const handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const { mode } = await handle.stat();
      if ((mode & 0o007) !== 0) {
        const bits = (mode & 0o7777).toString(8).padStart(4, '0');
        throw new Error(`everybody on this host may read or change it (mode ${bits}): chmod o= is needed`);
      }
      const { bytesRead, buffer } = await handle.read(Buffer.alloc(MAX_BYTES), 0, MAX_BYTES, 0);
      return buffer.toString('utf8', 0, bytesRead).trim();
    } finally {
      await handle.close();
    }
  } catch (error) {
    throw new LibraryError('POLICY', `the token's file ${file} cannot be used: ${messageOf(error)}`, { cause: error });
  }
}
