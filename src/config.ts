/** The one place that reads the environment. Every option has a type, a default and a line in the README. */

export interface Config {
  port: number;
  host: string;
  /** Unset: an embedded PostgreSQL under `dataDir`. */
  databaseUrl: string | undefined;
  dataDir: string;
  /** Make a small demo archive on an empty embedded database. */
  demo: boolean;
  /** Run the engine in the process of `start`. */
  engine: boolean;
  /** Drives that may work at the same time. */
  drives: number;
  tapeBackend: string;
  /** Unset: mail is written to the log and kept in the outbox. */
  smtpUrl: string | undefined;
  mailFrom: string;
  logLevel: string;
}

export const logLevels = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'];

/** Every fault of the environment, a line each. */
export class ConfigError extends Error {
  readonly faults: string[];

  constructor(faults: string[]) {
    super(
      `the environment has ${faults.length === 1 ? 'a fault' : `${faults.length} faults`}:\n${faults.map((f) => `  ${f}`).join('\n')}`,
    );
    this.faults = faults;
  }
}

/**
 * Reads and checks the whole environment. An empty variable counts as unset.
 * @param backends names that TAPE_BACKEND may have
 * @throws ConfigError with all faults
 */
export function readConfig(env: Record<string, string | undefined>, backends: readonly string[]): Config {
  const faults: string[] = [];
  const text = (name: string) => (env[name] === '' ? undefined : env[name]);
  const fault = (name: string, expected: string) =>
    faults.push(`${name} must be ${expected}, not ${JSON.stringify(env[name])}`);

  const integer = (name: string, low: number, high: number, fallback: number): number => {
    const value = text(name);
    if (value === undefined) return fallback;
    const number = /^\d{1,9}$/.test(value) ? Number(value) : Number.NaN;
    if (number >= low && number <= high) return number;
    fault(name, `a whole number from ${low} to ${high}`);
    return fallback;
  };
  const oneOf = (name: string, values: readonly string[], fallback: string): string => {
    const value = text(name) ?? fallback;
    if (!values.includes(value)) fault(name, `one of ${values.join(', ')}`);
    return value;
  };
  const url = (name: string, protocols: string[]): string | undefined => {
    const value = text(name);
    if (value === undefined) return undefined;
    const protocol = URL.canParse(value) ? new URL(value).protocol : '';
    if (!protocols.includes(protocol))
      fault(name, `a URL that begins with ${protocols.map((p) => `${p}//`).join(' or ')}`);
    return value;
  };

  const mailFrom = text('MAIL_FROM') ?? 'tapegate@localhost';
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what must not get into a header
  if (!mailFrom.includes('@') || /[\u0000-\u001f\u007f]/.test(mailFrom)) fault('MAIL_FROM', 'an e-mail address');

  const config: Config = {
    port: integer('PORT', 0, 65_535, 8080),
    host: text('HOST') ?? '127.0.0.1',
    databaseUrl: url('DATABASE_URL', ['postgresql:', 'postgres:']),
    dataDir: text('DATA_DIR') ?? './data',
    demo: oneOf('DEMO', ['on', 'off'], 'on') === 'on',
    engine: oneOf('ENGINE', ['on', 'off'], 'on') === 'on',
    drives: integer('DRIVES', 1, 256, 2),
    tapeBackend: oneOf('TAPE_BACKEND', backends, 'directory'),
    smtpUrl: url('SMTP_URL', ['smtp:', 'smtps:']),
    mailFrom,
    logLevel: oneOf('LOG_LEVEL', logLevels, 'info'),
  };
  if (faults.length > 0) throw new ConfigError(faults);
  return config;
}
