/** Chooses whether a command works on the database of this host or through a gateway. */
import { statSync } from 'node:fs';
import path from 'node:path';
import { readDataDir, readServerUrl } from '../../core/environment.js';
import type { Context } from '../../domain/context.js';
import { environment } from '../terminal/io.js';
import { openContext, opensDatabases } from './context.js';
import { ownSettingsFile, readOwnSettings } from './own-settings.js';
import { readStoredToken } from './stored-tokens.js';

/** Stands for the database of this host where a gateway's URL is expected. */
export const LOCAL = 'here:';

/**
 * Returns the URL of the gateway, from TAPEGATE_URL or else from the user's settings.
 * @throws ConfigError
 */
export function readUrl(): string {
  if (environment().TAPEGATE_URL) return readServerUrl(environment());
  const { server } = readOwnSettings(environment());
  return readServerUrl({ TAPEGATE_URL: server }, `server in ${ownSettingsFile(environment())}`);
}

/**
 * Returns where a user's command works. If a gateway is configured, a command works through the gateway. Otherwise a
 * command works on the database that is configured or that this user can open, or else through the gateway of this
 * host.
 * @throws ConfigError; CommandError if stored tokens cannot be read
 */
export function findSite(): string {
  return opensDatabases && !isGatewayNamed() && hasDatabase() ? LOCAL : readUrl();
}

/**
 * Returns where an operator's command works. An operator may do more on the database, so the command works there if a
 * database is configured or this user can open one. Otherwise the command works through a configured gateway. Without a
 * gateway, the command reports the missing database.
 * @throws ConfigError; CommandError if stored tokens cannot be read
 */
export function findOperatedSite(): string {
  return opensDatabases && (hasDatabase() || !isGatewayNamed()) ? LOCAL : readUrl();
}

/**
 * Returns whether a URL, token or setting configures a gateway. A command with a token works as the user of the token.
 */
function isGatewayNamed(): boolean {
  const { TAPEGATE_URL, TAPEGATE_TOKEN } = environment();
  if (TAPEGATE_URL || TAPEGATE_TOKEN || readOwnSettings(environment()).server) return true;
  return readStoredToken(readUrl(), environment()) !== undefined;
}

/**
 * Returns whether DATABASE_URL is set, or this user can open the embedded database. Only the owner of the embedded
 * database and root can open it.
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

/** Runs an operator's command that is not a single GraphQL operation, on the database or through a gateway. */
export async function operate<Done>(ways: {
  local(ctx: Context): Promise<Done>;
  remote(url: string): Promise<Done>;
}): Promise<Done> {
  const url = findOperatedSite();
  return url === LOCAL ? await ways.local(await openContext()) : await ways.remote(url);
}

/**
 * Returns an error message for work that needs restore disks.
 * @param hosts the hosts whose engines use the restore disks
 */
export function describeHosts(why: string, hosts: readonly string[] = []): string {
  const known = hosts.length === 0 ? '' : ` (engines run on ${[...hosts].sort().join(', ')})`;
  return `${why}: run this on a host that has the disk${known}, with DATABASE_URL`;
}

/** Replaces the GraphQL id of a node by the number from the database. */
export function withSerial<Node extends { id: string }>(node: Node): Omit<Node, 'id'> & { id: number } {
  return { ...node, id: Number(Buffer.from(node.id, 'base64').toString().split(':').at(-1)) };
}
