/** Faults that are put into the server of a fuzz, to see that it finds each. */
import { subscribe } from 'node:diagnostics_channel';
import type { IncomingMessage } from 'node:http';
import pg from 'pg';
import type { Context } from '../../src/context.js';

export const plantNames = ['crash', 'leak', 'quota', 'internal-error'] as const;
export type PlantName = (typeof plantNames)[number];

const LEAK_BYTES = 128 * 1024;
/** Unusual, and taken: a direction, a separator, and words that mean something elsewhere. */
const UNTHOUGHT = /[\u2028\u202e]|DROP TABLE|__proto__|constructor/;

/** What a program with this fault would do; the program itself is as it is. */
export const plants: Record<PlantName, (ctx: Context) => Promise<void>> = {
  /** A value that nobody expected, where nobody catches what is thrown. */
  crash: async () => {
    onRequest(({ url = '' }) => {
      if (url.includes('%00')) setImmediate(() => JSON.parse(url));
    });
  },
  /** Something is kept of every request, and never let go. */
  leak: async () => {
    const kept: number[][] = [];
    onRequest(() => kept.push(new Array(LEAK_BYTES / 8).fill(kept.length + 0.5)));
  },
  /** Now and then a charge is a byte too much. */
  quota: async (ctx) => {
    await ctx.db.pool.query(`
      CREATE FUNCTION planted_charge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.used > OLD.used AND NEW.used % 5 = 0 THEN NEW.used := NEW.used + 1; END IF;
        RETURN NEW;
      END $$;
      CREATE TRIGGER planted_charge BEFORE UPDATE ON quota FOR EACH ROW EXECUTE FUNCTION planted_charge()`);
  },
  /** The database refuses texts that nobody thought of. */
  'internal-error': async () => {
    const query = pg.Client.prototype.query as (...args: unknown[]) => unknown;
    pg.Client.prototype.query = function refusing(this: pg.Client, ...args: unknown[]) {
      const [{ values = [] } = {}] = args as [{ values?: unknown[] }?];
      const isHit = values.some((value) => typeof value === 'string' && UNTHOUGHT.test(value));
      if (isHit) throw new Error('planted: what to do with this text?');
      return query.apply(this, args);
    } as typeof pg.Client.prototype.query;
  },
};

function onRequest(look: (request: IncomingMessage) => void): void {
  subscribe('http.server.request.start', (message) => look((message as { request: IncomingMessage }).request));
}
