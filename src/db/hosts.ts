/**
 * The servers of a database: one server accepts writes, and the others are its standbys. pulse.ts finds the server that
 * accepts writes.
 */
import type pg from 'pg';
import { hostOf, splitHosts } from '../config/database-url.js';

/**
 * Calls `ask` for each server in the URL, in the order of the URL, until a call succeeds.
 * @throws the first error that a server itself reported, or else the first network error
 */
export async function askHosts<T>(url: string, ask: (url: string) => Promise<T>): Promise<T> {
  const errors: unknown[] = [];
  for (const each of splitHosts(url)) {
    try {
      return await ask(each);
    } catch (error) {
      errors.push(error);
    }
  }
  const isOfNetwork = (error: unknown) => (error as { syscall?: unknown } | undefined)?.syscall !== undefined;
  throw errors.find((error) => !isOfNetwork(error)) ?? errors[0];
}

/** Connection settings for all servers. `current` contains the settings for the last server that accepted writes. */
export class DatabaseHosts {
  readonly all: readonly pg.ClientConfig[];
  current: pg.ClientConfig;

  constructor(all: readonly [pg.ClientConfig, ...pg.ClientConfig[]]) {
    this.all = all;
    this.current = all[0];
  }

  get areSeveral(): boolean {
    return this.all.length > 1;
  }

  direct(config: pg.ClientConfig | undefined): pg.ClientConfig | undefined {
    const { connectionString } = this.current;
    return this.areSeveral && connectionString !== undefined ? { ...config, connectionString } : config;
  }
}

export function hostName({ connectionString, host = '' }: pg.ClientConfig): string {
  return connectionString === undefined ? host : hostOf(new URL(connectionString));
}
