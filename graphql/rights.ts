/** Who may use a quota beside its user, and rules by folders. */
import { ForbiddenError, InvalidInputError, NotFoundError } from '../src/errors.js';
import type { PathRule } from '../src/generated/prisma/client.js';
import { MemberKind, PathAction, RuleKind } from '../src/generated/prisma/enums.js';
import { type Member, readMembers, removeMember, setMember } from '../src/operations/access/members.js';
import {
  type AlikeFolder,
  listPathRules,
  readFilesBelow,
  removePathRule,
  setPathRule,
} from '../src/operations/access/path-rules.js';
import { createBatch } from './batch.js';
import { builder, pageComplexity } from './builder.js';
import { compareKeys, pageOf, type RowKey } from './made-pages.js';

const MemberKindType = builder.enumType('MemberKind', {
  description: 'Who a member of a quota is.',
  values: {
    [MemberKind.USER]: { description: 'One user.' },
    [MemberKind.GROUP]: { description: 'Every user of a group, as the way says by which the user is known.' },
  },
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
  values: {
    [PathAction.LIST]: { description: 'To see that there is one.' },
    [PathAction.REQUEST]: { description: 'To have it restored.' },
    [PathAction.FETCH]: { description: 'To be told where its restored copy is.' },
  },
});

const RuleKindType = builder.enumType('RuleKind', {
  description: 'For whom a rule holds.',
  values: {
    [RuleKind.EVERYBODY]: { description: 'Any caller.' },
    [RuleKind.USER]: { description: 'One user; `service:` and its name for a service.' },
    [RuleKind.GROUP]: { description: 'Every user of a group.' },
  },
});

const AlikeFolderType = builder.objectRef<AlikeFolder>('AlikeFolder').implement({
  description:
    'A folder whose name looks the same and is written in another Unicode normal form (NFC, NFD): it is another folder.',
  fields: (t) => ({
    prefix: t.exposeString('prefix', { description: 'The folder, as the catalogue has it.' }),
    filesBelow: t.exposeInt('filesBelow', {
      description: 'Files of the catalogue below it, counted up to 10,000.',
    }),
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
      resolve: async ({ prefix }, _args, ctx) => (await filesBelowOf(ctx, prefix))?.filesBelow ?? 0,
    }),
    alike: t.field({
      type: [AlikeFolderType],
      description: 'Folders that look the same and have files: the rule does not hold for those.',
      complexity: { field: 20 },
      resolve: async ({ prefix }, _args, ctx) => (await filesBelowOf(ctx, prefix))?.alike ?? [],
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
  pathRules: t.connection({
    authScopes: { operation: 'listPathRules' },
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

builder.mutationFields((t) => ({
  setMember: t.field({
    authScopes: { operation: 'setMember' },
    type: MemberType,
    description: 'Lets somebody use a quota, as a member or as a manager; for its user, its managers and operators.',
    errors: { types: [InvalidInputError, NotFoundError, ForbiddenError], union: { name: 'SetMemberResult' } },
    args: { input: t.arg({ type: SetMemberInput, required: true, description: 'Who becomes what.' }) },
    resolve: (_root, { input }, ctx) => setMember(ctx, input),
  }),
  removeMember: t.field({
    authScopes: { operation: 'removeMember' },
    type: MemberType,
    description: 'Takes a quota from somebody; what was asked for with it stays.',
    errors: { types: [InvalidInputError, NotFoundError, ForbiddenError], union: { name: 'RemoveMemberResult' } },
    args: { input: t.arg({ type: RemoveMemberInput, required: true, description: 'Who.' }) },
    resolve: (_root, { input }, ctx) => removeMember(ctx, input),
  }),
  setPathRule: t.field({
    authScopes: { operation: 'setPathRule' },
    type: PathRuleType,
    description:
      'From now on only those may, below the folder, whom rules for it name. What is in a request stays there.',
    errors: { types: [InvalidInputError, ForbiddenError], union: { name: 'SetPathRuleResult' } },
    args: { input: t.arg({ type: PathRuleInput, required: true, description: 'The rule.' }) },
    resolve: (_root, { input }, ctx) => setPathRule(ctx, input),
  }),
  removePathRule: t.field({
    authScopes: { operation: 'removePathRule' },
    type: PathRuleType,
    description: 'Takes a rule back; with the last one for an action below a folder, the folder above decides again.',
    errors: { types: [InvalidInputError, NotFoundError, ForbiddenError], union: { name: 'RemovePathRuleResult' } },
    args: { input: t.arg({ type: PathRuleInput, required: true, description: 'The rule.' }) },
    resolve: (_root, { input }, ctx) => removePathRule(ctx, input),
  }),
}));
