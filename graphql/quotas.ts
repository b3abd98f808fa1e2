/** Users and their quotas. */
import { ForbiddenError, InUseError, InvalidInputError, UnknownUserError } from '../src/errors.js';
import { visibleQuotas } from '../src/operations/policy.js';
import {
  getQuota,
  listQuotasByPage,
  type RemovedQuota,
  readUsedOf,
  removeQuota,
  setQuota,
} from '../src/operations/quotas/quotas.js';
import { readDriveSecondsOf } from '../src/operations/quotas/shares.js';
import { countRequestsOf, readRequestsOf } from '../src/operations/requests/rows.js';
import { createBatch } from './batch.js';
import { builder, pageComplexity } from './builder.js';
import { orNull, readBack } from './errors.js';
import { isText, resolveInnerPage, resolveRootPage } from './pages.js';
import { type Counted, RequestConnection, RequestType } from './requests.js';

const usedOf = createBatch(readUsedOf);
const driveSecondsOf = createBatch(readDriveSecondsOf);
const requestCounts = createBatch(countRequestsOf);

const requests = { descending: true, read: readRequestsOf };

const QuotaType = builder.prismaNode('Quota', {
  id: { resolve: ({ id }) => id },
  findUnique: (id, ctx) => ({ id: Number(id), AND: visibleQuotas(ctx) }),
  nullable: true,
  description: "A user and the user's allowance.",
  fields: (t) => ({
    user: t.exposeString('user', { description: 'Its name.' }),
    size: t.expose('size', { type: 'BigInt', description: 'Bytes that it may hold at a time.' }),
    used: t.field({
      type: 'BigInt',
      description: 'Bytes that the live requests hold.',
      resolve: async ({ id }, _args, ctx) => (await usedOf(ctx, id)) ?? 0n,
    }),
    email: t.exposeString('email', { description: 'Where mail goes that names no address of its own; may be empty.' }),
    notes: t.exposeString('notes', { description: 'For operators; may be empty.' }),
    weight: t.exposeFloat('weight', { description: 'Who has twice the weight may have twice the drive time.' }),
    driveSeconds: t.float({
      description: 'Seconds of drive time that its recalls have had of late; half of it is forgotten in a day.',
      resolve: async ({ id }, _args, ctx) => (await driveSecondsOf(ctx, id)) ?? 0,
    }),
    requests: t.connection(
      {
        type: RequestType,
        description: 'All of them, ended ones too, newest first.',
        complexity: pageComplexity,
        resolve: async ({ id }, args, ctx, info) => {
          const page = await resolveInnerPage({ ctx, info, parentId: id }, requests, args);
          return { ...page, totalCount: async () => (await requestCounts(ctx, id)) ?? 0 };
        },
      },
      RequestConnection,
    ),
  }),
});

builder.queryFields((t) => ({
  quota: t.field({
    authScopes: { operation: 'getQuota' },
    type: QuotaType,
    nullable: true,
    description: 'A quota by its user; null when there is none.',
    args: { user: t.arg.string({ required: true, description: 'Its name.' }) },
    resolve: (_root, { user }, ctx) => orNull(getQuota(ctx, user)),
  }),
  quotas: t.connection(
    {
      authScopes: { operation: 'listQuotasByPage' },
      type: QuotaType,
      description: 'All quotas, in order of their users.',
      complexity: pageComplexity,
      resolve: async (_root, args, ctx) => {
        const { page, count } = listQuotasByPage(ctx);
        return { ...(await resolveRootPage(args, { name: 'user', isKey: isText }, page)), totalCount: count };
      },
    },
    { fields: (f) => ({ totalCount: f.int({ resolve: (connection) => (connection as Counted).totalCount() }) }) },
  ),
}));

builder.prismaObjectField(RequestType, 'quota', (t) =>
  t.field({ type: QuotaType, description: 'Which is charged for it.', resolve: ({ quota }) => quota }),
);

const SetQuotaInput = builder.inputType('SetQuotaInput', {
  description: 'Whose quota it is, and what of it is set; the rest stays as it is.',
  fields: (t) => ({
    user: t.string({ required: true, description: 'Its name.' }),
    size: t.field({ type: 'BigInt', description: 'Bytes that it may hold at a time; a new quota needs it.' }),
    email: t.string({ description: 'Where mail goes that names no address of its own; empty: nowhere.' }),
    notes: t.string({ description: 'For operators.' }),
    weight: t.float({ description: 'Who has twice the weight may have twice the drive time; 1 unless it is set.' }),
  }),
});

const RemovedQuotaType = builder.objectRef<RemovedQuota>('RemovedQuota').implement({
  description: 'A quota that is no more. The requests that it had are history.',
  fields: (t) => ({
    user: t.exposeString('user', { description: 'Whose it was.' }),
    tokens: t.exposeInt('tokens', {
      description:
        'How many were revoked, of the user and of services that acted for nobody else, or act for the user no longer.',
    }),
    memberOf: t.exposeStringList('memberOf', {
      description: 'The users of the quotas that the user was a member or a manager of, and is no longer.',
    }),
    ruledFolders: t.exposeStringList('ruledFolders', {
      description: 'The folders of the rules that name the user. They stay, and hold for whoever has the name next.',
    }),
  }),
});

builder.mutationFields((t) => ({
  setQuota: t.field({
    authScopes: { operation: 'setQuota' },
    type: QuotaType,
    description:
      'Makes a quota, or changes what is given of a known one. A size below what is used stops new requests only.',
    errors: { types: [InvalidInputError, ForbiddenError], union: { name: 'SetQuotaResult' } },
    args: { input: t.arg({ type: SetQuotaInput, required: true, description: 'Which one, and what of it.' }) },
    resolve: async (_root, { input }, ctx) => readBack(getQuota(ctx, (await setQuota(ctx, input)).user)),
  }),
  removeQuota: t.field({
    authScopes: { operation: 'removeQuota' },
    type: RemovedQuotaType,
    description: 'Takes the quota of a user away who has no live requests.',
    errors: {
      types: [InvalidInputError, UnknownUserError, InUseError, ForbiddenError],
      union: { name: 'RemoveQuotaResult' },
    },
    args: { user: t.arg.string({ required: true, description: 'Its name.' }) },
    resolve: async (_root, { user }, ctx) => await removeQuota(ctx, user),
  }),
}));
