/** Lists the recalls that wait or run, with their failed attempts, for operators. */
import { allOf, type Sql, sql } from '../../db/sql.js';
import type { Recall } from '../../generated/prisma/client.js';
import type { Context } from '../context.js';
import { checkText } from '../input.js';
import { keyedList } from '../page-keys.js';
import { allow } from '../policy.js';

interface ListRecallsInput {
  /** Name of the volume from which the files are read. */
  volume?: string | null | undefined;
  /** Whether to list only recalls with an error, or with a reason that delays the next attempt. */
  onlyWithErrors?: boolean | null | undefined;
}

export function listRecalls(ctx: Context, { volume, onlyWithErrors }: ListRecallsInput, reader?: AbortSignal) {
  allow(ctx, 'listRecalls');
  const conditions: Sql[] = [];
  if (volume)
    conditions.push(sql`c.volume_id = (SELECT v.id FROM volume v WHERE v.name = ${checkText('volume', volume)})`);
  if (onlyWithErrors) conditions.push(sql`c.error IS NOT NULL`);
  const rows = sql`recall c WHERE ${allOf(conditions)}`;
  return keyedList<bigint, Recall>(ctx, { rows, reader, id: sql`c.file_id` }, (at, fileId, query) =>
    at.db.prisma.recall.findMany({ ...query, where: { fileId }, orderBy: { fileId: 'asc' } }),
  );
}
