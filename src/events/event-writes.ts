/**
 * Writes events in the last statements of the transaction that changes the files and requests. When the events are
 * written, the transaction has already locked the changed rows. Transactions that change the same rows therefore get
 * event numbers in commit order.
 */
import { prepared } from '../db/prepared.js';
import { sql } from '../db/sql.js';
import type { Transaction } from '../db/transaction.js';
import type { Stage } from '../generated/prisma/enums.js';

interface Pending {
  moves: { ids: bigint[]; from: Stage; to: Stage }[];
  requests: Set<number>;
}

const pendingOf = new WeakMap<Transaction, Pending>();

interface Clock {
  now(): string;
}

function pending(ctx: Clock, tx: Transaction): Pending {
  const known = pendingOf.get(tx);
  if (known) return known;
  const fresh: Pending = { moves: [], requests: new Set() };
  pendingOf.set(tx, fresh);
  tx.beforeCommit('events', () => insertEvents(tx, fresh, ctx.now()));
  return fresh;
}

export function recordMoves(ctx: Clock, tx: Transaction, ids: bigint[], move: { from: Stage; to: Stage }): void {
  if (ids.length > 0) pending(ctx, tx).moves.push({ ids, ...move });
}

export function recordProgress(ctx: Clock, tx: Transaction, requestIds: readonly number[]): void {
  for (const id of requestIds) pending(ctx, tx).requests.add(id);
}

async function insertEvents(tx: Transaction, events: Pending, at: string): Promise<void> {
  const moves = events.moves.flatMap(({ ids, from, to }) => ids.map((id) => ({ id, from, to })));
  if (moves.length > 0) {
    const [ids, from, to] = [moves.map((m) => m.id), moves.map((m) => m.from), moves.map((m) => m.to)];
    tx.send(
      sql`INSERT INTO event (at, file_id, from_stage, to_stage, request_ids)
          SELECT ${at}::timestamp, m.id, m.from_stage, m.to_stage, ARRAY(SELECT h.request_id FROM live_request_file h WHERE h.file_id = m.id ORDER BY 1)
          FROM unnest(${ids}::bigint[], ${from}::"Stage"[], ${to}::"Stage"[]) WITH ORDINALITY AS m (id, from_stage, to_stage, n) ORDER BY m.n`,
    );
  }
  if (events.requests.size > 0) {
    tx.send(
      prepared(
        sql`INSERT INTO event (at, request_ids, request_id, state, files_total, files_on_disk, files_failed, bytes_total, bytes_on_disk)
         SELECT ${at}::timestamp, '{}', id, state, files_total, files_on_disk, files_failed, bytes_total, bytes_on_disk FROM request WHERE id = ANY(${[...events.requests]}::int[]) ORDER BY id`,
      ),
    );
  }
}
