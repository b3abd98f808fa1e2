/** What callers who show nothing ask for. */
import type { LegacyUse } from '../src/generated/prisma/client.js';
import { listLegacyUses } from '../src/operations/access/legacy-uses.js';
import { builder, pageComplexity } from './builder.js';
import { createBigIntCursors, resolveCursorPage } from './cursors.js';

const LegacyUseType = builder.objectRef<LegacyUse>('LegacyUse').implement({
  description: 'What a caller who showed nothing has asked for on one day, of the REST contract.',
  fields: (t) => ({
    day: t.expose('day', { type: 'DateTime', description: 'Its midnight, UTC.' }),
    endpoint: t.exposeString('endpoint', { description: 'Method and path, such as `GET /requests/{id}`.' }),
    address: t.exposeString('address', {
      description: 'Of the caller; empty for those that were too many to tell apart.',
    }),
    user: t.exposeString('user', { description: 'Whose quota was named; empty where none was, or none is known.' }),
    uses: t.expose('uses', {
      type: 'BigInt',
      description: 'How often it was answered; what was asked in the last seconds comes later.',
    }),
    refused: t.expose('refused', {
      type: 'BigInt',
      description:
        'How often it was refused, since it is not open to such callers: the user is known then by a path alone.',
    }),
    lastAt: t.expose('lastAt', { type: 'DateTime', description: 'When it was for the last time.' }),
  }),
});

const cursors = createBigIntCursors('use');

builder.queryFields((t) => ({
  legacyUses: t.connection({
    authScopes: { operation: 'listLegacyUses' },
    type: LegacyUseType,
    description:
      'What callers who showed nothing have asked for in the last 90 days, in vain or not, the latest first; counted while `AUTH` has `legacy`.',
    complexity: pageComplexity,
    resolve: (_root, args, ctx) =>
      resolveCursorPage(args, cursors, { keyOf: ({ id }: LegacyUse) => id, find: (page) => listLegacyUses(ctx, page) }),
  }),
}));
