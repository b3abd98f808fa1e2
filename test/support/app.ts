/** Runs Tapegate in the test's process, with real HTTP, a database for each app, and an optional engine. */
import { rmSync } from 'node:fs';
import path from 'node:path';
import type { ClientConfig } from 'pg';
import { type Logger, pino } from 'pino';
import type { Limits } from '../../src/config/config.js';
import { type Config, readConfig } from '../../src/config/config.js';
import { SYSTEM } from '../../src/core/caller.js';
import { type DatabaseOptions, openDatabase } from '../../src/db/pools.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { Refusals } from '../../src/domain/audit/audit.js';
import type { Context } from '../../src/domain/context.js';
import { recordMissing } from '../../src/domain/disks/missing.js';
import { type EngineOptions, startEngine } from '../../src/engine/runner.js';
import { EventFeed } from '../../src/events/events.js';
import { type Gateway, startGateway } from '../../src/main/app.js';
import { createCopyLook } from '../../src/restore-area/copies/missing.js';
import type { DriveLibrary } from '../../src/tape/drive-library.js';
import { checkLibrary, stagingTermsOf } from '../../src/tape/kinds.js';
import { createDatabase } from './database.js';
import { leaveConnections } from './http.js';
import { watchLocks } from './lock-watch.js';
import { makeTempDir } from './temp-dir.js';

export interface TestApp {
  ctx: Context;
  /** `http://127.0.0.1:port` */
  url: string;
  /** The base URL of the REST contract. */
  api: string;
  dataDir: string;
  /** The token of an operator, which GraphQL calls send. */
  token: string;
  restoreDir: string;
  databaseUrl: string;
  close(): Promise<void>;
}

export interface TestAppOptions {
  /** Library of the engine. Without a library, no engine runs. */
  library?: DriveLibrary;
  engine?: EngineOptions;
  config?: Partial<Omit<Config, 'access'>> & { access?: Partial<Config['access']> };
  limits?: Partial<Limits>;
  /** Clock of the app; default: the database's clock. */
  now?: () => string;
  /** Logger of the app; default: silent, or the level in TEST_LOG. */
  log?: Logger;
  database?: Partial<DatabaseOptions>;
  /** Settings of the database that a site could change. */
  siteSettings?: Readonly<Record<string, string>>;
  /** Replaces the app's database connection, for example by a connection through a relay. */
  through?: (connection: ClientConfig) => ClientConfig;
  /** Whether locks out of order fail the test file; default: true. */
  watchesLocks?: boolean;
}

export async function startApp(options: TestAppOptions = {}): Promise<TestApp> {
  const locks = options.watchesLocks === false ? undefined : watchLocks();
  const dataDir = makeTempDir();
  const database = await createDatabase();
  await database.set(options.siteSettings ?? {});
  const log = options.log ?? pino({ level: process.env.TEST_LOG ?? 'silent' });
  const { longLists = 16 } = options.limits ?? {};
  const settings = { log, longLists, ...options.database };
  const db = openDatabase(options.through?.(database.connection) ?? database.connection, settings);
  await db.pulse.start();
  const events = new EventFeed(db);
  await events.open();
  const config = withChanges(readConfig({ PORT: '0', DATA_DIR: dataDir }), options);
  const now = options.now ?? (() => db.clock.now());
  const refusals = new Refusals(db, log, now);
  const ctx: Context = {
    ...{ config, db, events, refusals, checkLibrary, stagingTermsOf, log, now },
    ...{ caller: SYSTEM, copies: createCopyLook(), recordMissing },
  };
  const engine = options.library && (await startEngine(ctx, options.library, { drainMs: 200, ...options.engine }));
  const { secret: token } = await createToken(
    { ...ctx, now: () => db.clock.now() },
    { name: 'operator', role: 'OPERATOR' },
  );
  const gateway: Gateway = await startGateway(ctx);
  return {
    ctx,
    token,
    url: gateway.url,
    api: `${gateway.url}/tape_control/api/v1`,
    dataDir,
    restoreDir: path.join(dataDir, 'restore'),
    databaseUrl: database.url,
    close: async () => {
      leaveConnections();
      await gateway.close();
      await engine?.stop();
      events.close();
      await refusals.settle();
      await db.close();
      await database.drop();
      rmSync(dataDir, { recursive: true, force: true });
      locks?.stop();
      if (locks && locks.violations.length > 0) throw new Error(`locks out of order:\n${locks.violations.join('\n')}`);
    },
  };
}

function withChanges(config: Config, changes: Pick<TestAppOptions, 'config' | 'limits'>): Config {
  return {
    ...config,
    limits: { ...config.limits, ...changes.limits },
    ...changes.config,
    access: { ...config.access, ...changes.config?.access },
  };
}

/**
 * Starts another gateway on an app's database, with other settings, much faster than another app.
 * Opens new database connections only if `database` is given. Close the gateway before the app.
 */
export async function startBeside(
  app: TestApp,
  options: Pick<TestAppOptions, 'config' | 'limits' | 'database' | 'now'>,
): Promise<TestApp> {
  const config = withChanges(app.ctx.config, options);
  const own = options.database && openDatabase(app.ctx.db.config, { log: app.ctx.log, ...options.database });
  await own?.pulse.start();
  const db = own ?? { ...app.ctx.db }; // a new object, because the gateway's caches are stored per object
  const events = new EventFeed(db);
  await events.open();
  const ctx: Context = { ...app.ctx, config, db, events, now: options.now ?? app.ctx.now };
  const gateway = await startGateway(ctx);
  return {
    ...app,
    ctx,
    url: gateway.url,
    api: `${gateway.url}/tape_control/api/v1`,
    close: async () => {
      leaveConnections();
      await gateway.close();
      events.close();
      await own?.close();
    },
  };
}
