/**
 * Finds the programs and secrets that a host's administrator provides for libraries, as files below
 * `TAPEGATE_LIBRARY_DIR`.
 *
 * Settings contain only the names of these files, not paths. If settings could contain paths, anyone with an operator's
 * token could run any program on the host, and send any file to any server.
 */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { LIBRARY_DIR } from '../core/environment.js';
import { messageOf, quote } from '../core/errors.js';
import { LibraryError } from './drive-library.js';
import { type Site, text } from './kind.js';

/**
 * Suffix of the file that lists the hosts that are allowed to receive a secret. The file's name begins with the name of
 * the secret.
 */
const HOSTS = '.hosts';

export const PLAIN_NAME = /^(?!.*\.hosts$)[A-Za-z0-9][\w.-]{0,99}$/;

/** Schema of a setting that contains the name of a file in `secrets`. */
export const secretName = () => text('the name of a file in TAPEGATE_LIBRARY_DIR/secrets', PLAIN_NAME);

const pathOf = (env: Site['env'], kind: 'programs' | 'secrets', name: string): string =>
  path.join(env.TAPEGATE_LIBRARY_DIR || LIBRARY_DIR, kind, path.basename(name));

export const programPath = (env: Site['env'], name: string): string => pathOf(env, 'programs', name);

export const secretPath = (env: Site['env'], name: string): string => pathOf(env, 'secrets', name);

/**
 * Checks that a server is allowed to receive a secret. The file `NAME.hosts` lists the allowed hosts for the secret
 * `NAME`, one per line, with or without a port.
 * @throws LibraryError POLICY if the file is missing, or does not list the host
 */
export async function checkHost(secret: string, { hostname, port, protocol }: URL): Promise<void> {
  const file = `${secret}${HOSTS}`;
  let listed: string[];
  try {
    listed = (await readFile(file, 'utf8')).split('\n').map((line) => line.trim().toLowerCase());
  } catch (error) {
    const problem = `cannot read ${file}, the list of hosts that may receive ${secret}: ${messageOf(error)}`;
    throw new LibraryError('POLICY', problem, { cause: error });
  }
  const host = `${hostname}:${port || (protocol === 'https:' ? 443 : 80)}`;
  if (listed.includes(hostname) || listed.includes(host)) return;
  throw new LibraryError('POLICY', `${file} does not list ${quote(host)}, so ${secret} is not sent to it`);
}
