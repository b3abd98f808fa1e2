/** What a command shows of its caller: a token, which is never an argument. */

import { readOperatorToken } from '../access/operator-token-file.js';
import { isLoopback } from '../address-ranges.js';
import { type Environment, readDataDir } from '../config.js';

/**
 * TAPEGATE_TOKEN; else, of a server on this host, the operator's token of DATA_DIR, where this user may read it.
 * @returns the header to send, or none
 */
export async function readCredentialHeaders(url: string, env: Environment): Promise<Record<string, string>> {
  const token = env.TAPEGATE_TOKEN || (isOfThisHost(url) ? await readOperatorToken(readDataDir(env)) : undefined);
  return token === undefined ? {} : { Authorization: `Bearer ${token}` };
}

function isOfThisHost(url: string): boolean {
  return isLoopback(new URL(url).hostname.replace(/^\[|\]$/g, ''));
}
