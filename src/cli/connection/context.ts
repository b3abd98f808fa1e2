/** Opens the configuration and the database for commands that work directly on the database. */
import { hostname, userInfo } from 'node:os';
import type { Config } from '../../config/config.js';
import { type Caller, SYSTEM } from '../../core/caller.js';
import type { Context } from '../../domain/context.js';
import { commandState, environment, ownLog } from '../terminal/io.js';
import type { Makes } from './runtime.js';

/** Whether commands can open a database. False in the separate client package, which contains no database code. */
export const opensDatabases: boolean = true;

/**
 * Reads the configuration of this process from its environment.
 * @throws ConfigError that lists all faults in the environment variables
 */
export async function readEnvironment({ listens = false } = {}): Promise<Config> {
  const { readConfig } = await import('../../config/config.js');
  return readConfig(environment(), { listens });
}

/**
 * Opens a database, migrates its schema to the current version, calls `work`, and closes the database.
 * @param makes which objects to create if they are missing, such as the database or its tables
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
 * Opens the database, and keeps it open until the command ends. Does not migrate the schema, because an older Tapegate
 * version might still be using the database.
 * @throws ConfigError; NoDatabaseError; Error if the schema's version is not current
 */
export function openContext(): Promise<Context> {
  const command = commandState();
  const open = async () => {
    const { openRuntime } = await import('./runtime.js');
    const config = await readEnvironment();
    const logLevel = environment().LOG_LEVEL ? config.logLevel : 'warn';
    const runtime = await openRuntime({ ...config, logLevel }, 'nothing', ownLog());
    command.close = () => runtime.close();
    return { ...runtime.ctx, caller: operatingUser() };
  };
  command.context ??= open();
  return command.context;
}

/** Returns the operating system's user as a caller with all rights, because that user can open the database. */
function operatingUser(): Caller {
  return { ...SYSTEM, name: nameOfUser(), address: hostname() };
}

/**
 * Returns the name of the operating system's user that runs the command, or the user's id if this host has no name for
 * it.
 */
function nameOfUser(): string {
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.() ?? '?'}`;
  }
}
