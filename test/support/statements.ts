/** Records the SQL statements of this process. */
import pg from 'pg';

export interface Statement {
  /** Statements of one round trip, joined by `;` and a line feed. */
  text: string;
  /** Maximum number of rows that one of the statements returned. */
  rows: number;
}

type Callback = (error: unknown, result?: unknown) => void;

const textOf = (query: unknown) => (typeof query === 'string' ? query : (query as { text: string }).text);

/**
 * Returns the statements that run during `work`, without the heartbeat.
 * Statements of the event feed and of authentication are only included with `isFeedToo`.
 */
export async function recordStatements(work: () => Promise<unknown>, { isFeedToo = false } = {}): Promise<Statement[]> {
  const statements: Statement[] = [];
  /** Current round trip of each client. */
  const trips = new WeakMap<pg.Client, { statement: Statement; unanswered: number }>();
  const begin = (client: pg.Client, text: string) => {
    const current = trips.get(client);
    if (client.pipeline && current && current.unanswered > 0) {
      current.statement.text += `;\n${text}`;
      return current;
    }
    const trip = { statement: { text, rows: 0 }, unanswered: 0 };
    statements.push(trip.statement);
    trips.set(client, trip);
    return trip;
  };
  const original = pg.Client.prototype.query as (...args: unknown[]) => unknown;
  pg.Client.prototype.query = function recorded(this: pg.Client, ...args: unknown[]) {
    const text = textOf(args[0]);
    if (text === 'DISCARD PLANS') return original.apply(this, args);
    const trip = begin(this, text);
    trip.unanswered++;
    const note = (result?: unknown) => {
      trip.unanswered--;
      const [end] = [result].flat().slice(-1) as (pg.QueryResult | undefined)[]; // each statement has its own result
      trip.statement.rows = Math.max(trip.statement.rows, end?.rows.length ?? 0);
    };
    const callback = args.at(-1);
    if (typeof callback === 'function') {
      args[args.length - 1] = ((error, result) => {
        note(result);
        (callback as Callback)(error, result);
      }) satisfies Callback;
    }
    const answer = original.apply(this, args);
    if (answer instanceof Promise) answer.then(note, () => note());
    return answer;
  } as typeof pg.Client.prototype.query;
  try {
    await work();
  } finally {
    pg.Client.prototype.query = original as typeof pg.Client.prototype.query;
  }
  const asked = statements.filter(({ text }) => !text.includes('AS micros'));
  return asked.filter(({ text }) => isFeedToo || !/FROM event|number_events|api_token|quota_member/.test(text));
}
