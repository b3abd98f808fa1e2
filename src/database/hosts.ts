/**
 * The servers of a database, of which one takes writes and the others are its standbys; which of them that is now the pulse finds
 * out (pulse.ts).
 */
import type pg from 'pg';
import { splitHosts } from '../database-url.js';
import { codeOf, messageOf } from '../errors.js';

/** The first that one of the servers gives, in their order. @throws what all say who refuse, an answer rather than that nobody is there */
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

/** How each server is reached, and which of them takes writes as far as anybody knows. */
export class DatabaseHosts {
  readonly all: readonly pg.ClientConfig[];
  current: pg.ClientConfig;

  /** @param all at least one, in the order in which they are preferred */
  constructor(all: readonly [pg.ClientConfig, ...pg.ClientConfig[]]) {
    this.all = all;
    this.current = all[0];
  }

  get areSeveral(): boolean {
    return this.all.length > 1;
  }

  /** The way to the server that takes writes, for one that was meant for any of them. */
  direct(config: pg.ClientConfig | undefined): pg.ClientConfig | undefined {
    const { connectionString } = this.current;
    return this.areSeveral && connectionString !== undefined ? { ...config, connectionString } : config;
  }
}

export function hostName({ connectionString, host = '' }: pg.ClientConfig): string {
  return connectionString === undefined ? host : new URL(connectionString).host;
}

/** An error that says of which server it is, with its code. */
export function errorOfHost(host: pg.ClientConfig, error: unknown): Error {
  const code = codeOf(error);
  const named = new Error(`${hostName(host)}: ${messageOf(error)}`, { cause: error });
  return code === undefined ? named : Object.assign(named, { code });
}
