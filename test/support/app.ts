/** Tapegate in the test's process: real HTTP, a database of its own, an engine on the back end that is given. */
import { rmSync } from 'node:fs';
import path from 'node:path';
import type { ClientConfig } from 'pg';
import { type Logger, pino } from 'pino';
import { type Gateway, startGateway } from '../../src/app.js';
import { SYSTEM } from '../../src/caller.js';
import { type Config, readConfig } from '../../src/config.js';
import type { Limits } from '../../src/config-limits.js';
import type { Context } from '../../src/context.js';
import { type DatabaseOptions, openDatabase } from '../../src/database/client.js';
import { type EngineOptions, startEngine } from '../../src/engine/runner.js';
import { EventFeed } from '../../src/events.js';
import { installExactJson } from '../../src/json.js';
import { createToken } from '../../src/operations/access/tokens.js';
import { Refusals } from '../../src/refusals.js';
import type { TapeBackend } from '../../src/tape/backend.js';
import { backendNames } from '../../src/tape/index.js';
import { checkLibrary, stagingTermsOf } from '../../src/tape/kinds.js';
import { createDatabase } from './database.js';
import { leaveConnections } from './http.js';
import { watchLocks } from './lock-watch.js';
import { makeTempDir } from './temp-dir.js';

export interface TestApp {
  ctx: Context;
  /** `http://127.0.0.1:port` */
  url: string;
  /** Of the REST contract. */
  api: string;
  dataDir: string;
  /** An operator's, which what is sent by GraphQL shows. */
  token: string;
  restoreDir: string;
  databaseUrl: string;
  close(): Promise<void>;
}

export interface TestAppOptions {
  /** Without one, no engine runs. */
  backend?: TapeBackend;
  engine?: EngineOptions;
  config?: Partial<Omit<Config, 'access'>> & { access?: Partial<Config['access']> };
  limits?: Partial<Limits>;
  /** The clock; the real one unless given. */
  now?: () => string;
  /** The log; silent unless given, or TEST_LOG says otherwise. */
  log?: Logger;
  database?: Partial<DatabaseOptions>;
  /** The way that the app takes to its database. */
  through?: (connection: ClientConfig) => ClientConfig;
  /** Locks out of order fail the test file, unless told. */
  watchesLocks?: boolean;
}

export async function startApp(options: TestAppOptions = {}): Promise<TestApp> {
  installExactJson();
  const locks = options.watchesLocks === false ? undefined : watchLocks();
  const dataDir = makeTempDir();
  const database = await createDatabase();
  const log = options.log ?? pino({ level: process.env.TEST_LOG ?? 'silent' });
  const { longLists = 16 } = options.limits ?? {};
  const settings = { log, longLists, ...options.database };
  const db = openDatabase(options.through?.(database.connection) ?? database.connection, settings);
  await db.pulse.start();
  const events = new EventFeed(db);
  await events.open();
  const defaults = readConfig({ PORT: '0', DATA_DIR: dataDir }, backendNames);
  const config = {
    ...defaults,
    limits: { ...defaults.limits, ...options.limits },
    ...options.config,
    access: { ...defaults.access, ...options.config?.access },
  };
  const now = options.now ?? (() => db.clock.now());
  const refusals = new Refusals(db, log, now);
  const ctx: Context = { config, db, events, refusals, checkLibrary, stagingTermsOf, log, caller: SYSTEM, now };
  const engine = options.backend && (await startEngine(ctx, options.backend, { drainMs: 200, ...options.engine }));
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
      await events.close();
      await refusals.settle();
      await db.close();
      await database.drop();
      rmSync(dataDir, { recursive: true, force: true });
      locks?.stop();
      if (locks && locks.violations.length > 0) throw new Error(`locks out of order:\n${locks.violations.join('\n')}`);
    },
  };
}
