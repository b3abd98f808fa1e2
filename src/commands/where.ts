/** Where a command works: on the database of this host, or by a gateway that may be anywhere. */
import { accessSync, constants, existsSync } from 'node:fs';
import path from 'node:path';
import type { Context } from '../context.js';
import { readDataDir, readServerUrl } from '../environment.js';
import { opensDatabases, readEnvironment, withContext } from './context.js';
import { environment } from './io.js';
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
 * Returns where a user's command works: by a gateway that is named, or that a token is for; else on the database, if
 * this user can open it; else by the gateway of this host.
 * @throws ConfigError
 */
export function findSite(): string {
  const { TAPEGATE_URL, TAPEGATE_TOKEN, DATABASE_URL } = environment();
  if (!opensDatabases || TAPEGATE_URL || TAPEGATE_TOKEN || readOwnSettings(environment()).server) return readUrl();
  return DATABASE_URL || isReadable(findCluster()) ? HERE : readUrl();
}

/**
 * Returns where an operator's command works: on the database, if one is named (DATABASE_URL), or is in DATA_DIR, or if
 * nothing at all is named; else by the gateway that TAPEGATE_URL or the user's own settings name.
 * @throws ConfigError
 */
export function findOperatedSite(): string {
  if (!opensDatabases) return readUrl();
  const { TAPEGATE_URL, DATABASE_URL } = environment();
  const isNamed = TAPEGATE_URL || (!DATABASE_URL && readOwnSettings(environment()).server);
  return isNamed && !DATABASE_URL && !existsSync(findCluster()) ? readUrl() : HERE;
}

const findCluster = (): string => path.join(readDataDir(environment()), 'postgres');

function isReadable(directory: string): boolean {
  try {
    accessSync(directory, constants.R_OK | constants.X_OK);
    return true;
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
  return url === HERE ? await withContext(await readEnvironment(), ways.here) : await ways.afar(url);
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
