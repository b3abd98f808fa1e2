/** Users and their quotas. */
import {
  ForbiddenError,
  InUseError,
  InvalidInputError,
  NotFoundError,
  UnknownUserError,
} from '../../src/core/errors.js';
import { type Member, readMembers, removeMember, setMember } from '../../src/domain/access/members.js';
import { listPathRules, readFilesBelow, removePathRule, setPathRule } from '../../src/domain/access/path-rules.js';
import { visibleQuotas } from '../../src/domain/policy.js';
import {
  getQuota,
  listQuotasByPage,
  type RemovedQuota,
  readUsedOf,
  removeQuota,
  setQuota,
} from '../../src/domain/quotas/quotas.js';
import { readDriveSecondsOf } from '../../src/domain/quotas/shares.js';
import { countRequestsOf, readRequestsOf } from '../../src/domain/requests/rows.js';
import { type PurgeResult, purgeUser } from '../../src/domain/users/purge.js';
import type { PathRule } from '../../src/generated/prisma/client.js';
import type { MemberKind, PathAction, RuleKind } from '../../src/generated/prisma/enums.js';
import { bigInt, builder, describeValues, pageComplexity } from './builder.js';
import { orNull, readBack } from './errors.js';
import { compareKeys, createBatch, isText, pageOf, type RowKey, resolveInnerPage, resolveRootPage } from './pages.js';
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
    size: t.expose('size', bigInt('Bytes that it may hold at a time.')),
    used: t.field({
      ...bigInt('Bytes that the live requests hold.'),
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

builder.prismaObjectField(RequestType, 'quota', (t) =>
  t.field({ type: QuotaType, description: 'Which is charged for it.', resolve: ({ quota }) => quota }),
);

const SetQuotaInput = builder.inputType('SetQuotaInput', {
  description: 'Whose quota it is, and what of it is set; the rest stays as it is.',
  fields: (t) => ({
    user: t.string({ required: true, description: 'Its name.' }),
    size: t.field(bigInt('Bytes that it may hold at a time; a new quota needs it.')),
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
    type: QuotaType,
    description:
      'Makes a quota, or changes what is given of a known one. A size below what is used stops new requests only.',
    errors: { types: [InvalidInputError, ForbiddenError] },
    args: { input: t.arg({ type: SetQuotaInput, required: true, description: 'Which one, and what of it.' }) },
    resolve: async (_root, { input }, ctx) => readBack(getQuota(ctx, (await setQuota(ctx, input)).user)),
  }),
  removeQuota: t.field({
    type: RemovedQuotaType,
    description: 'Takes the quota of a user away who has no live requests.',
    errors: { types: [InvalidInputError, UnknownUserError, InUseError, ForbiddenError] },
    args: { user: t.arg.string({ required: true, description: 'Its name.' }) },
    resolve: async (_root, { user }, ctx) => await removeQuota(ctx, user),
  }),
}));

const MemberKindType = builder.enumType('MemberKind', {
  description: 'Who a member of a quota is.',
  values: describeValues<MemberKind>({
    USER: 'One user.',
    GROUP: 'Every user of a group, as the way says by which the user is known.',
  }),
});

const MemberType = builder.objectRef<Member>('QuotaMember').implement({
  description: 'Who may use a quota beside its user.',
  fields: (t) => ({
    kind: t.expose('kind', { type: MemberKindType, description: 'Who it is.' }),
    name: t.exposeString('name', { description: 'Of the user or the group.' }),
    isManager: t.exposeBoolean('isManager', {
      description: 'It changes what others have asked for, and says who else may use the quota.',
    }),
  }),
});

const membersOf = createBatch(readMembers);

builder.prismaObjectField('Quota', 'members', (t) =>
  t.field({
    type: [MemberType],
    description: 'Who may use it beside its user: users first, by name.',
    complexity: { field: 10 },
    resolve: async ({ id }, _args, ctx) => (await membersOf(ctx, id)) ?? [],
  }),
);

const SetMemberInput = builder.inputType('SetMemberInput', {
  description: 'Who becomes what.',
  fields: (t) => ({
    quota: t.string({ required: true, description: 'The user of the quota.' }),
    kind: t.field({ type: MemberKindType, required: true, description: 'Who the member is.' }),
    name: t.string({ required: true, description: 'Of the user or the group.' }),
    isManager: t.boolean({ required: true, description: 'A manager, or a member.' }),
  }),
});

const RemoveMemberInput = builder.inputType('RemoveMemberInput', {
  description: 'Who is to use a quota no longer.',
  fields: (t) => ({
    quota: t.string({ required: true, description: 'The user of the quota.' }),
    kind: t.field({ type: MemberKindType, required: true, description: 'Who the member is.' }),
    name: t.string({ required: true, description: 'Of the user or the group.' }),
  }),
});

const PathActionType = builder.enumType('PathAction', {
  description: 'What is done with a file.',
  values: describeValues<PathAction>({
    LIST: 'To see that there is one.',
    REQUEST: 'To have it restored.',
    FETCH: 'To be told where its restored copy is.',
  }),
});

const RuleKindType = builder.enumType('RuleKind', {
  description: 'For whom a rule holds.',
  values: describeValues<RuleKind>({
    EVERYBODY: 'Any caller.',
    USER: 'One user; `service:` and its name for a service.',
    GROUP: 'Every user of a group.',
  }),
});

const filesBelowOf = createBatch(readFilesBelow);

// no prismaObject: what has been taken back cannot be read again
const PathRuleType = builder.objectRef<PathRule>('PathRule').implement({
  description:
    'Who may do something with the files below a folder. Of the folders above a file, the longest that has rules for the action ' +
    'decides; where none has, everybody may. Operators and viewers are under no rule.',
  fields: (t) => ({
    prefix: t.string({
      description: 'The folder; `/` is everything.',
      resolve: ({ prefix }) => (prefix === '' ? '/' : prefix),
    }),
    action: t.expose('action', { type: PathActionType, description: 'What is done.' }),
    kind: t.expose('kind', { type: RuleKindType, description: 'Who may.' }),
    name: t.exposeString('name', { description: 'Of the user or the group; empty for everybody.' }),
    filesBelow: t.int({
      description: 'Files of the catalogue below the folder now, counted up to 10,000.',
      complexity: { field: 20 },
      resolve: async ({ prefix }, _args, ctx) => (await filesBelowOf(ctx, prefix)) ?? 0,
    }),
  }),
});

const PathRuleInput = builder.inputType('PathRuleInput', {
  description: 'A rule: who may do what below a folder.',
  fields: (t) => ({
    prefix: t.string({ required: true, description: 'The folder, absolute; `/` is everything.' }),
    action: t.field({ type: PathActionType, required: true, description: 'What is done.' }),
    kind: t.field({ type: RuleKindType, required: true, description: 'Who may.' }),
    name: t.string({ description: 'Of the user or the group.' }),
  }),
});

const keyOf = ({ prefix, action, kind, name }: PathRule): RowKey => [null, prefix, action, kind, name];

builder.queryFields((t) => ({
  quota: t.field({
    type: QuotaType,
    nullable: true,
    description: 'A quota by its user; null when there is none.',
    args: { user: t.arg.string({ required: true, description: 'Its name.' }) },
    resolve: (_root, { user }, ctx) => orNull(getQuota(ctx, user)),
  }),
  quotas: t.connection(
    {
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
  pathRules: t.connection({
    type: PathRuleType,
    description: 'All rules, by folder.',
    complexity: pageComplexity,
    resolve: async (_root, args, ctx) => {
      const rules = await listPathRules(ctx);
      return pageOf(
        args,
        rules.sort((a, b) => compareKeys(keyOf(a), keyOf(b))),
        keyOf,
      );
    },
  }),
}));

const PurgedUser = builder.objectRef<PurgeResult>('PurgedUser').implement({
  description: 'A user of whom nothing is kept any more, and in what a pseudonym stands in its place.',
  fields: (t) => ({
    pseudonym: t.exposeString('pseudonym', { description: 'What stands in place of the name.' }),
    requests: t.exposeInt('requests', { description: 'Requests that were told of the user.' }),
    letters: t.exposeInt('letters', { description: 'Mail to the user; what was not sent yet is not sent any more.' }),
    tokens: t.exposeInt('tokens', {
      description: 'Tokens that had the name; those that are called so are revoked, of whatever role.',
    }),
    auditRows: t.exposeInt('auditRows', { description: 'Rows of the audit.' }),
  }),
});

builder.mutationFields((t) => ({
  setMember: t.field({
    type: MemberType,
    description: 'Lets somebody use a quota, as a member or as a manager; for its user, its managers and operators.',
    errors: { types: [InvalidInputError, NotFoundError, ForbiddenError] },
    args: { input: t.arg({ type: SetMemberInput, required: true, description: 'Who becomes what.' }) },
    resolve: (_root, { input }, ctx) => setMember(ctx, input),
  }),
  removeMember: t.field({
    type: MemberType,
    description: 'Removes a member from a quota. Its requests stay. A member may remove itself.',
    errors: { types: [InvalidInputError, NotFoundError, ForbiddenError] },
    args: { input: t.arg({ type: RemoveMemberInput, required: true, description: 'Who.' }) },
    resolve: (_root, { input }, ctx) => removeMember(ctx, input),
  }),
  setPathRule: t.field({
    type: PathRuleType,
    description:
      'From now on only those may, below the folder, whom rules for it name. What is in a request stays there.',
    errors: { types: [InvalidInputError, ForbiddenError] },
    args: { input: t.arg({ type: PathRuleInput, required: true, description: 'The rule.' }) },
    resolve: (_root, { input }, ctx) => setPathRule(ctx, input),
  }),
  removePathRule: t.field({
    type: PathRuleType,
    description: 'Takes a rule back; with the last one for an action below a folder, the folder above decides again.',
    errors: { types: [InvalidInputError, NotFoundError, ForbiddenError] },
    args: { input: t.arg({ type: PathRuleInput, required: true, description: 'The rule.' }) },
    resolve: (_root, { input }, ctx) => removePathRule(ctx, input),
  }),
  purgeUser: t.field({
    type: PurgedUser,
    description:
      'Puts a pseudonym in place of the name and the addresses of a user without live requests, for good. A second time there is nothing of the user.',
    errors: { types: [InvalidInputError, NotFoundError, InUseError, ForbiddenError] },
    args: { user: t.arg.string({ required: true, description: 'Its name.' }) },
    resolve: (_root, { user }, ctx) => purgeUser(ctx, user),
  }),
}));
