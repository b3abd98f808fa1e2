/** The SQL statements of the process. */
import pg from 'pg';

export interface Statement {
  text: string;
  /** The number of rows that it returned. */
  rows: number;
}

type Callback = (error: unknown, result: unknown) => void;

/** Returns the statements during `work`, without the heartbeat, and without those of the event feed and of authentication by default. */
export async function recordStatements(work: () => Promise<unknown>, { isFeedToo = false } = {}): Promise<Statement[]> {
  const statements: Statement[] = [];
  const original = pg.Client.prototype.query as (...args: unknown[]) => unknown;
  pg.Client.prototype.query = function recorded(this: pg.Client, ...args: unknown[]) {
    const [first, last] = [args[0], args.at(-1)];
    const statement = { text: typeof first === 'string' ? first : (first as { text: string }).text, rows: 0 };
    statements.push(statement);
    const note = (result: unknown) => {
      const [end] = [result].flat().slice(-1) as (pg.QueryResult | undefined)[]; // several statements have several
      statement.rows = end?.rows.length ?? 0;
      return result;
    };
    const noted = (callback: Callback) => (error: unknown, result: unknown) => callback(error, note(result));
    const query = first as { callback?: unknown }; // a prepared statement's has its own
    if (typeof query.callback === 'function') query.callback = noted(query.callback as Callback);
    else if (typeof last === 'function') args[args.length - 1] = noted(last as Callback);
    const result = original.apply(this, args);
    return result instanceof Promise ? result.then(note) : result;
  } as typeof pg.Client.prototype.query;
  try {
    await work();
  } finally {
    pg.Client.prototype.query = original as typeof pg.Client.prototype.query;
  }
  const asked = statements.filter(({ text }) => !text.includes('AS micros') && text !== 'DISCARD PLANS');
  return asked.filter(({ text }) => isFeedToo || !/FROM event|number_events|api_token|quota_member/.test(text));
}
