/** Rows that Tapegate's own SQL reads whole equal the rows that Prisma reads. */
import { expect, test } from 'vitest';
import { getFile, listFiles } from '../../src/domain/catalogue/tape-files.js';
import { getQuota, listQuotasByPage } from '../../src/domain/quotas/quotas.js';
import { createRequest } from '../../src/domain/requests/create.js';
import {
  getRequest,
  listRequests,
  readRequestFiles,
  readRequestsOf,
  readUnresolved,
} from '../../src/domain/requests/rows.js';
import { addFiles, addQuota } from '../support/factories.js';
import { useApp } from '../support/use-app.js';

const app = useApp();
const first = { limit: 10 };
const wish = { descending: false, limit: 10 };

test('rows have all columns, with the values that Prisma reads', async () => {
  const { ctx } = app;
  const { prisma, pool } = ctx.db;
  await addQuota(ctx, 'alice', 10n ** 18n);
  await addFiles(ctx, [{ path: '/whole/1', volume: 'V1', size: 2n ** 53n + 1n }]);
  await pool.query(
    `UPDATE tape_file SET verified = '2026-01-02T03:04:05.000006', mode = 420, uid = 7, disk_mtime_ns = 9007199254740993`,
  );
  const id = await createRequest(ctx, { quota: 'alice', files: ['/whole/1', '/whole/none'], maxBytes: 2n ** 62n });
  await pool.query(`UPDATE request SET ruled_groups = '{a,"b c"}', tapestore_request_start = '2026-01-02T03:04:05.1'`);
  await pool.query('UPDATE quota SET drive_seconds = 1.5, drive_seconds_at = now()');
  const request = await prisma.request.findUniqueOrThrow({ where: { id }, include: { quota: true } });
  const quota = await prisma.quota.findUniqueOrThrow({ where: { user: 'alice' } });
  const file = await prisma.tapeFile.findUniqueOrThrow({ where: { path: '/whole/1' } });
  const requestFile = await prisma.requestFile.findFirstOrThrow({ where: { requestId: id } });
  const unresolved = await prisma.unresolvedPath.findFirstOrThrow({ where: { requestId: id } });

  expect(await getRequest(ctx, id)).toEqual(request);
  expect(await listRequests(ctx, {}).page(first)).toEqual([request]);
  expect((await readRequestsOf(ctx, [quota.id], wish)).get(quota.id)).toMatchObject([{ key: id, row: request }]);
  expect(await getQuota(ctx, 'alice')).toEqual(quota);
  expect(await listQuotasByPage(ctx).page(first)).toEqual([quota]);
  expect(await getFile(ctx, '/whole/1')).toEqual(file);
  expect(await listFiles(ctx, {}).page(first)).toEqual([file]);
  expect((await readRequestFiles(ctx, [id], wish)).get(id)).toMatchObject([{ row: { ...requestFile, file } }]);
  expect((await readUnresolved(ctx, [id], wish)).get(id)).toMatchObject([{ row: unresolved }]);
});
