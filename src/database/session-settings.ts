import type pg from 'pg';
import { parse } from 'pg-connection-string';
import { environment } from '../environment.js';

/**
 * While a statement runs or waits, PostgreSQL checks whether its client is still connected. Otherwise a killed process
 * would keep its locks until its statement ends, which may be never.
 */
const CHECK_CLIENT = '-c client_connection_check_interval=10s';

/**
 * A bitmap index scan needs up to a hundred bytes for each page of the table with a match. If the bitmap exceeds
 * `work_mem`, PostgreSQL keeps whole pages and compares every path on them. That takes 55 s instead of 2 s for ten
 * million files with the default of 4 MB. 64 MB is enough for forty million files. Only statements that need it take
 * it.
 */
const ROOM_FOR_SETS = '-c work_mem=64MB';

/** Adds the settings of our sessions to `options`. Options from the site's URL or `PGOPTIONS` take precedence. */
export function withSettings(config: pg.ClientConfig = {}): pg.ClientConfig {
  const { connectionString, ...given } = config;
  // as pg parses the URL, which may contain options
  const all: pg.ClientConfig = connectionString ? { ...given, ...(parse(connectionString) as object) } : given;
  const options = [ROOM_FOR_SETS, all.options ?? environment.PGOPTIONS, CHECK_CLIENT].filter(Boolean).join(' ');
  return { ...all, options };
}
