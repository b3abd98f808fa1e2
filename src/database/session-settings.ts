/** The settings of our sessions at PostgreSQL. */
import type pg from 'pg';
import { parse } from 'pg-connection-string';
import { environment } from '../environment.js';

/**
 * While a statement runs or waits, PostgreSQL checks whether its client is still there. Otherwise a process that was killed would keep its
 * locks until its statement ends, which may be never.
 */
const CHECK_CLIENT = '-c client_connection_check_interval=10s';

/**
 * An index search returns a set of rows, up to a hundred bytes for each page of the table that has some. If the set does not fit into `work_mem`,
 * PostgreSQL keeps whole pages and compares every path on them: 55 s instead of 2 s for ten million files with the default of 4 MB. 64 MB is
 * enough for forty million files. Only statements that need it take it.
 */
const ROOM_FOR_SETS = '-c work_mem=64MB';

/** Returns the configuration with the settings of our sessions in `options`. Options that the site has given in its URL or `PGOPTIONS` stay. */
export function withSettings(config: pg.ClientConfig = {}): pg.ClientConfig {
  const { connectionString, ...given } = config;
  // what pg itself makes of a URL, which may have options of its own
  const all: pg.ClientConfig = connectionString ? { ...given, ...(parse(connectionString) as object) } : given;
  const options = [ROOM_FOR_SETS, all.options ?? environment.PGOPTIONS, CHECK_CLIENT].filter(Boolean).join(' ');
  return { ...all, options };
}
