/** What a command shows of its caller: a token, which is never an argument. */
import { findListeners, isNotedGateway } from '../access/gateway-file.js';
import { readOperatorToken } from '../access/operator-token-file.js';
import { isLoopback } from '../address-ranges.js';
import { type Environment, readDataDir } from '../environment.js';
import { readKept } from './kept-tokens.js';

/**
 * TAPEGATE_TOKEN; else what `login` has kept for the server; else, of a server on this host, the operator's token of DATA_DIR,
 * where this user may read it.
 * @returns the header to send, or none
 * @throws CommandError where kept tokens cannot be read, or somebody has to log in again
 */
export async function readCredentialHeaders(url: string, env: Environment): Promise<Record<string, string>> {
  const token = env.TAPEGATE_TOKEN || (await findKeptToken(url, env)) || (await findOperatorToken(url, env));
  return token === undefined ? {} : { Authorization: `Bearer ${token}` };
}

/** One that an identity provider has issued is renewed before it ends. */
async function findKeptToken(url: string, env: Environment): Promise<string | undefined> {
  const kept = await readKept(url, env);
  if (kept?.login?.renewAt === undefined || Date.now() < kept.login.renewAt) return kept?.token;
  const { renewToken } = await import('./renewal.js');
  return await renewToken(url, env);
}

/**
 * It is shown to a gateway that was started with this very DATA_DIR only, and not to whoever happens to listen on its port: while
 * the gateway does not run, that may be any user, and a tunnel of our own to another host. Nobody gets it who could not read it: root,
 * ourselves, and its owner, as whom the gateway runs. A caller without it is an ordinary one.
 */
async function findOperatorToken(url: string, env: Environment): Promise<string | undefined> {
  const { protocol, hostname, port } = new URL(url);
  const host = hostname.replace(/^\[|\]$/g, '');
  if (!isLoopback(host)) return undefined;
  const dataDir = readDataDir(env);
  const known = await readOperatorToken(dataDir);
  if (!known) return undefined;
  const number = Number(port || (protocol === 'https:' ? 443 : 80));
  const users = [0, known.owner, ...(process.getuid ? [process.getuid()] : [])];
  const met = await findListeners(host, number);
  if (met?.length === 0 || met?.some(({ uid }) => !users.includes(uid))) return undefined;
  const sockets = met?.map(({ socket }) => socket);
  return (await isNotedGateway(dataDir, number, sockets)) ? known.secret : undefined;
}
