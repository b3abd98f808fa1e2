/** What the log tells of the life of requests, by their ids: a line for each step, once it is committed. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';

export type Step = 'made' | 'started' | 'expired' | 'cancelled';

/** Lines of a step that many requests take together; the last one says how many more there are. */
const MOST_LINES = 100;

/** @param figures what else is to be told of each */
export function noteStep(
  ctx: Context,
  tx: Transaction,
  step: Step,
  ids: readonly number[],
  figures: object = {},
): void {
  if (ids.length === 0) return;
  tx.afterCommit(() => {
    for (const request of ids.slice(0, MOST_LINES)) ctx.log.info({ request, ...figures }, `request ${step}`);
    if (ids.length > MOST_LINES) ctx.log.info({ requests: ids.length - MOST_LINES }, `more requests ${step}`);
  });
}

interface Steps {
  id: number;
  state: string;
  isFirst: boolean;
  isFinished: boolean;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
}

/** What live requests have come to at that time, which is that of the transaction that has counted them. */
export async function noteSteps(
  ctx: Context,
  tx: Transaction,
  requestIds: readonly number[],
  now: string,
): Promise<void> {
  if (!ctx.log.isLevelEnabled('info')) return;
  const rows = await tx.query<Steps>(
    sql`SELECT * FROM (
          SELECT r.id, r.state, coalesce(r.first_files_on_disk = ${now}::timestamp, false) AS "isFirst",
            r.state IN ('COMPLETED', 'PARTIAL') AND coalesce(r.tapestore_request_end = ${now}::timestamp, false) AS "isFinished",
            r.files_total AS "filesTotal", r.files_on_disk AS "filesOnDisk", r.files_failed AS "filesFailed"
          FROM request r WHERE r.id = ANY(${requestIds}::int[])
        ) r WHERE r."isFirst" OR r."isFinished" ORDER BY r.id`,
  );
  if (rows.length === 0) return;
  tx.afterCommit(() => {
    for (const { id: request, state, isFirst, isFinished, ...files } of rows) {
      if (isFirst) ctx.log.info({ request }, 'request has its first file');
      if (isFinished) ctx.log.info({ request, state, ...files }, 'request finished');
    }
  });
}
