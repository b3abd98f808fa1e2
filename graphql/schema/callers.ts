/** The caller, its tokens, what callers without credentials ask for, and the audit. */

import { ForbiddenError, InvalidInputError, NotFoundError } from '../../src/core/errors.js';
import { type ShownCaller, showCaller } from '../../src/domain/access/caller.js';
import { listLegacyUses } from '../../src/domain/access/legacy-uses.js';
import { createToken, listTokens, revokeToken, type Token } from '../../src/domain/access/tokens.js';
import type { AuditKind } from '../../src/domain/audit/audit.js';
import { listAudit } from '../../src/domain/audit/lists.js';
import { readDefaultQuota } from '../../src/domain/stage-requests/stage-requests.js';
import type { LegacyUse } from '../../src/generated/prisma/client.js';
import type { TokenRole } from '../../src/generated/prisma/enums.js';
import { bigInt, builder, describeValues, nullable, pageComplexity, time, timeOrNull } from './builder.js';
import { isBigInt, readListPage, resolveBigIdPage, resolveIdPage } from './pages.js';

const CallerType = builder.objectRef<ShownCaller>('Caller').implement({
  description: 'Whoever asks, as it is known here.',
  fields: (t) => ({
    name: t.exposeString('name', { description: 'Its name; `anybody` where nobody has asked who it is.' }),
    way: t.exposeString('way', { description: 'How it is known: `token`, `oidc`, `proxy`, `certificate`, or `open`.' }),
    roles: t.exposeStringList('roles', { description: 'What it is to the service, such as `user`.' }),
    isReadOnly: t.exposeBoolean('isReadOnly', { description: 'It changes nothing, whatever its roles.' }),
    defaultQuota: t.string({
      ...nullable('The user whose quota is charged if no other is named: itself, else that of its oldest membership.'),
      resolve: (_caller, _args, ctx) => readDefaultQuota(ctx),
    }),
    expiresAt: t.expose('expiresAt', timeOrNull('When what it shows is good no longer; null where that has no end.')),
  }),
});

const RoleType = builder.enumType('TokenRole', {
  description: 'What the bearer of a token is.',
  values: describeValues<TokenRole>({
    USER: 'The user of that name, with the quota of that name.',
    VIEWER: 'Sees everything, and changes nothing.',
    OPERATOR: 'May do everything.',
    SERVICE: 'Acts for the users that the token names.',
  }),
});

const TokenType = builder.objectRef<Token>('Token').implement({
  description: 'An API token, without what proves it.',
  fields: (t) => ({
    tokenId: t.exposeInt('id', { description: 'For `revokeToken`.' }),
    name: t.exposeString('name', { description: 'The user; or what the service, viewer or operator is called.' }),
    role: t.expose('role', { type: RoleType, description: 'What its bearer is.' }),
    quotas: t.exposeStringList('quotas', { description: 'Of a service: the users for whom it acts.' }),
    isReadOnly: t.exposeBoolean('isReadOnly', { description: 'It changes nothing, whatever its role.' }),
    note: t.exposeString('note', { description: 'For operators; may be empty.' }),
    madeAt: t.expose('madeAt', time('When it was made.')),
    madeBy: t.exposeString('madeBy', { description: 'Who has made it.' }),
    expiresAt: t.expose(
      'expiresAt',
      timeOrNull('From when on it is good no longer; null: it stays so until it is revoked.'),
    ),
    revokedAt: t.expose('revokedAt', timeOrNull('When it was revoked; null: it was not.')),
    usedAt: t.expose('usedAt', timeOrNull('When it was shown last, to the hour; null: never.')),
  }),
});

const CreatedToken = builder.objectRef<{ token: Token; secret: string }>('CreatedToken').implement({
  description: 'A token that was made just now.',
  fields: (t) => ({
    token: t.expose('token', { type: TokenType, description: 'What it is.' }),
    secret: t.exposeString('secret', {
      description: 'The token itself, for its bearer: it is kept nowhere, and nobody can be shown it again.',
    }),
  }),
});

const CreateTokenInput = builder.inputType('CreateTokenInput', {
  description: 'For whom a token is, and what it is good for.',
  fields: (t) => ({
    name: t.string({
      required: true,
      description: 'The user whom it stands for; or what the service, viewer or operator is called. Without a colon.',
    }),
    role: t.field({ type: RoleType, required: true, description: 'What its bearer is.' }),
    quotas: t.stringList({ description: 'Of a service: the users for whom it acts, one at least.' }),
    isReadOnly: t.boolean({ description: 'It changes nothing, whatever its role.' }),
    note: t.string({ description: 'For operators.' }),
    expiresAt: t.field(time('Unless given, it is good until it is revoked.')),
  }),
});

builder.mutationFields((t) => ({
  createToken: t.field({
    type: CreatedToken,
    description: 'Makes an API token, and shows it once.',
    errors: { types: [InvalidInputError, ForbiddenError] },
    args: { input: t.arg({ type: CreateTokenInput, required: true, description: 'Which one.' }) },
    resolve: (_root, { input }, ctx) => createToken(ctx, input),
  }),
  revokeToken: t.field({
    type: TokenType,
    description:
      'Ends a token: its bearer is known no longer, and what it has open ends within 5 s. A second time changes nothing.',
    errors: { types: [NotFoundError, ForbiddenError] },
    args: { id: t.arg.int({ required: true, description: 'Its `tokenId`.' }) },
    resolve: (_root, { id }, ctx) => revokeToken(ctx, id),
  }),
}));

const LegacyUseType = builder.objectRef<LegacyUse>('LegacyUse').implement({
  description: 'What a caller who showed nothing has asked for on one day, of the REST contract.',
  fields: (t) => ({
    day: t.expose('day', time('Its midnight, UTC.')),
    endpoint: t.exposeString('endpoint', { description: 'Method and path, such as `GET /requests/{id}`.' }),
    address: t.exposeString('address', {
      description: 'Of the caller; empty for those that were too many to tell apart.',
    }),
    user: t.exposeString('user', { description: 'Whose quota was named; empty where none was, or none is known.' }),
    uses: t.expose('uses', bigInt('Number of answered calls; calls of the last seconds are added later.')),
    refused: t.expose(
      'refused',
      bigInt('How often it was refused, since it is not open to such callers: the user is known then by a path alone.'),
    ),
    lastAt: t.expose('lastAt', time('When it was for the last time.')),
  }),
});

const KindType = builder.enumType('AuditKind', {
  description: 'What a change may be about.',
  values: describeValues<AuditKind>({
    REQUEST: 'A request, by its `requestId`.',
    QUOTA: 'A quota, by its user.',
    USER: 'A user, by name.',
    TOKEN: 'An API token, by its id.',
    FILES: 'The files of a match.',
    VOLUME: 'A volume, by name.',
    DRIVE: 'A drive, by name.',
    LIBRARY: 'A tape library, by name.',
    DISK: 'A restore disk, by its mount point.',
    CATALOGUE: 'What the catalogue is given; the folder that was archived.',
    RULE: 'A rule of access.',
    WEBHOOK: 'A webhook, by its id.',
    CLOCK: 'The clock of the database.',
    NONE: 'The service as a whole, or what nobody knows.',
  }),
});

const AuditType = builder.prismaObject('Audit', {
  description: 'What somebody has asked for: a change that was made, or what was refused.',
  fields: (t) => ({
    at: t.expose('at', time('When it was.')),
    who: t.exposeString('who', {
      description: "The caller's name; empty where nobody knows it, and where it was several callers.",
    }),
    way: t.exposeString('way', {
      description:
        'How the caller was known, such as `token`; `system` is this program, `unknown` is nobody that a way knows.',
    }),
    tokenId: t.exposeInt('tokenId', nullable('The id of its API token.')),
    address: t.exposeString('address', nullable('Where it asked from: in the network, or on which host as a command.')),
    operation: t.exposeString('operation', { description: 'What was asked for, such as `createRequest`.' }),
    objectKind: t.field({
      type: KindType,
      description: 'What it was about.',
      resolve: ({ kind }) => kind as AuditKind,
    }),
    object: t.exposeString('object', { description: 'Its id or name; empty where there is none.' }),
    given: t.string({
      description: 'What was given, as JSON: long texts and lists are cut.',
      resolve: ({ given }) => JSON.stringify(given),
    }),
    result: t.exposeString('result', {
      description: '`DONE`; `BEGUN`, which goes on for a while; or the code of the error with which it was refused.',
    }),
    count: t.exposeInt('count', { description: 'How often: refusals of the same kind within a minute are counted.' }),
  }),
});

builder.queryFields((t) => ({
  caller: t.field({
    type: CallerType,
    description: 'The caller of this query. Shows whether a token is accepted, also if none is required.',
    resolve: (_root, _args, ctx) => showCaller(ctx),
  }),
  tokens: t.connection({
    type: TokenType,
    description: 'All API tokens that were ever made, oldest first; for operators.',
    complexity: pageComplexity,
    resolve: (_root, args, ctx) => resolveIdPage(args, 'Token', (page) => listTokens(ctx, page)),
  }),
  legacyUses: t.connection({
    type: LegacyUseType,
    description:
      'What callers who showed nothing have asked for in the last 90 days, in vain or not, the latest first; counted while `TAPEGATE_AUTH` has `legacy`.',
    complexity: pageComplexity,
    resolve: (_root, args, ctx) => resolveBigIdPage(args, 'use', (page) => listLegacyUses(ctx, page)),
  }),
  audit: t.prismaConnection({
    type: AuditType,
    cursor: 'id',
    description: 'Who asked for which change, in the order in which it was.',
    complexity: pageComplexity,
    args: {
      who: t.arg.string({ description: 'The name of the caller.' }),
      operation: t.arg.string({ description: 'What was asked for; a name that nothing has is refused.' }),
      objectKind: t.arg({ type: KindType, description: 'What it was about.' }),
      object: t.arg.string({ description: 'Its id or name, whole.' }),
      since: t.arg(time('From this time on.')),
      until: t.arg(time('Before this time, which is later than `since`.')),
    },
    totalCount: (_root, args, ctx) => listAudit(ctx, args, ctx.reader).count(),
    resolve: (query, _root, args, ctx) =>
      readListPage(query, { name: 'id', isKey: isBigInt }, listAudit(ctx, args, ctx.reader).page),
  }),
}));
