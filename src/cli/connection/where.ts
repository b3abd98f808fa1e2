/** Chooses whether a command works on this host's database or through a gateway. */
import { statSync } from 'node:fs';
import path from 'node:path';
import { readDataDir, readServerUrl } from '../../core/environment.js';
import type { Context } from '../../domain/context.js';
import { environment } from '../terminal/io.js';
import { openContext, opensDatabases } from './context.js';
import { ownSettingsFile, readOwnSettings } from './own-settings.js';
import { readStoredToken } from './stored-tokens.js';

/** Stands for this host's database in variables that otherwise contain a gateway's URL. */
export const LOCAL = 'here:';

/**
 * Returns the gateway's URL from TAPEGATE_URL, or else from the user's settings.
 * @throws ConfigError
 */
export function readUrl(): string {
  if (environment().TAPEGATE_URL) return readServerUrl(environment());
  const { server } = readOwnSettings(environment());
  return readServerUrl({ TAPEGATE_URL: server }, `server in ${ownSettingsFile(environment())}`);
}

/**
 * Returns the gateway's URL for a user's command, or LOCAL for this host's database. A configured gateway takes
 * precedence over a database. Without a configured gateway or a database, the command uses this host's gateway.
 * @throws ConfigError if the configuration is invalid; CommandError if the stored tokens cannot be read
 */
export function findSite(): string {
  return opensDatabases && !isGatewayNamed() && hasDatabase() ? LOCAL : readUrl();
}

/**
 * Returns where an operator's command runs: the URL of a gateway, or LOCAL for the database of this host. A database
 * takes precedence over a configured gateway, because a command that uses the database directly has all rights.
 * @throws ConfigError if the configuration is invalid; CommandError if the stored tokens cannot be read
 */
export function findOperatedSite(): string {
  return opensDatabases && (hasDatabase() || !isGatewayNamed()) ? LOCAL : readUrl();
}

/**
 * Returns whether the user has configured a gateway. A user with a token also counts, because a command must then act
 * as the token's user.
 */
function isGatewayNamed(): boolean {
  const { TAPEGATE_URL, TAPEGATE_TOKEN } = environment();
  if (TAPEGATE_URL || TAPEGATE_TOKEN || readOwnSettings(environment()).server) return true;
  return readStoredToken(readUrl(), environment()) !== undefined;
}

/**
 * Returns whether this user can open a database. Only root and the owner of the database files can open the embedded
 * database.
 */
function hasDatabase(): boolean {
  if (environment().DATABASE_URL) return true;
  const own = process.getuid?.();
  try {
    const { uid } = statSync(path.join(readDataDir(environment()), 'postgres'));
    return own === 0 || own === uid;
  } catch {
    return false;
  }
}

/**
 * Runs an operator's command: calls `local` to work directly on the database, or `remote` to work through a gateway.
 */
export async function operate<Done>(ways: {
  local(ctx: Context): Promise<Done>;
  remote(url: string): Promise<Done>;
}): Promise<Done> {
  const url = findOperatedSite();
  return url === LOCAL ? await ways.local(await openContext()) : await ways.remote(url);
}

/**
 * Returns an error message that lists the hosts on which a command can use a restore disk.
 * @param hosts the hosts whose engines use the restore disk
 */
export function describeHosts(why: string, hosts: readonly string[] = []): string {
  const known = hosts.length === 0 ? '' : ` (engines run on ${[...hosts].sort().join(', ')})`;
  return `${why}: run this command with DATABASE_URL on a host that has the disk${known}`;
}

/** Replaces a node's GraphQL id with its numeric id in the database. */
export function withSerial<Node extends { id: string }>(node: Node): Omit<Node, 'id'> & { id: number } {
  return { ...node, id: Number(Buffer.from(node.id, 'base64').toString().split(':').at(-1)) };
}
