/** What a command needs that works on the database itself: the configuration, and the database opened. */
import { hostname, userInfo } from 'node:os';
import type { Config } from '../../config/config.js';
import { type Caller, SYSTEM } from '../../core/caller.js';
import type { Context } from '../../domain/context.js';
import { environment, ownLog, present } from '../terminal/io.js';
import type { Makes } from './runtime.js';

/** Whether this program can open a database: the client that is installed alone cannot. */
export const opensDatabases: boolean = true;

/**
 * Reads the configuration of this process.
 * @param how.listens whether it has a gateway
 * @throws ConfigError with all faults of the environment
 */
export async function readEnvironment({ listens = false } = {}): Promise<Config> {
  const { readConfig } = await import('../../config/config.js');
  return readConfig(environment(), { listens });
}

/**
 * Opens a database, brings it to the current schema, and closes it when the work is done.
 * @param makes what may be made where it is not there
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
 * Opens the database for the rest of the command, which closes it at its end. Its schema stays as it is: the programs
 * that run on it may be older.
 * @throws ConfigError; NoDatabaseError; Error if the schema is not the current one
 */
export function openContext(): Promise<Context> {
  const command = present();
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

/** Whoever runs this program may do everything to the database that it opens; who that was, the operating system says. */
function operatingUser(): Caller {
  return { ...SYSTEM, name: nameOfUser(), address: hostname() };
}

/** A user without an entry in the host's list has a number only. */
function nameOfUser(): string {
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.() ?? '?'}`;
  }
}
