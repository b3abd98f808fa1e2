/** Endpoint for quotas (sections 2.3, 2.5 and 4.6 of the REST contract). */
import type { Request, Response } from 'express';
import { formatJson } from '../../src/core/text/json.js';
import type { Context } from '../../src/domain/context.js';
import { getQuota, readUsed } from '../../src/domain/quotas/quotas.js';
import { listRequests, type RequestRow } from '../../src/domain/requests/rows.js';
import { presentTimes } from './requests.js';
import { sendList } from './respond.js';

export async function getOne(ctx: Context, req: Request, res: Response): Promise<void> {
  const quota = await getQuota(ctx, String(req.params.user));
  const fields = {
    id: quota.id,
    user: quota.user,
    size: quota.size,
    used: await readUsed(ctx, quota),
    email: quota.email,
    notes: quota.notes,
  };
  const head = `[${formatJson(fields).slice(0, -1)},"requests":[`;
  await listRequests(ctx, { quota: quota.user }).stream((pages) =>
    sendList(res, { head, pages, present: presentRequest, tail: ']}]' }),
  );
}

function presentRequest(request: RequestRow) {
  return {
    id: request.id,
    request_date: request.requestDate,
    retention: request.retention,
    label: request.label,
    ...presentTimes(request),
  };
}
