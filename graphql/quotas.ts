/** Users and their quotas. */
import type { Request } from '../src/generated/prisma/client.js';
import { getQuota } from '../src/operations/quotas/quotas.js';
import { readDriveSecondsOf } from '../src/operations/quotas/shares.js';
import { readUsedOf } from '../src/operations/quotas/used.js';
import { createBatch } from './batch.js';
import { builder, pageComplexity } from './builder.js';
import { orNull } from './errors.js';
import { type InnerList, resolveInnerPage } from './pages.js';
import { RequestType } from './requests.js';

const usedOf = createBatch(readUsedOf);
const driveSecondsOf = createBatch(readDriveSecondsOf);

const requests: InnerList<Request> = {
  place: { table: 'request', parent: 'quota_id', key: 'id' },
  descending: true,
  typeName: 'Request',
  load: (ctx, pages, query) =>
    ctx.db.prisma.request.findMany({ ...query, where: { id: { in: pages.flatMap(({ keys }) => keys) } } }),
  parentOf: (request) => request.quotaId,
  keyOf: (request) => request.id,
};

builder.prismaNode('Quota', {
  id: { field: 'id' },
  nullable: true,
  description: "A user and the user's allowance.",
  fields: (t) => ({
    user: t.exposeString('user'),
    size: t.expose('size', { type: 'BigInt', description: 'Bytes.' }),
    used: t.field({
      type: 'BigInt',
      description: 'Bytes that the live requests hold.',
      select: { id: true },
      resolve: async ({ id }, _args, ctx) => (await usedOf(ctx, id)) ?? 0n,
    }),
    email: t.exposeString('email'),
    notes: t.exposeString('notes'),
    weight: t.exposeFloat('weight', { description: 'Who has twice the weight may have twice the drive time.' }),
    driveSeconds: t.float({
      description: 'Drive time that its recalls have had of late; half of it is forgotten in a day.',
      select: { id: true },
      resolve: async ({ id }, _args, ctx) => (await driveSecondsOf(ctx, id)) ?? 0,
    }),
    requests: t.connection({
      type: RequestType,
      description: 'All of them, ended ones too, newest first.',
      complexity: pageComplexity,
      select: { id: true },
      resolve: ({ id }, args, ctx, info) => resolveInnerPage({ ctx, info, parentId: id }, requests, args),
    }),
  }),
});

builder.queryFields((t) => ({
  quota: t.prismaField({
    type: 'Quota',
    nullable: true,
    args: { user: t.arg.string({ required: true }) },
    resolve: (query, _root, { user }, ctx) => orNull(getQuota(ctx, user, query)),
  }),
}));
