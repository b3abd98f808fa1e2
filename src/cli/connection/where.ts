/** Where a command works: on the database of this host, or by a gateway that may be anywhere. */
import { statSync } from 'node:fs';
import path from 'node:path';
import { readDataDir, readServerUrl } from '../../core/environment.js';
import type { Context } from '../../domain/context.js';
import { environment } from '../terminal/io.js';
import { openContext, opensDatabases } from './context.js';
import { readKept } from './kept-tokens.js';
import { ownSettingsFile, readOwnSettings } from './own-settings.js';

/** In the place of a gateway's URL: the database of this host. */
export const HERE = 'here:';

/** Returns the URL of the gateway, from TAPEGATE_URL or else the user's own settings. @throws ConfigError */
export function readUrl(): string {
  if (environment().TAPEGATE_URL) return readServerUrl(environment());
  const { server } = readOwnSettings(environment());
  return readServerUrl({ TAPEGATE_URL: server }, `server in ${ownSettingsFile(environment())}`);
}

/**
 * Returns where a user's command works: through a gateway if one is named, else on the database that is named or that
 * this user can open, else through the gateway of this host.
 * @throws ConfigError; CommandError if kept tokens cannot be read
 */
export function findSite(): string {
  return opensDatabases && !isGatewayNamed() && hasDatabase() ? HERE : readUrl();
}

/**
 * Returns where an operator's command works, which can do more on the database: there if it is named or this user can
 * open it, else through a gateway if one is named, else on the database, to report that there is none.
 * @throws ConfigError; CommandError if kept tokens cannot be read
 */
export function findOperatedSite(): string {
  return opensDatabases && (hasDatabase() || !isGatewayNamed()) ? HERE : readUrl();
}

/** A token is for a gateway: a command with one works as the user whose token it is. */
function isGatewayNamed(): boolean {
  const { TAPEGATE_URL, TAPEGATE_TOKEN } = environment();
  if (TAPEGATE_URL || TAPEGATE_TOKEN || readOwnSettings(environment()).server) return true;
  return readKept(readUrl(), environment()) !== undefined;
}

/** The embedded database is for its owner and root; others may see its directory, but not open it. */
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

/** Runs an operator's command that is not one operation of GraphQL, on the database or through a gateway. */
export async function operate<Done>(ways: {
  here(ctx: Context): Promise<Done>;
  afar(url: string): Promise<Done>;
}): Promise<Done> {
  const url = findOperatedSite();
  return url === HERE ? await ways.here(await openContext()) : await ways.afar(url);
}

/** Returns an error message for work on restore disks. @param hosts whose engines check them */
export function runThere(why: string, hosts: readonly string[] = []): string {
  const known = hosts.length === 0 ? '' : ` (engines run on ${[...hosts].sort().join(', ')})`;
  return `${why}: run this on a host that has the disk${known}, with DATABASE_URL`;
}

/** Returns a node with the number of the database in place of its id. */
export function withSerial<Node extends { id: string }>(node: Node): Omit<Node, 'id'> & { id: number } {
  return { ...node, id: Number(Buffer.from(node.id, 'base64').toString().split(':').at(-1)) };
}
