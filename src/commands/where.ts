/** Where an operator's command works: on the database of this host, or by a gateway that may be anywhere. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import type { Context } from '../context.js';
import { readDataDir } from '../environment.js';
import { InvalidInputError } from '../errors.js';
import type { Operation } from '../generated/command-operations.js';
import { ask, type Done, findFailure, readUrl, unwrapResult } from './client.js';
import { opensDatabases, readEnvironment, withContext } from './context.js';
import { environment } from './io.js';
import { readOwnSettings } from './own-settings.js';

/**
 * The one rule of all such commands: where a database is named (DATABASE_URL) or there is one in DATA_DIR they work on that, as
 * where nothing at all is named; only where there is none and TAPEGATE_URL, or the user's own settings, name a gateway do they ask that one.
 * @returns the URL of the gateway; undefined: the database
 * @throws ConfigError
 */
export function findGateway(): string | undefined {
  if (!opensDatabases) return readUrl();
  const { TAPEGATE_URL, DATABASE_URL } = environment();
  const isNamed = TAPEGATE_URL || (!DATABASE_URL && readOwnSettings(environment()).server);
  if (!isNamed || DATABASE_URL) return undefined;
  return existsSync(path.join(readDataDir(environment()), 'postgres')) ? undefined : readUrl();
}

/** Runs an operator's command on the database or through a gateway, with the same result. */
export async function operate<Done>(ways: {
  here(ctx: Context): Promise<Done>;
  afar(url: string): Promise<Done>;
}): Promise<Done> {
  const url = findGateway();
  return url === undefined ? await withContext(await readEnvironment(), ways.here) : await ways.afar(url);
}

/** Returns an error message for work on restore disks. @param hosts whose engines check them */
export function runThere(why: string, hosts: readonly string[] = []): string {
  const known = hosts.length === 0 ? '' : ` (engines run on ${[...hosts].sort().join(', ')})`;
  return `${why}: run this on a host that has the disk${known}, with DATABASE_URL`;
}

/** Requests a change as `askChange` does; a field at fault is reported as it is by a command that works on the database. */
export async function changeAfar<Result extends object, Variables>(
  url: string,
  operation: Operation<{ result: Result }, Variables>,
  variables: Variables,
): Promise<Done<Result>> {
  const { result } = await ask(url, operation, variables);
  const { message, field } = findFailure(result) ?? {};
  if (message !== undefined && field !== undefined && message.startsWith(`${field} `)) {
    throw new InvalidInputError(field, message.slice(field.length + 1));
  }
  return unwrapResult(result);
}

/** Returns a node with the number of the database in place of its id. */
export function withSerial<Node extends { id: string }>(node: Node): Omit<Node, 'id'> & { id: number } {
  return { ...node, id: Number(Buffer.from(node.id, 'base64').toString().split(':').at(-1)) };
}
