/** Tokens of an identity provider are renewed before they end, by whichever command needs one. */
import type { Environment } from '../environment.js';
import { CommandError, ConnectionError } from './failure.js';
import { IssuerClient, IssuerRefusal } from './issuer-client.js';
import { changeKept, type Kept, type Login, readKept } from './kept-tokens.js';

/**
 * The token to show, of one that is due. One process renews it, and the others take what that one has kept.
 * @throws CommandError where somebody has to log in again; ConnectionError
 */
export async function renewToken(url: string, env: Environment): Promise<string | undefined> {
  try {
    return (await changeKept(url, env, (known) => renew(url, known)))?.token;
  } catch (error) {
    // while the last one is good, nobody needs the next one
    const kept = await readKept(url, env);
    if (kept?.login?.expiresAt !== undefined && Date.now() < kept.login.expiresAt) return kept.token;
    throw error;
  }
}

async function renew(url: string, known: Kept | undefined): Promise<Kept | undefined> {
  if (known?.login?.renewAt === undefined || Date.now() < known.login.renewAt) return known;
  const { issuer, clientId, audience, refreshToken } = known.login;
  if (refreshToken === undefined) throw ended(url, known.login);
  try {
    const client = await IssuerClient.open(issuer, { clientId, audience });
    const { token, ...times } = await client.renew(refreshToken);
    return { token, login: { ...known.login, ...times } };
  } catch (error) {
    if (error instanceof IssuerRefusal && error.code === 'invalid_grant') throw ended(url, known.login);
    if (!(error instanceof ConnectionError)) throw error;
    throw new ConnectionError(`the token for ${url} cannot be renewed: ${error.message}`);
  }
}

function ended(url: string, { issuer }: Login): CommandError {
  return new CommandError(`the login for ${url} has ended at ${issuer}: log in again, by "tapegate login"`);
}
