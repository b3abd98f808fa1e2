/** The configuration and the database of a command that works on the database itself. */
import { hostname, userInfo } from 'node:os';
import type { Config } from '../../config/config.js';
import { type Caller, SYSTEM } from '../../core/caller.js';
import type { Context } from '../../domain/context.js';
import { commandState, environment, ownLog } from '../terminal/io.js';
import type { Makes } from './runtime.js';

/** Whether this program can open a database. The separate client package cannot. */
export const opensDatabases: boolean = true;

/**
 * Reads the configuration of this process. `listens` is true for a process with a gateway.
 * @throws ConfigError with all faults of the environment
 */
export async function readEnvironment({ listens = false } = {}): Promise<Config> {
  const { readConfig } = await import('../../config/config.js');
  return readConfig(environment(), { listens });
}

/**
 * Opens a database, brings it to the current schema, and closes it when the work is done.
 * @param makes what may be created if it is missing
 * @throws NoDatabaseError
 */
export async function withMigrated<T>(
  config: Config,
  makes: Makes,
  work: (ctx: Context, migrated: string[]) => Promise<T>,
): Promise<T> {
  const { openRuntime } = await import('./runtime.js');
  const runtime = await openRuntime(config, makes, ownLog());
  try {
    return await work({ ...runtime.ctx, caller: operatingUser() }, runtime.migrated);
  } finally {
    await runtime.close();
  }
}

/**
 * Opens the database until the end of the command. Does not change the schema, because an older version may be running on it.
 * @throws ConfigError; NoDatabaseError; Error if the schema is not the current one
 */
export function openContext(): Promise<Context> {
  const command = commandState();
  const open = async () => {
    const { openRuntime } = await import('./runtime.js');
    const config = await readEnvironment();
    const logLevel = environment().LOG_LEVEL ? config.logLevel : 'warn'; // standard error is for the user
    const runtime = await openRuntime({ ...config, logLevel }, 'nothing', ownLog());
    command.close = () => runtime.close();
    return { ...runtime.ctx, caller: operatingUser() };
  };
  command.context ??= open();
  return command.context;
}

/** Returns the user of the operating system as a caller, who may do everything with a database that this program can open. */
function operatingUser(): Caller {
  return { ...SYSTEM, name: nameOfUser(), address: hostname() };
}

/** Returns the name of the user, or the number of a user without an entry on this host. */
function nameOfUser(): string {
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.() ?? '?'}`;
  }
}
