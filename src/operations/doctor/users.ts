/** What is left of users that were forgotten: what a process that had read it before has written after. */
import { lockQuotas, lockRequests } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { FORGOTTEN } from '../users/forget.js';
import type { FaultKind } from './findings.js';

const isForgotten = sql`q.removed_at IS NOT NULL AND q."user" ~ ${`^${FORGOTTEN}[0-9a-f]{8}$`}`;
const hasNotes = sql`(q.email <> '' OR q.notes <> '')`;
const isTold = sql`(r.notify_on_first_file IS NOT NULL OR r.notify_on_last_file IS NOT NULL OR r.label <> q."user")`;
const isLetter = sql`(n.recipient <> q."user" OR n.subject <> '' OR n.body <> '' OR n.last_error IS NOT NULL)`;

const userRemains: FaultKind = {
  kind: 'user-remains',
  find: (after, limit) => sql`SELECT * FROM (
      SELECT q.id::bigint AS key, 'user ' || q."user" AS thing, 'nothing of a person' AS expected,
        concat_ws(', ', CASE WHEN ${hasNotes} THEN 'an address or notes' END,
          CASE WHEN EXISTS (SELECT FROM request r WHERE r.quota_id = q.id AND ${isTold}) THEN 'addresses or labels of requests' END,
          CASE WHEN EXISTS (SELECT FROM notification n JOIN request r ON r.id = n.request_id
            WHERE r.quota_id = q.id AND ${isLetter}) THEN 'mail' END) AS found
      FROM quota q WHERE q.id > ${after} AND ${isForgotten}
    ) u WHERE u.found <> '' ORDER BY u.key LIMIT ${limit}`,
  repair: async (ctx, keys) =>
    await transaction(ctx.db.pool, 'repairForgotten', async (tx) => {
      const isOne = sql`q.id = ANY(${keys}::int[]) AND ${isForgotten}`;
      await lockRequests(tx, sql`r.quota_id = ANY(${keys}::int[])`);
      await lockQuotas(tx, isOne);
      await tx.query(sql`UPDATE quota q SET email = '', notes = '' WHERE ${isOne}`);
      await tx.query(
        sql`UPDATE request r SET notify_on_first_file = NULL, notify_on_last_file = NULL, label = q."user"
            FROM quota q WHERE q.id = r.quota_id AND ${isOne} AND ${isTold}`,
      );
      await tx.query(
        sql`UPDATE notification n SET recipient = q."user", subject = '', body = '', last_error = NULL,
              state = CASE WHEN n.state = 'PENDING' THEN 'REJECTED' ELSE n.state END
            FROM request r JOIN quota q ON q.id = r.quota_id WHERE r.id = n.request_id AND ${isOne} AND ${isLetter}`,
      );
    }),
};

export const userFaults: readonly FaultKind[] = [userRemains];
