/** What an import changes of files that live requests hold reaches these. The changed files are in the temporary table `known`, as they were. */
import { sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { quote } from '../../errors.js';
import { isWaiting } from '../conditions.js';
import { hasNewCopy } from './import-copies.js';
import { ImportError, MAX_FAULTS } from './import-faults.js';
import { isSameSource, placeOfFile } from './versions.js';

/**
 * Live requests follow what was changed of files that they hold: sizes are charged anew, new places reach the queue, and
 * what was given up is tried again where something else is to be read now.
 * @returns the ids of the requests that are to be settled
 * @throws ImportError
 */
export async function followChanges(tx: Transaction): Promise<number[]> {
  await refuseUncountable(tx);
  // what went wrong so far went wrong with other bytes, or elsewhere; a recall that runs follows when it ends
  await tx.query(
    sql`UPDATE recall c SET ${placeOfFile}, attempts = 0, earlier_tries = 0, not_before = NULL, error_class = NULL, error = NULL
        FROM known k JOIN tape_file f ON f.id = k.id WHERE c.file_id = f.id AND ${isWaiting}
          AND NOT ${isSameSource('k', 'f')}`,
  );
  const waitsAgain = sql`((f.stage = 'ONTAPE' AND h.state = 'ON_DISK') OR (h.state = 'FAILED' AND (${hasNewCopy} OR NOT ${isSameSource('k', 'f')})))`;
  const rows = await tx.query<{ id: number }>(
    sql`WITH changed AS (
          SELECT h.request_id, h.file_id, h.quota_id, f.size, f.size - h.size AS delta, ${waitsAgain} AS waits
          FROM known k JOIN tape_file f ON f.id = k.id JOIN live_hold h ON h.file_id = f.id
          WHERE f.size <> h.size OR ${waitsAgain}
            OR (h.state = 'WAITING' AND k.stage = 'UNVERIFIED' AND f.stage <> 'UNVERIFIED')
        ), held AS (
          UPDATE hold h SET size = c.size, state = CASE WHEN c.waits THEN 'WAITING' ELSE h.state END,
            error_class = CASE WHEN NOT c.waits THEN h.error_class END, error = CASE WHEN NOT c.waits THEN h.error END
          FROM changed c WHERE h.request_id = c.request_id AND h.file_id = c.file_id
        ), charged AS (
          UPDATE quota q SET used = q.used + s.delta
          FROM (SELECT quota_id, sum(delta) AS delta FROM changed GROUP BY quota_id) s WHERE q.id = s.quota_id
        ) SELECT DISTINCT request_id AS id FROM changed ORDER BY id`,
  );
  return rows.map((row) => row.id);
}

/** Files that grow are charged beyond the quota of who holds them, but not beyond what can be counted. */
async function refuseUncountable(tx: Transaction): Promise<void> {
  const rows = await tx.query<{ user: string; used: bigint; grown: string }>(
    sql`SELECT q."user", q.used, (q.used + sum(f.size - h.size))::text AS grown
        FROM known k JOIN tape_file f ON f.id = k.id JOIN live_hold h ON h.file_id = f.id JOIN quota q ON q.id = h.quota_id
        WHERE f.size <> h.size GROUP BY q.id HAVING q.used + sum(f.size - h.size) > ${MAX_BYTES}::numeric
        ORDER BY q."user" LIMIT ${MAX_FAULTS + 1}`,
  );
  if (rows.length === 0) return;
  throw new ImportError(
    rows.map(
      ({ user, used, grown }) =>
        `the files that user ${quote(user)} holds would be ${grown} bytes together, and are ${used} now: at most ${MAX_BYTES} can be charged`,
    ),
  );
}

const MAX_BYTES = 2n ** 63n - 1n;
