/** What callers who show nothing ask for. */
import { type ResolveCursorConnectionArgs, resolveCursorConnection } from '@pothos/plugin-relay';
import { GraphQLError } from 'graphql';
import type { LegacyUse } from '../src/generated/prisma/client.js';
import { listLegacyUses } from '../src/operations/access/legacy-uses.js';
import { builder, MAX_PAGE_SIZE, PAGE_SIZE, pageComplexity } from './builder.js';

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

builder.queryFields((t) => ({
  legacyUses: t.connection({
    authScopes: { operation: 'listLegacyUses' },
    type: LegacyUseType,
    description:
      'What callers who showed nothing have asked for in the last 90 days, in vain or not, the latest first; counted while `AUTH` has `legacy`.',
    complexity: pageComplexity,
    resolve: (_root, args, ctx) => {
      const find = async ({ before, after, limit, inverted }: ResolveCursorConnectionArgs): Promise<LegacyUse[]> =>
        listLegacyUses(ctx, { before: readCursor(before), after: readCursor(after), limit, inverted });
      return resolveCursorConnection({ args, defaultSize: PAGE_SIZE, maxSize: MAX_PAGE_SIZE, toCursor }, find);
    },
  }),
}));

function toCursor({ id }: LegacyUse): string {
  return Buffer.from(`use:${id}`).toString('base64');
}

function readCursor(cursor: string | undefined): bigint | undefined {
  if (cursor === undefined) return undefined;
  const [, id] = /^use:(\d{1,18})$/.exec(Buffer.from(cursor, 'base64').toString()) ?? [];
  if (id !== undefined) return BigInt(id);
  throw new GraphQLError(`Invalid cursor: ${cursor}`, { extensions: { code: 'BAD_USER_INPUT' } });
}
