/**
 * Limits that no honest user meets: each is a variable with a default that is far beyond a script that asks ten times a second,
 * and a line in src/commands/README.md.
 */

/** Variable, lowest and highest value, default. */
type Row = readonly [variable: string, low: number, high: number, fallback: number];

const MOST = 999_999_999;

export const limitRows = {
  /** Of bodies that are being read or worked on, all together; one caller has three eighths of it at most. */
  bodiesMb: ['BODIES_MB', 96, MOST, 256],
  /** All together, half of them for one address at most; fewer if the process may have fewer descriptors. */
  connections: ['CONNECTIONS', 16, MOST, 10_000],
  /** Of a caller within a minute: more than any script that waits for each answer can send, or a portal that asks for all of its users. */
  rateLimit: ['RATE_LIMIT', 1, MOST, 60_000],
  /** At once. */
  callerRequests: ['CALLER_REQUESTS', 1, MOST, 500],
  streams: ['STREAMS', 1, MOST, 5000],
  callerStreams: ['CALLER_STREAMS', 1, MOST, 1000],
  /** Files that are read at once, each with a megabyte of memory; half of them by one caller at most. */
  downloads: ['DOWNLOADS', 2, MOST, 500],
  /** On one stream of single connection mode. */
  streamOperations: ['STREAM_OPERATIONS', 1, MOST, 100],
  /** Readers of long lists at once, each with a connection to the database. */
  longLists: ['LONG_LISTS', 2, 1000, 16],
  /** Of a request: paths that it names, and characters of its pattern at least. */
  requestPaths: ['REQUEST_PATHS', 1, MOST, 250_000],
  /** Of a request in all, by a list or a pattern: none unless given. */
  requestFiles: ['REQUEST_FILES', 1, MOST, MOST],
  patternLength: ['PATTERN_LENGTH', 1, 2048, 1],
  /** Letters within a minute, in all and of a user: a quarter of them at once, and then evenly. What is over that waits. */
  mailRate: ['MAIL_RATE', 1, MOST, 120],
  userMailRate: ['USER_MAIL_RATE', 1, MOST, 60],
  /** Of a user at once: requests that live, ten a second for the five days that they do; of these, those by a pattern; paths that they wait for. */
  openRequests: ['OPEN_REQUESTS', 1, MOST, 5_000_000],
  standingPatterns: ['STANDING_PATTERNS', 1, MOST, 10_000],
  awaitedPaths: ['AWAITED_PATHS', 1, MOST, 10_000_000],
  /** Of a user's requests: paths of what is left out of them for want of room, which each import may add to. */
  leftOutPaths: ['LEFT_OUT_PATHS', 1, MOST, 100_000],
  /** Files that join a user's requests by their patterns while an import has the catalogue; the others join after it. */
  importJoins: ['IMPORT_JOINS', 1, MOST, 100_000],
  /** What a gateway waits for of the database, but for what is long by its nature (`longTransactions` in database/transaction.ts). */
  statementSeconds: ['STATEMENT_SECONDS', 1, 86_400, 300],
  /** Fields within each other, and in all; what they may cost is in graphql/README.md. */
  graphqlDepth: ['GRAPHQL_DEPTH', 1, MOST, 12],
  graphqlBreadth: ['GRAPHQL_BREADTH', 1, MOST, 200],
  graphqlComplexity: ['GRAPHQL_COMPLEXITY', 1, MOST, 100_000],
} as const satisfies Record<string, Row>;

/** Limits that nobody sets: for a header, for a whole request with its body, and until a connection without requests is closed. */
export const fixedLimits = { headerSeconds: 20, requestSeconds: 3600, idleSeconds: 5 };

export interface Limits extends Record<keyof typeof limitRows | keyof typeof fixedLimits, number> {
  /** Are those counted, too, who are not known and come from this host? */
  rateLocal: boolean;
  mailTo: MailTo;
}

/** Where mail may go: anywhere, to the quota's own address, or beyond that to addresses of these domains. */
export type MailTo = 'anywhere' | 'quota' | readonly string[];

/** How variables are read; each notes where one is at fault. */
interface Readers {
  integer(...row: Row): number;
  oneOf(variable: string, values: readonly string[], fallback: string): string;
  parsed<T>(variable: string, parse: (text: string) => T | undefined, expected: string): T | undefined;
}

export function readLimits({ integer, oneOf, parsed }: Readers): Limits {
  const rows: [string, Row][] = Object.entries(limitRows);
  const figures = Object.fromEntries(rows.map(([name, row]) => [name, integer(...row)]));
  return {
    ...(figures as Record<keyof typeof limitRows, number>),
    ...fixedLimits,
    rateLocal: oneOf('RATE_LOCAL', ['on', 'off'], 'off') === 'on',
    mailTo:
      parsed('MAIL_TO', parseMailTo, 'anywhere, quota, or a list of domains such as example.org,example.com') ??
      'anywhere',
  };
}

function parseMailTo(text: string): MailTo | undefined {
  if (text === 'anywhere' || text === 'quota') return text;
  const domains = text.split(',').map((domain) => domain.trim().toLowerCase());
  return domains.every((domain) => /^[^\s@.,]+(\.[^\s@.,]+)+$/.test(domain)) ? domains : undefined;
}
