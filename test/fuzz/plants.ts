/** Faults that are planted into the server of a fuzz, to show that it finds them. */
import { subscribe } from 'node:diagnostics_channel';
import type { IncomingMessage } from 'node:http';
import pg from 'pg';
import type { Context } from '../../src/context.js';

const LEAK_BYTES = 128 * 1024;
/** Unusual, but valid texts. */
const UNUSUAL = /[\u2028\u202e]|DROP TABLE|__proto__|constructor/;

const onRequest = (look: (request: IncomingMessage) => void): void =>
  subscribe('http.server.request.start', (message) => look((message as { request: IncomingMessage }).request));

export const plants = {
  /** An uncaught error for an unexpected value. */
  crash: async () => {
    onRequest(({ url = '' }) => {
      if (url.includes('%00')) setImmediate(() => JSON.parse(url));
    });
  },
  /** Something of every request is kept for ever. */
  leak: async () => {
    const kept: number[][] = [];
    onRequest(() => kept.push(new Array(LEAK_BYTES / 8).fill(kept.length + 0.5)));
  },
  /** Some charges are a byte too much. */
  quota: async (ctx: Context) => {
    await ctx.db.pool.query(`
      CREATE FUNCTION planted_charge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.used > OLD.used AND NEW.used % 5 = 0 THEN NEW.used := NEW.used + 1; END IF;
        RETURN NEW;
      END $$;
      CREATE TRIGGER planted_charge BEFORE UPDATE ON quota FOR EACH ROW EXECUTE FUNCTION planted_charge()`);
  },
  /** The database rejects unusual texts. */
  'internal-error': async () => {
    const query = pg.Client.prototype.query as (...args: unknown[]) => unknown;
    pg.Client.prototype.query = function refusing(this: pg.Client, ...args: unknown[]) {
      const [{ values = [] } = {}] = args as [{ values?: unknown[] }?];
      const isHit = values.some((value) => typeof value === 'string' && UNUSUAL.test(value));
      if (isHit) throw new Error('planted: an unusual text');
      return query.apply(this, args);
    } as typeof pg.Client.prototype.query;
  },
};

export type PlantName = keyof typeof plants;
