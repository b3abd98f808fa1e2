/** Counts the rows that transactions read and write, with PostgreSQL's statistics. */
import { sql } from '../../src/db/sql.js';
import { observeTransactions, type TransactionRun } from '../../src/db/transaction.js';

export interface Work {
  transaction: string;
  /** Number of inserted, updated and deleted rows by table. Tables without changes are missing. */
  written: Record<string, number>;
  /** Number of read rows by table. */
  read: Record<string, number>;
}

/** Returns the transactions that run during `work`, in order of their start. */
export async function countRows(work: () => Promise<unknown>): Promise<Work[]> {
  const seen = new Map<TransactionRun, Work>();
  // subtract the counters after the first statement: PostgreSQL still includes the connection's previous work
  const before = new Map<TransactionRun, Map<string, { written: number; read: number }>>();
  const stop = observeTransactions({
    asks: true,
    onBegin: (run) => void seen.set(run, { transaction: run.name, written: {}, read: {} }),
    onStatement: async (run, _statement, ask) => {
      const done = seen.get(run);
      if (!done) return; // the transaction began before the recording
      const rows = await ask<{ table: string; written: number; read: number }>(
        sql`SELECT relname AS "table", (n_tup_ins + n_tup_upd + n_tup_del)::int AS written,
              (seq_tup_read + coalesce(idx_tup_fetch, 0))::int AS read
            FROM pg_stat_xact_user_tables WHERE schemaname = 'public'`,
      );
      const base = before.get(run);
      if (!base) return void before.set(run, new Map(rows.map((row) => [row.table, row])));
      for (const { table, written, read } of rows) {
        const first = base.get(table) ?? { written: 0, read: 0 };
        if (written > first.written) done.written[table] = written - first.written;
        if (read > first.read) done.read[table] = read - first.read;
      }
    },
  });
  try {
    await work();
  } finally {
    stop();
  }
  return [...seen.values()];
}
