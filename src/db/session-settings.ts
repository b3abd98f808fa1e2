/**
 * Sets the session settings that Tapegate's statements rely on, because a site can change PostgreSQL's defaults.
 * Tapegate applies the settings with a statement, because a pooler accepts only a few settings when a connection
 * starts.
 */
import pg from 'pg';
import { parse } from 'pg-connection-string';
import { environment } from '../core/environment.js';
import { type Encryption, readEncryption } from './encryption.js';

export interface SessionSetting {
  name: string;
  value: string;
  why: string;
  /**
   * Tapegate changes the setting only if the setting has this value. If `replaces` is undefined, Tapegate changes any
   * value.
   */
  replaces?: string;
}

const settings = (why: string, values: Readonly<Record<string, string>>): SessionSetting[] =>
  Object.entries(values).map(([name, value]) => ({ name, value, why }));

const all = (value: string, names: string): Record<string, string> =>
  Object.fromEntries(names.split(' ').map((name) => [name, value]));

/** Default settings. The site's options in DATABASE_URL or PGOPTIONS take precedence. */
export const defaultSettings: readonly SessionSetting[] = settings(
  'This value has room for a bitmap of the matches among ten million files. With the default of 4 MB, PostgreSQL compares every path on each page that contains a match: 55 s instead of 2 s. Only statements that need this memory allocate it.',
  { work_mem: '64MB' },
);

/**
 * Settings that apply in every session, regardless of the site's settings. A setting is skipped if the server does not
 * support the setting.
 */
export const requiredSettings: readonly SessionSetting[] = [
  ...settings('Tapegate uses locks, not retries, to order concurrent writes. Statements must see earlier commits.', {
    default_transaction_isolation: 'read committed',
    default_transaction_read_only: 'off',
    default_transaction_deferrable: 'off',
  }),
  ...settings(
    'The code itself limits how long statements and transactions take. A connection that listens may be idle for days.',
    {
      ...all('0', 'statement_timeout lock_timeout transaction_timeout'),
      ...all('0', 'idle_in_transaction_session_timeout idle_session_timeout'),
    },
  ),
  ...settings('When a process is killed, its statement must end, because the process has lost its locks.', {
    client_connection_check_interval: '10s',
  }),
  ...settings('The code parses values in these formats.', {
    client_encoding: 'UTF8',
    DateStyle: 'ISO, MDY',
    IntervalStyle: 'postgres',
    TimeZone: 'UTC',
    timezone_abbreviations: 'Default',
    extra_float_digits: '1',
    bytea_output: 'hex',
    xmloption: 'content',
    xmlbinary: 'base64',
    quote_all_identifiers: 'off',
    ...all('C', 'lc_numeric lc_monetary lc_time'),
  }),
  ...settings('The code writes statements and values in the syntax that these settings select.', {
    standard_conforming_strings: 'on',
    array_nulls: 'on',
    transform_null_equals: 'off',
  }),
  ...settings(
    "This schema contains Tapegate's tables, views and functions. Prisma names this schema in each statement.",
    {
      search_path: 'public',
      restrict_nonsystem_relation_kind: '',
    },
  ),
  ...settings('A search must return all matching rows, or fail.', { gin_fuzzy_search_limit: '0', row_security: 'off' }),
  ...settings('A transaction that conflicts with another one is retried on the same connection.', {
    exit_on_error: 'off',
  }),
  ...settings('New tables must support row locks and updates.', { default_table_access_method: 'heap' }),
  ...settings('Tapegate does not read notices.', { client_min_messages: 'warning' }),
  ...settings('The code itself marks the statements that can use one plan for all values.', {
    plan_cache_mode: 'auto',
  }),
  ...settings('Without these plan types, statements exceed their time limits.', {
    ...all('on', 'enable_bitmapscan enable_gathermerge enable_hashagg enable_hashjoin enable_incremental_sort'),
    ...all('on', 'enable_indexonlyscan enable_indexscan enable_material enable_memoize enable_mergejoin'),
    ...all('on', 'enable_nestloop enable_parallel_append enable_parallel_hash enable_seqscan enable_sort'),
    ...all('on', 'enable_tidscan'),
  }),
  {
    name: 'synchronous_commit',
    value: 'on',
    replaces: 'off',
    why: 'Tapegate publishes a copy, or removes a source, only after the database has stored the change durably.',
  },
  {
    name: 'session_replication_role',
    value: 'origin',
    replaces: 'replica',
    why: 'Triggers and foreign keys must work. Only a superuser may change this setting.',
  },
  {
    name: 'track_counts',
    value: 'on',
    replaces: 'off',
    why: 'Autovacuum must see changes. Only a superuser may change this setting.',
  },
];

const OF_CONNECTION = ['statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout'] as const;

/**
 * Splits a connection's configuration into a configuration without session settings, and a statement that applies the
 * session settings.
 * @param config configuration for `pg.Client`; options such as `statement_timeout` count as required settings
 */
export function withSettings(config: pg.ClientConfig = {}): {
  config: pg.ClientConfig;
  setUp: string;
  encryption: Encryption | undefined;
} {
  const { connectionString, ...given } = config;
  const encryption = connectionString ? readEncryption(connectionString) : undefined;
  const parsed: pg.ClientConfig = encryption ? { ...given, ...(parse(encryption.url) as object) } : given;
  const { settings: ofSite, rest } = parseOptions(parsed.options ?? environment.PGOPTIONS ?? '');
  const ofConnection = OF_CONNECTION.flatMap((name) =>
    parsed[name] ? [{ name, value: String(parsed[name]), why: '' }] : [],
  );
  const byName = new Map<string, SessionSetting>();
  for (const each of [...defaultSettings, ...ofSite, ...requiredSettings, ...ofConnection])
    byName.set(each.name.toLowerCase(), each);
  const bare: pg.ClientConfig = { ...parsed, options: rest || undefined };
  for (const name of OF_CONNECTION) delete bare[name];
  return { config: bare, setUp: statementOf([...byName.values()]), encryption };
}

/** Returns the settings in a database URL's `options`, or else in PGOPTIONS. */
export function readUrlSettings(url: string): SessionSetting[] {
  return parseOptions(new URL(url).searchParams.get('options') ?? environment.PGOPTIONS ?? '').settings;
}

/**
 * Reads options in libpq's forms: `-c name=value`, `-cname=value` and `--name=value`.
 * @returns the settings; `rest` contains options in other forms, which only the server can parse
 */
function parseOptions(options: string): { settings: SessionSetting[]; rest: string } {
  const found: SessionSetting[] = [];
  const settings = /(?<!\S)(?:-c\s*|--)([\w.-]+)=((?:\\.|[^\s\\])*)/g;
  const rest = options.replace(settings, (_option, name: string, value: string) => {
    found.push({
      name: name.replaceAll('-', '_'),
      value: value.replace(/\\(.)/g, '$1'),
      why: 'set in DATABASE_URL or PGOPTIONS',
    });
    return '';
  });
  return { settings: found, rest: rest.trim() };
}

/**
 * Returns the SQL that applies the settings, as one message. The SQL sets the isolation level, because a standby
 * refuses a SELECT at level `serializable`. The SQL qualifies each function with its schema, because a `search_path`
 * could substitute other functions.
 */
function statementOf(list: readonly SessionSetting[]): string {
  const rows = list.map(({ name, value, replaces }) => {
    const texts = [name, value].map(pg.escapeLiteral).join(', ');
    return `(${texts}, ${replaces === undefined ? 'NULL' : pg.escapeLiteral(replaces)})`;
  });
  return `SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SELECT pg_catalog.count(pg_catalog.set_config(s.name, s.value, false))
    FROM (VALUES ${rows.join(', ')}) AS s (name, value, replaces)
    WHERE CASE WHEN s.replaces IS NULL THEN pg_catalog.current_setting(s.name, true) IS NOT NULL
      ELSE pg_catalog.current_setting(s.name, true) OPERATOR(pg_catalog.=) s.replaces END`;
}
