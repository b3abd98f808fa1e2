/** Lists the files that failed permanently in live requests, for viewers and operators. */
import { allOf, type Sql, sql } from '../../db/sql.js';
import { isLive } from '../conditions.js';
import type { Context } from '../context.js';
import { checkText } from '../input.js';
import { atListServer } from '../list-server.js';
import { countRows, type KeyPage, readPage } from '../page-keys.js';
import { allow } from '../policy.js';
import { type RequestFileWithFile, withAllFields } from './rows.js';

/** Position of a file in the list. */
export interface FailedFileKey {
  requestId: number;
  fileId: bigint;
}

interface ListFailedFilesInput {
  /** Name of the volume with the first copies of the files. */
  volume?: string | null | undefined;
}

const rowOf = (key: FailedFileKey | undefined) => key && sql`ROW(${key.requestId}::int, ${key.fileId}::bigint)`;

/** Returns functions to count failed files and to read a page of them. The files of the newest requests come first. */
export function listFailedFiles(ctx: Context, { volume }: ListFailedFilesInput, reader?: AbortSignal) {
  allow(ctx, 'listFailedFiles');
  // the index on failed files has the first two conditions
  const conditions: Sql[] = [
    sql`c.state = 'FAILED'`,
    sql`NOT c.is_ended`,
    isLive,
    sql`r.retention > ${ctx.now()}::timestamp`,
  ];
  if (volume)
    conditions.push(sql`f.volume_id = (SELECT v.id FROM volume v WHERE v.name = ${checkText('volume', volume)})`);
  const rows = sql`request_file c JOIN request r ON r.id = c.request_id JOIN tape_file f ON f.id = c.file_id
    WHERE ${allOf(conditions)}`;
  const { columns, takeFile } = withAllFields;
  return {
    count: () => atListServer(ctx, (at) => countRows(at, { rows, reader })),
    page: async ({ after, before, ...page }: KeyPage<FailedFileKey>): Promise<RequestFileWithFile[]> => {
      const list = { rows, reader, columns, key: sql`ROW(c.request_id, c.file_id)` };
      const keyPage = { ...page, after: rowOf(after), before: rowOf(before), descending: true };
      const found = await atListServer(ctx, (at) => readPage<RequestFileWithFile>(at, list, keyPage));
      return found.map((row) => ({ ...row, file: takeFile(row) }));
    },
  };
}
