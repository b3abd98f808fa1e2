/** Users and their quotas. */
import { getQuota, readUsed } from '../src/operations/quotas.js';
import { builder, pageComplexity } from './builder.js';
import { orNull } from './errors.js';

builder.prismaNode('Quota', {
  id: { field: 'id' },
  description: "A user and the user's allowance.",
  fields: (t) => ({
    user: t.exposeString('user'),
    size: t.expose('size', { type: 'BigInt', description: 'Bytes.' }),
    used: t.field({
      type: 'BigInt',
      description: 'Bytes that the live requests hold.',
      select: { id: true },
      resolve: (quota, _args, ctx) => readUsed(ctx, quota),
    }),
    email: t.exposeString('email'),
    notes: t.exposeString('notes'),
    requests: t.relatedConnection('requests', {
      cursor: 'id',
      description: 'All of them, ended ones too, newest first.',
      complexity: pageComplexity,
      query: () => ({ orderBy: { id: 'desc' } }),
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
