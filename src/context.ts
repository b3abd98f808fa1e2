/** What every operation is given: the wiring makes one for each process. */
import type { Logger } from 'pino';
import type { Config } from './config.js';
import type { Database } from './database/client.js';
import type { EventFeed } from './events.js';

export interface Context {
  config: Config;
  db: Database;
  events: EventFeed;
  log: Logger;
  /** The present time, by the database's clock; tests set it. */
  now(): string;
}
