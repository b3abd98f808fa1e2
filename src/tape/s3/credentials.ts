/** Where an S3 library finds its credentials; they are read anew while it runs, so that they can be exchanged. */
import { open } from 'node:fs/promises';
import { messageOf } from '../../errors.js';
import { LibraryError } from '../backend.js';
import type { CredentialsPlace } from './settings.js';

export type CredentialsEnvironment = Readonly<Record<string, string | undefined>>;

/** As Amazon's client takes them. */
export interface S3Credentials {
  accessKeyId: string;
  secretAccessKey: string;
  sessionToken?: string;
  expiration: Date;
}

/** A credentials file has some profiles. */
const MAX_FILE_BYTES = 1024 * 1024;

/** The client takes what has less than five minutes left for ended, and asks again: so it does each minute. */
const LIFE_MS = 6 * 60_000;

/** @returns what the client asks; undefined where it is to look as it does by itself: environment, files, roles */
export function createCredentials(
  place: CredentialsPlace,
  env: CredentialsEnvironment,
): (() => Promise<S3Credentials>) | undefined {
  if (place.from === 'chain') return undefined;
  const read = place.from === 'file' ? () => readProfile(place.file, place.profile) : async () => readEnv(place, env);
  return async () => ({ ...(await read()), expiration: new Date(Date.now() + LIFE_MS) });
}

type Keys = Omit<S3Credentials, 'expiration'>;

function readEnv(place: CredentialsPlace & { from: 'environment' }, env: CredentialsEnvironment): Keys {
  const read = (name: string): string => {
    const value = env[name];
    if (!value) throw new LibraryError('POLICY', `the credentials of S3 are missing: the environment has no ${name}`);
    return value;
  };
  return {
    accessKeyId: read(place.accessKeyId),
    secretAccessKey: read(place.secretAccessKey),
    ...(place.sessionToken !== undefined && { sessionToken: read(place.sessionToken) }),
  };
}

async function readProfile(file: string, profile: string): Promise<Keys> {
  try {
    const values = findSection(await readOwn(file), profile);
    const [accessKeyId, secretAccessKey] = [values?.get('aws_access_key_id'), values?.get('aws_secret_access_key')];
    const sessionToken = values?.get('aws_session_token');
    if (!accessKeyId || !secretAccessKey)
      throw new Error(`its section [${profile}] has no aws_access_key_id and aws_secret_access_key`);
    return { accessKeyId, secretAccessKey, ...(sessionToken && { sessionToken }) };
  } catch (error) {
    throw new LibraryError('POLICY', `the credentials of S3 cannot be read from ${file}: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

async function readOwn(file: string): Promise<string> {
  const handle = await open(file);
  try {
    const stats = await handle.stat();
    const mode = (stats.mode & 0o7777).toString(8).padStart(4, '0');
    if (!stats.isFile() || stats.size > MAX_FILE_BYTES)
      throw new Error(`it is no file of at most ${MAX_FILE_BYTES} bytes`);
    if ((stats.mode & 0o077) !== 0) throw new Error(`others may use it (mode ${mode}): chmod 600`);
    return await handle.readFile('utf8');
  } finally {
    await handle.close();
  }
}

/** As AWS writes them: sections in brackets, names and values with an equals sign between. */
function findSection(text: string, name: string): Map<string, string> | undefined {
  let found: Map<string, string> | undefined;
  let isInside = false;
  for (const line of text.split(/\r?\n/)) {
    const [, section] = /^\s*\[\s*([^\]]*?)\s*\]/.exec(line) ?? [];
    if (section !== undefined) isInside = section === name;
    const [, key, value] = /^\s*([a-z_]+)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    if (isInside) found ??= new Map();
    if (isInside && key !== undefined && value !== undefined) found?.set(key, value);
  }
  return found;
}
