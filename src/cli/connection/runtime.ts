/** Opens the database, event feed and log of a process. */
import path from 'node:path';
import type { ClientConfig } from 'pg';
import { type DestinationStream, pino } from 'pino';
import type { Config } from '../../config/config.js';
import { nameOfUrl } from '../../config/database-url.js';
import { SYSTEM } from '../../core/caller.js';
import { environment, hideSecrets } from '../../core/environment.js';
import { messageOf, UnavailableError } from '../../core/errors.js';
import { createPrioritizer, levelOfLine } from '../../core/journal.js';
import { showSources } from '../../core/source-positions.js';
import { escapeUnsafe } from '../../core/text/printable.js';
import { type Embedded, startEmbedded } from '../../db/embedded/embedded.js';
import { makeDatabase, requireCluster, requireDatabase } from '../../db/embedded/presence.js';
import { askHosts } from '../../db/hosts.js';
import { toUnavailable } from '../../db/line.js';
import { migrate, requireCurrent } from '../../db/migrate.js';
import { openDatabase } from '../../db/pools.js';
import { Refusals } from '../../domain/audit/audit.js';
import { ClockWatch } from '../../domain/clock.js';
import type { Context } from '../../domain/context.js';
import { recordMissing } from '../../domain/disks/missing.js';
import { EventFeed } from '../../events/events.js';
import { createCopyLook } from '../../restore-area/copies/missing.js';
import { checkLibrary, stagingTermsOf } from '../../tape/kinds.js';

export interface Runtime {
  ctx: Context;
  connection: ClientConfig;
  migrated: string[];
  close(): Promise<void>;
}

const DATABASE = 'tapegate';

/**
 * What a process may create.
 * - `database`: a database in an empty data directory, only for the command `start`.
 * - `schema`: the tables in an existing database.
 * - `migrations`: changes to an existing schema.
 * - `nothing`: for commands that the user might have started in the wrong directory.
 */
export type Makes = 'database' | 'schema' | 'migrations' | 'nothing';

export async function openRuntime(
  config: Config,
  makes: Makes = 'database',
  options: { logTo?: DestinationStream } = {},
): Promise<Runtime> {
  const closers: (() => Promise<void>)[] = [];
  let closing: Promise<void> | undefined;
  const close = () => {
    closing ??= (async () => {
      for (const each of closers.reverse()) await each();
    })();
    return closing;
  };
  try {
    const embedded = config.databaseUrl === undefined ? await openEmbedded(config, makes) : undefined;
    if (embedded) closers.push(embedded.close);
    const connection = embedded?.config(DATABASE) ?? { connectionString: config.databaseUrl ?? '' };
    await prepareDatabase(config, connection, makes).catch((error) => {
      throw withReason(error);
    });
    const { ctx, close: detach } = attach(config, connection, options);
    closers.push(detach);
    const { db } = ctx;
    await db.pulse.start().catch((error) => {
      throw withReason(error);
    });
    const prepare = makes === 'nothing' ? requireCurrent : migrate;
    const migrated = await prepare({ ...db.config, statement_timeout: false }, db.Client);
    await db.keepDatabase();
    await new ClockWatch(ctx).adopt();
    return { ctx, connection, migrated, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Maximum size in bytes of buffered log lines while the log cannot be written. */
const MAX_UNWRITTEN_BYTES = 1024 * 1024;

/** Opens the log. If the log cannot be written, for example because the disk is full, log lines are lost. */
export function openLogFile(descriptor = 2): DestinationStream {
  const destination = pino.destination({ dest: descriptor, sync: true, maxLength: MAX_UNWRITTEN_BYTES });
  destination.on('error', () => {}); // handle write errors, because an unhandled error would end the process
  return destination;
}

/**
 * Opens the database, event feed and log of a process, without migrating the schema. The caller must call
 * `db.pulse.start`.
 * @param bounds `poolSize` is the maximum number of database connections of a child process; `logTo` receives the log,
 * by default standard error
 */
export function attach(
  config: Config,
  connection: ClientConfig,
  { poolSize, logTo }: { poolSize?: number; logTo?: DestinationStream },
): Omit<Runtime, 'migrated'> {
  const prioritize = logTo ? undefined : createPrioritizer(environment);
  const streamWrite = (line: string) => {
    const shown = `${escapeUnsafe(hideSecrets(showSources(line)).trimEnd())}\n`;
    return prioritize ? prioritize(shown, levelOfLine(line)) : shown;
  };
  const hooks = { streamWrite };
  const log = pino({ level: config.logLevel, base: null, hooks }, logTo ?? openLogFile());
  // do not log a lost database connection in a child process, because the parent process logs it
  const quiet = log.child({}, { level: 'silent' });
  const db = openDatabase(connection, {
    log: poolSize === undefined ? log : quiet,
    longLists: config.limits.longLists,
    ...(poolSize !== undefined && { poolSize }),
  });
  const events = new EventFeed(db);
  const now = () => db.clock.now();
  const refusals = new Refusals(db, log, now);
  events.onNotify('purged', () => refusals.clearNames());
  return {
    ctx: {
      ...{ config, db, events, refusals, checkLibrary, stagingTermsOf, log, now },
      caller: SYSTEM,
      copies: createCopyLook(),
      recordMissing,
    },
    connection,
    close: async () => {
      events.close();
      await refusals.settle();
      await db.close();
    },
  };
}

async function openEmbedded(config: Config, makes: Makes): Promise<Embedded> {
  const dataDir = path.join(config.dataDir, 'postgres');
  if (makes !== 'database') requireCluster(dataDir);
  const embedded = await startEmbedded({ dataDir });
  try {
    if (makes !== 'nothing') await embedded.ensureDatabase(DATABASE);
    return embedded;
  } catch (error) {
    await embedded.close();
    throw error;
  }
}

async function prepareDatabase(config: Config, connection: ClientConfig, makes: Makes): Promise<void> {
  const { databaseUrl, dataDir } = config;
  const isNew = makes === 'database';
  if (isNew && databaseUrl === undefined) return;
  if (isNew && databaseUrl !== undefined) await askHosts(databaseUrl, makeDatabase);
  const where =
    databaseUrl === undefined
      ? { name: path.resolve(dataDir, 'postgres'), remedy: 'start' }
      : { name: `${nameOfUrl(databaseUrl)} (DATABASE_URL)`, remedy: 'migrate' };
  const require = (to: ClientConfig) => requireDatabase(to, where, isNew || makes === 'schema');
  if (databaseUrl === undefined) return await require(connection);
  await askHosts(databaseUrl, (url) => require({ connectionString: url }));
}

function withReason(error: unknown): unknown {
  if (!(toUnavailable(error) instanceof UnavailableError)) return error;
  const causes = error instanceof AggregateError ? error.errors : [error];
  return new UnavailableError('away', `the database does not answer: ${causes.map(messageOf).join(', ')}`, error);
}
