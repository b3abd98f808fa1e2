/**
 * Events are written: rows of an append-only table, in the transaction that makes them true, and as its last, so that the order of their
 * ids is that of the commits wherever two transactions have to do with each other. They are read by events.ts.
 */
import { prepared } from './database/prepared.js';
import { sql } from './database/sql.js';
import type { Transaction } from './database/transaction.js';
import type { Stage } from './generated/prisma/enums.js';

interface Pending {
  at: string;
  moves: { ids: bigint[]; from: Stage; to: Stage }[];
  requests: Set<number>;
}

const pendingOf = new WeakMap<Transaction, Pending>();

function pending(tx: Transaction): Pending {
  const known = pendingOf.get(tx);
  if (known) return known;
  const fresh: Pending = { at: '', moves: [], requests: new Set() };
  pendingOf.set(tx, fresh);
  tx.beforeCommit('events', () => insertEvents(tx, fresh));
  return fresh;
}

/** Records that files moved; the rows are inserted as the last thing of the transaction. */
export function recordMoves(tx: Transaction, ids: bigint[], move: { from: Stage; to: Stage }): void {
  if (ids.length > 0) pending(tx).moves.push({ ids, ...move });
}

/** Records that requests made progress, as it is at the end of the transaction. */
export function recordProgress(tx: Transaction, requestIds: readonly number[]): void {
  for (const id of requestIds) pending(tx).requests.add(id);
}

async function insertEvents(tx: Transaction, events: Pending): Promise<void> {
  const moves = events.moves.flatMap(({ ids, from, to }) => ids.map((id) => ({ id, from, to })));
  if (moves.length > 0) {
    const [ids, from, to] = [moves.map((m) => m.id), moves.map((m) => m.from), moves.map((m) => m.to)];
    tx.send(
      sql`INSERT INTO event (at, file_id, from_stage, to_stage, request_ids)
          SELECT timezone('utc', clock_timestamp()), m.id, m.from_stage, m.to_stage, ARRAY(SELECT h.request_id FROM live_hold h WHERE h.file_id = m.id ORDER BY 1)
          FROM unnest(${ids}::bigint[], ${from}::"Stage"[], ${to}::"Stage"[]) WITH ORDINALITY AS m (id, from_stage, to_stage, n) ORDER BY m.n`,
    );
  }
  if (events.requests.size > 0) {
    tx.send(
      prepared(
        sql`INSERT INTO event (at, request_ids, request_id, state, files_total, files_on_disk, files_failed, bytes_total, bytes_on_disk)
         SELECT timezone('utc', clock_timestamp()), '{}', id, state, files_total, files_on_disk, files_failed, bytes_total, bytes_on_disk FROM request WHERE id = ANY(${[...events.requests]}::int[]) ORDER BY id`,
      ),
    );
  }
}
