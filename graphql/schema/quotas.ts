/** Defines the GraphQL types for users, quotas and path rules. */
import {
  ForbiddenError,
  InUseError,
  InvalidInputError,
  NotFoundError,
  UnknownUserError,
} from '../../src/core/errors.js';
import {
  type Member,
  readMember,
  readMembers,
  removeQuotaMember,
  setQuotaMember,
} from '../../src/domain/access/members.js';
import {
  addPathRule,
  listPathRules,
  readFilesBelow,
  readPathRule,
  removePathRule,
} from '../../src/domain/access/path-rules.js';
import { visibleQuotas } from '../../src/domain/policy.js';
import {
  getQuota,
  listQuotasByPage,
  MAX_QUOTA_USERS,
  type QuotaUser,
  type RemovedQuota,
  readQuotaUsers,
  readUsedOf,
  removeQuota,
  setQuota,
} from '../../src/domain/quotas/quotas.js';
import { readDriveSecondsOf } from '../../src/domain/quotas/shares.js';
import { countRequestsOf, readRequestsOf } from '../../src/domain/requests/rows.js';
import { type PurgeResult, purgeUser } from '../../src/domain/users/purge.js';
import type { PathRule } from '../../src/generated/prisma/client.js';
import type { MemberKind, PathAction, RuleKind } from '../../src/generated/prisma/enums.js';
import {
  bigInt,
  builder,
  countedConnection,
  describeValues,
  nullable,
  pageComplexity,
  splitPair,
  textOrNull,
} from './builder.js';
import { orNull, readBack } from './errors.js';
import { compareKeys, createBatch, isText, pageOf, type RowKey, resolveInnerPage, resolveRootPage } from './pages.js';
import { defineMutation, resultOf } from './payloads.js';
import { RequestConnection, RequestType } from './requests.js';

const usedOf = createBatch(readUsedOf);
const driveSecondsOf = createBatch(readDriveSecondsOf);
const quotaUsersOf = createBatch(readQuotaUsers);

const QuotaUserType = builder.objectRef<QuotaUser>('QuotaUser').implement({
  description: 'A caller whose live requests use a quota.',
  fields: (t) => ({
    name: t.exposeString(
      'name',
      nullable("The caller's name. Null if unknown, for example because the site does not require authentication."),
    ),
    requestCount: t.exposeInt('requests', { description: "The number of the caller's live requests." }),
    fileCount: t.exposeInt('files', { description: 'The number of files in these requests.' }),
    bytes: t.expose('bytes', bigInt('The number of bytes that these requests use.')),
  }),
});

const requests = { descending: true, read: readRequestsOf, count: countRequestsOf };

export const QuotaType = builder.prismaNode('Quota', {
  id: { resolve: ({ id }) => id },
  findUnique: (id, ctx) => ({ id: Number(id), AND: visibleQuotas(ctx) }),
  nullable: true,
  description: "A quota: the number of bytes that a user's live requests may use.",
  fields: (t) => ({
    user: t.exposeString('user', { description: "The user's name." }),
    size: t.expose('size', bigInt("The quota's size in bytes.")),
    used: t.field({
      ...bigInt('The number of bytes that live requests use.'),
      resolve: async ({ id }, _args, ctx) => (await usedOf(ctx, id)) ?? 0n,
    }),
    email: t.string({
      ...nullable("The default address for emails about the user's requests."),
      resolve: ({ email }) => textOrNull(email),
    }),
    notes: t.string({ ...nullable('Notes for operators.'), resolve: ({ notes }) => textOrNull(notes) }),
    weight: t.exposeFloat('weight', {
      description: "The weight of the user's recalls. A user with twice the weight gets up to twice the drive time.",
    }),
    driveSeconds: t.float({
      description:
        "The drive time in seconds that the user's recalls have used recently. The value halves each day, so that older recalls count less.",
      resolve: async ({ id }, _args, ctx) => (await driveSecondsOf(ctx, id)) ?? 0,
    }),
    users: t.field({
      type: [QuotaUserType],
      complexity: { field: 5 },
      description: `The callers whose live requests use the most bytes of the quota, largest first. At most ${MAX_QUOTA_USERS}.`,
      resolve: async ({ id }, _args, ctx) => (await quotaUsersOf(ctx, id)) ?? [],
    }),
    requests: t.connection(
      {
        type: RequestType,
        description: 'All requests of the quota, newest first, including ended requests.',
        complexity: pageComplexity,
        resolve: ({ id }, args, ctx, info) => resolveInnerPage({ ctx, info, parentId: id }, requests, args),
      },
      RequestConnection,
    ),
  }),
});

export const QuotaConnection = countedConnection(QuotaType, 'Quota');

builder.prismaObjectField(RequestType, 'quota', (t) =>
  t.field({
    type: QuotaType,
    description: 'The quota that is charged for the request.',
    resolve: ({ quota }) => quota,
  }),
);

const SetQuotaInput = builder.inputType('SetQuotaInput', {
  description: 'Input of `setQuota`. Omitted fields stay unchanged.',
  fields: (t) => ({
    user: t.string({ required: true, description: "The user's name." }),
    size: t.field(bigInt("The quota's size in bytes. Required for a new quota.")),
    email: t.string({
      description: "The default address for emails about the user's requests. An empty string means no address.",
    }),
    notes: t.string({ description: 'Notes for operators.' }),
    weight: t.float({
      description:
        "The weight of the user's recalls. A user with twice the weight gets up to twice the drive time. Default 1.",
    }),
  }),
});

const RemovedQuotaType = builder.objectRef<RemovedQuota>('RemovedQuota').implement({
  description: 'A removed quota. Its ended requests can still be read by id.',
  fields: (t) => ({
    user: t.exposeString('user', { description: "The user's name." }),
    tokenCount: t.exposeInt('tokens', {
      description:
        "The number of tokens that were revoked or restricted: the user's own tokens, and the tokens of services that acted for the user.",
    }),
    memberOf: t.exposeStringList('memberOf', {
      description: 'The users in whose quotas the removed user was a member until the removal.',
    }),
    rulePrefixes: t.exposeStringList('ruledDirectories', {
      description:
        'The prefixes of path rules that still name the user. The rules will apply to any later user with that name.',
    }),
  }),
});

defineMutation('setQuota', {
  description:
    'Creates or changes a quota. If the new size is smaller than the number of bytes in use, live requests keep their files, but new requests are rejected.',
  errors: [InvalidInputError, ForbiddenError],
  resolve: async (input, ctx) => readBack(getQuota(ctx, (await setQuota(ctx, input)).user)),
  input: SetQuotaInput,
  result: (t) => ({
    quota: t.field({ type: QuotaType, nullable: true, description: 'The quota.', resolve: resultOf }),
  }),
});

const RemoveQuotaInput = builder.inputType('RemoveQuotaInput', {
  description: 'Input of `removeQuota`.',
  fields: (t) => ({ user: t.string({ required: true, description: "The user's name." }) }),
});

defineMutation('removeQuota', {
  description: "Removes a quota. Fails if the quota's user has live requests.",
  errors: [InvalidInputError, UnknownUserError, InUseError, ForbiddenError],
  resolve: async ({ user }, ctx) => await removeQuota(ctx, user),
  input: RemoveQuotaInput,
  result: (t) => ({
    removed: t.field({ type: RemovedQuotaType, nullable: true, description: 'The removed quota.', resolve: resultOf }),
  }),
});

const MemberKindType = builder.enumType('MemberKind', {
  description: 'Whether a quota member is a user or a group.',
  values: describeValues<MemberKind>({
    USER: 'One user.',
    GROUP: "All users in a group. The method of authentication determines a caller's groups.",
  }),
});

const MemberType = builder.node(builder.objectRef<Member>('QuotaMember'), {
  id: { resolve: ({ quotaId, kind, name }) => `${quotaId}/${kind}/${name}` },
  loadWithoutCache: (id, ctx) => {
    const [quotaId, key] = splitPair(id);
    const [kind, name] = splitPair(key);
    return readMember(ctx, { quotaId: Number(quotaId), kind: kind as MemberKind, name });
  },
  description: "A user or group that may use another user's quota.",
  fields: (t) => ({
    kind: t.expose('kind', { type: MemberKindType, description: 'Whether the member is a user or a group.' }),
    name: t.exposeString('name', { description: 'The name of the user or group.' }),
    isManager: t.exposeBoolean('isManager', {
      description:
        'Whether the member may change the requests of other users in the quota, and may add and remove members.',
    }),
  }),
});

const membersOf = createBatch(readMembers);

builder.prismaObjectField('Quota', 'members', (t) =>
  t.connection(
    {
      type: MemberType,
      description: 'The members: users first, then groups, each sorted by name.',
      complexity: pageComplexity,
      resolve: async ({ id }, args, ctx) =>
        pageOf(args, (await membersOf(ctx, id)) ?? [], ({ kind, name }) => [kind === 'USER' ? 0 : 1, name]),
    },
    countedConnection(MemberType, 'QuotaMember'),
  ),
);

const SetQuotaMemberInput = builder.inputType('SetQuotaMemberInput', {
  description: 'Input of `setQuotaMember`.',
  fields: (t) => ({
    quota: t.string({ required: true, description: "The quota's user." }),
    kind: t.field({ type: MemberKindType, required: true, description: 'Whether the member is a user or a group.' }),
    name: t.string({ required: true, description: 'The name of the user or group.' }),
    isManager: t.boolean({ required: true, description: 'Whether the member manages the quota.' }),
  }),
});

const RemoveQuotaMemberInput = builder.inputType('RemoveQuotaMemberInput', {
  description: 'Input of `removeQuotaMember`.',
  fields: (t) => ({
    quota: t.string({ required: true, description: "The quota's user." }),
    kind: t.field({ type: MemberKindType, required: true, description: 'Whether the member is a user or a group.' }),
    name: t.string({ required: true, description: 'The name of the user or group.' }),
  }),
});

const PathActionType = builder.enumType('PathAction', {
  description: 'An action on a file.',
  values: describeValues<PathAction>({
    LIST: 'List the file.',
    REQUEST: 'Request a restore of the file.',
    FETCH: 'See the path of the restored copy, and read the copy.',
  }),
});

const RuleKindType = builder.enumType('RuleKind', {
  description: 'The callers to which a path rule applies.',
  values: describeValues<RuleKind>({
    EVERYBODY: 'All callers.',
    USER: 'One user, or one service, which is named in the form `service:<name>`.',
    GROUP: 'All users in a group.',
  }),
});

const filesBelowOf = createBatch(readFilesBelow);

// not a prismaObject, because Prisma would query a rule that the mutation `removePathRule` has already deleted
const PathRuleType = builder.node(builder.objectRef<PathRule>('PathRule'), {
  id: { resolve: ({ id }) => id },
  loadWithoutCache: (id, ctx) => readPathRule(ctx, Number(id)),
  description:
    'A rule that allows callers to perform an action on the files below a prefix. If several prefixes of a path have rules for the action, only the rules of the longest prefix apply. If no prefix of the path has a rule for the action, all callers may perform the action. Rules do not apply to operators and viewers.',
  fields: (t) => ({
    prefix: t.string({
      description: 'The prefix. `/` is the whole catalogue.',
      resolve: ({ prefix }) => (prefix === '' ? '/' : prefix),
    }),
    action: t.expose('action', { type: PathActionType, description: 'The permitted action.' }),
    kind: t.expose('kind', {
      type: RuleKindType,
      description: 'Whether the rule allows one user, a group, or all callers.',
    }),
    name: t.string({
      ...nullable('The name of the user or group. Null if the rule allows all callers.'),
      resolve: ({ name }) => textOrNull(name),
    }),
    filesBelow: t.int({
      description: 'The number of files below the prefix. The count stops at 10,000.',
      complexity: { field: 20 },
      resolve: async ({ prefix }, _args, ctx) => (await filesBelowOf(ctx, prefix)) ?? 0,
    }),
  }),
});

const createRuleInput = (mutation: 'addPathRule' | 'removePathRule') =>
  builder.inputType(mutation === 'addPathRule' ? 'AddPathRuleInput' : 'RemovePathRuleInput', {
    description: `Input of \`${mutation}\`.`,
    fields: (t) => ({
      prefix: t.string({ required: true, description: 'The absolute prefix. `/` is the whole catalogue.' }),
      action: t.field({ type: PathActionType, required: true, description: 'The permitted action.' }),
      kind: t.field({
        type: RuleKindType,
        required: true,
        description: 'Whether the rule allows one user, a group, or all callers.',
      }),
      name: t.string({ description: 'The name of the user or group.' }),
    }),
  });

const keyOf = ({ prefix, action, kind, name }: PathRule): RowKey => [null, prefix, action, kind, name];

builder.queryFields((t) => ({
  quota: t.field({
    type: QuotaType,
    nullable: true,
    description: "Returns a user's quota, or null if the user does not have one.",
    args: { user: t.arg.string({ required: true, description: "The user's name." }) },
    resolve: (_root, { user }, ctx) => orNull(getQuota(ctx, user)),
  }),
  quotas: t.connection(
    {
      type: QuotaType,
      nullable: true,
      description: 'Returns all quotas, ordered by user.',
      complexity: pageComplexity,
      resolve: async (_root, args, ctx) => {
        const { page, count } = listQuotasByPage(ctx);
        return { ...(await resolveRootPage(args, { name: 'user', isKey: isText }, page)), totalCount: count };
      },
    },
    QuotaConnection,
  ),
  pathRules: t.connection(
    {
      type: PathRuleType,
      nullable: true,
      description: 'Returns all path rules, ordered by prefix.',
      complexity: pageComplexity,
      resolve: async (_root, args, ctx) => {
        const rules = await listPathRules(ctx);
        return pageOf(
          args,
          rules.sort((a, b) => compareKeys(keyOf(a), keyOf(b))),
          keyOf,
        );
      },
    },
    countedConnection(PathRuleType, 'PathRule'),
  ),
}));

const PurgedUser = builder.objectRef<PurgeResult>('PurgedUser').implement({
  description: 'A purged user. A pseudonym has replaced the name in all records.',
  fields: (t) => ({
    pseudonym: t.exposeString('pseudonym', { description: 'The pseudonym.' }),
    requestCount: t.exposeInt('requests', {
      description: 'The number of changed requests: those that belonged to the user or mentioned the user.',
    }),
    emailCount: t.exposeInt('emails', {
      description: 'The number of changed emails. Tapegate does not send emails that were still waiting.',
    }),
    tokenCount: t.exposeInt('tokens', {
      description: "The number of revoked tokens with the user's name, regardless of their role.",
    }),
    auditEntryCount: t.exposeInt('auditRows', { description: 'The number of changed audit entries.' }),
  }),
});

defineMutation('setQuotaMember', {
  description:
    'Adds a member to a quota, or changes whether the member manages the quota. Allowed for the user of the quota, the managers of the quota, and operators.',
  errors: [InvalidInputError, NotFoundError, ForbiddenError],
  resolve: (input, ctx) => setQuotaMember(ctx, input),
  input: SetQuotaMemberInput,
  result: (t) => ({
    member: t.field({ type: MemberType, nullable: true, description: 'The member.', resolve: resultOf }),
  }),
});

defineMutation('removeQuotaMember', {
  description: "Removes a member from a quota. The member's requests remain. Members may remove themselves.",
  errors: [InvalidInputError, NotFoundError, ForbiddenError],
  resolve: (input, ctx) => removeQuotaMember(ctx, input),
  input: RemoveQuotaMemberInput,
  result: (t) => ({
    member: t.field({ type: MemberType, nullable: true, description: 'The removed member.', resolve: resultOf }),
  }),
});

defineMutation('addPathRule', {
  description:
    'Adds a path rule. Once a prefix has a rule for an action, only the callers named in the rules of that prefix may perform the action on files below it. Existing requests keep their files.',
  errors: [InvalidInputError, ForbiddenError],
  resolve: (input, ctx) => addPathRule(ctx, input),
  input: createRuleInput('addPathRule'),
  result: (t) => ({
    pathRule: t.field({ type: PathRuleType, nullable: true, description: 'The path rule.', resolve: resultOf }),
  }),
});

defineMutation('removePathRule', {
  description:
    'Removes a path rule. If the prefix has no other rule for the action, the rules of the next shorter prefix apply.',
  errors: [InvalidInputError, NotFoundError, ForbiddenError],
  resolve: (input, ctx) => removePathRule(ctx, input),
  input: createRuleInput('removePathRule'),
  result: (t) => ({
    pathRule: t.field({ type: PathRuleType, nullable: true, description: 'The removed path rule.', resolve: resultOf }),
  }),
});

const PurgeUserInput = builder.inputType('PurgeUserInput', {
  description: 'Input of `purgeUser`.',
  fields: (t) => ({ user: t.string({ required: true, description: "The user's name." }) }),
});

defineMutation('purgeUser', {
  description:
    "Permanently replaces a user's name and addresses with a pseudonym. Fails if the user has live requests. A second call fails because the user no longer exists.",
  errors: [InvalidInputError, NotFoundError, InUseError, ForbiddenError],
  resolve: ({ user }, ctx) => purgeUser(ctx, user),
  input: PurgeUserInput,
  result: (t) => ({
    purged: t.field({ type: PurgedUser, nullable: true, description: 'The purged user.', resolve: resultOf }),
  }),
});
