/**
 * The servers of a database: one takes writes, and the others are its standbys. pulse.ts finds out which one takes
 * writes.
 */
import type pg from 'pg';
import { hostOf, splitHosts } from '../config/database-url.js';

/**
 * Returns the first server's result, in their order. @throws if all fail: an error of a server before one of the
 * network
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

/** The servers' connection settings. `current` is the one last known to take writes. */
export class DatabaseHosts {
  readonly all: readonly pg.ClientConfig[];
  current: pg.ClientConfig;

  /** @param all in order of preference */
  constructor(all: readonly [pg.ClientConfig, ...pg.ClientConfig[]]) {
    this.all = all;
    this.current = all[0];
  }

  get areSeveral(): boolean {
    return this.all.length > 1;
  }

  /** Returns the settings of a connection, to the server that takes writes if there are several. */
  direct(config: pg.ClientConfig | undefined): pg.ClientConfig | undefined {
    const { connectionString } = this.current;
    return this.areSeveral && connectionString !== undefined ? { ...config, connectionString } : config;
  }
}

export function hostName({ connectionString, host = '' }: pg.ClientConfig): string {
  return connectionString === undefined ? host : hostOf(new URL(connectionString));
}
