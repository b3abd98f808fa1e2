/** Opens what every process needs, in order, and closes it in reverse. */
import path from 'node:path';
import { pino } from 'pino';
import type { Config } from './config.js';
import type { Context } from './context.js';
import { openDatabase } from './database/client.js';
import { type Embedded, startEmbedded } from './database/embedded.js';
import { migrate } from './database/migrate.js';
import { codeOf, messageOf } from './errors.js';
import { EventFeed } from './events.js';
import { installExactJson } from './json.js';
import { currentTime } from './time.js';

export interface Runtime {
  ctx: Context;
  /** Names of the migrations that were applied. */
  migrated: string[];
  close(): Promise<void>;
}

const DATABASE = 'tapegate';

export async function openRuntime(config: Config): Promise<Runtime> {
  installExactJson();
  const log = pino({ level: config.logLevel, base: null }, pino.destination({ dest: 2, sync: true }));
  let embedded: Embedded | undefined;
  if (config.databaseUrl === undefined) {
    embedded = await startEmbedded({ dataDir: path.join(config.dataDir, 'postgres') });
  }
  try {
    await embedded?.ensureDatabase(DATABASE);
    const connection = embedded?.config(DATABASE) ?? { connectionString: config.databaseUrl ?? '' };
    const migrated = await migrate(connection).catch((error) => {
      throw withReason(error);
    });
    const db = openDatabase(connection);
    const events = new EventFeed(db);
    const ctx: Context = { config, db, events, log, now: currentTime };
    return {
      ctx,
      migrated,
      close: async () => {
        await events.close();
        await db.close();
        await embedded?.close();
      },
    };
  } catch (error) {
    await embedded?.close();
    throw error;
  }
}

const UNREACHABLE = ['ECONNREFUSED', 'ENOENT', 'EACCES', 'ENOTFOUND', 'EAI_AGAIN', 'ETIMEDOUT', 'EHOSTUNREACH'];

/** A connection that fails at several addresses has an error without a text. */
function withReason(error: unknown): unknown {
  if (!UNREACHABLE.includes(codeOf(error) ?? '')) return error;
  const causes = error instanceof AggregateError ? error.errors : [error];
  return new Error(`the database does not answer: ${causes.map(messageOf).join(', ')}`, { cause: error });
}
