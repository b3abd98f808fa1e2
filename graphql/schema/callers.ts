/** Defines the GraphQL types for the caller, API tokens, unauthenticated REST calls, and the audit log. */

import type { Role, Way } from '../../src/core/caller.js';
import { ForbiddenError, InvalidInputError, NotFoundError } from '../../src/core/errors.js';
import { type ShownCaller, showCaller } from '../../src/domain/access/caller.js';
import { countLegacyUses, listLegacyUses } from '../../src/domain/access/legacy-uses.js';
import {
  countTokens,
  createToken,
  listTokens,
  readToken,
  revokeToken,
  type Token,
} from '../../src/domain/access/tokens.js';
import type { AuditKind } from '../../src/domain/audit/audit.js';
import { listAudit } from '../../src/domain/audit/lists.js';
import { readDefaultQuota } from '../../src/domain/stage-requests/stage-requests.js';
import type { LegacyUse } from '../../src/generated/prisma/client.js';
import type { TokenRole } from '../../src/generated/prisma/enums.js';
import {
  builder,
  connectionOf,
  countedConnection,
  describeValues,
  nameValues,
  nullable,
  pageComplexity,
  textOrNull,
  time,
  timeOrNull,
} from './builder.js';
import { counted, isBigInt, readListPage, resolveBigIdPage, resolveIdPage } from './pages.js';
import { defineMutation, resultOf } from './payloads.js';

const AuthenticationType = builder.enumType('Authentication', {
  description: 'How a caller was authenticated.',
  values: nameValues<Way | 'unknown'>({
    token: 'An API token.',
    oidc: 'A token of an OpenID Connect provider.',
    proxy: 'A reverse proxy, which sends the name of the user in a header.',
    certificate: 'A client certificate, which a reverse proxy verified.',
    open: 'None, because the site does not require authentication.',
    legacy: 'None, for an endpoint of the REST API that accepts calls without authentication.',
    system: 'Tapegate itself was the caller.',
    unknown: 'The caller was not authenticated.',
  }),
});

const CallerRoleType = builder.enumType('CallerRole', {
  description: 'A role of a caller.',
  values: nameValues<Role>({
    user: 'May use the quotas that the caller owns or is a member of.',
    service: 'May act on behalf of certain users.',
    viewer: 'May read everything, but change nothing.',
    operator: 'May do everything.',
    legacy: 'May call the endpoints of the REST API that accept calls without authentication.',
  }),
});

export const CallerType = builder.objectRef<ShownCaller>('Caller').implement({
  description: 'The caller of an operation, and how the caller was authenticated.',
  fields: (t) => ({
    name: t.exposeString('name', {
      description: 'The name of the caller, or `anybody` if the site does not require authentication.',
    }),
    authentication: t.expose('way', { type: AuthenticationType, description: 'How the caller was authenticated.' }),
    roles: t.field({
      type: [CallerRoleType],
      description: "The caller's roles.",
      resolve: ({ roles }) => roles as Role[],
    }),
    isReadOnly: t.exposeBoolean('isReadOnly', {
      description: 'Whether the caller may only read, even if its roles allow changes.',
    }),
    defaultQuota: t.string({
      ...nullable(
        'The user whose quota is charged if the caller names no quota. Null if the caller must name a quota.',
      ),
      resolve: (_caller, _args, ctx) => readDefaultQuota(ctx),
    }),
    expiresAt: t.expose('expiresAt', timeOrNull('When the credentials expire. Null if they do not expire.')),
  }),
});

const RoleType = builder.enumType('TokenRole', {
  description: 'The role that a token grants.',
  values: describeValues<TokenRole>({
    USER: "Allows the client to act as the user with the token's name.",
    VIEWER: 'Allows the client to read everything, but not to change anything.',
    OPERATOR: 'Full access.',
    SERVICE: "Allows the client to act on behalf of the users listed in the token's `quotas`.",
  }),
});

const TokenType = builder.node(builder.objectRef<Token>('Token'), {
  id: { resolve: ({ id }) => id },
  loadWithoutCache: (id, ctx) => readToken(ctx, Number(id)),
  description: 'An API token, without its secret.',
  fields: (t) => ({
    tokenId: t.exposeInt('id', { description: "The token's id, which `revokeToken` requires." }),
    name: t.exposeString('name', {
      description: 'The name of the user, service, viewer or operator that uses the token.',
    }),
    role: t.expose('role', { type: RoleType, description: 'The role that the token grants.' }),
    quotas: t.exposeStringList('quotas', {
      description: 'For a service token, the users on whose behalf the service may act.',
    }),
    isReadOnly: t.exposeBoolean('isReadOnly', {
      description: 'Whether the token allows only read access, even if its role allows changes.',
    }),
    note: t.string({ ...nullable('A note for operators.'), resolve: ({ note }) => textOrNull(note) }),
    createdAt: t.expose('madeAt', time('When the token was created.')),
    createdBy: t.exposeString('madeBy', { description: 'The name of the caller that created the token.' }),
    expiresAt: t.expose('expiresAt', timeOrNull('When the token expires. Null if it does not expire.')),
    revokedAt: t.expose('revokedAt', timeOrNull('When the token was revoked. Null if it was not revoked.')),
    usedAt: t.expose(
      'usedAt',
      timeOrNull('When the token was last used, rounded to the hour. Null if it was never used.'),
    ),
  }),
});

const CreateTokenInput = builder.inputType('CreateTokenInput', {
  description: 'Input of `createToken`.',
  fields: (t) => ({
    name: t.string({
      required: true,
      description:
        'The name of the user, service, viewer or operator that will use the token. Must not contain colons.',
    }),
    role: t.field({ type: RoleType, required: true, description: 'The role that the token grants.' }),
    quotas: t.stringList({
      description: 'For a service token, the users on whose behalf the service may act. At least one user.',
    }),
    isReadOnly: t.boolean({
      description: 'Whether the token allows only read access, even if its role allows changes.',
    }),
    note: t.string({ description: 'A note for operators.' }),
    expiresAt: t.field(time('When the token expires. By default, the token does not expire.')),
  }),
});

defineMutation('createToken', {
  description: 'Creates an API token and returns its secret. The secret cannot be retrieved later.',
  errors: [InvalidInputError, ForbiddenError],
  resolve: (input, ctx) => createToken(ctx, input),
  input: CreateTokenInput,
  result: (t) => ({
    token: t.field({
      type: TokenType,
      nullable: true,
      description: 'The new token.',
      resolve: ({ value }) => value?.token ?? null,
    }),
    secret: t.string({
      nullable: true,
      description:
        'The secret, which the client sends as a bearer token. Tapegate does not store it and cannot show it again.',
      resolve: ({ value }) => value?.secret ?? null,
    }),
  }),
});

const RevokeTokenInput = builder.inputType('RevokeTokenInput', {
  description: 'Input of `revokeToken`.',
  fields: (t) => ({ tokenId: t.int({ required: true, description: "The token's id." }) }),
});

defineMutation('revokeToken', {
  description:
    'Revokes a token. Within 5 s, Tapegate closes all open connections that use the token. Revoking the token again changes nothing.',
  errors: [NotFoundError, ForbiddenError],
  resolve: ({ tokenId }, ctx) => revokeToken(ctx, tokenId),
  input: RevokeTokenInput,
  result: (t) => ({
    token: t.field({ type: TokenType, nullable: true, description: 'The revoked token.', resolve: resultOf }),
  }),
});

const LegacyUseType = builder.objectRef<LegacyUse>('LegacyUse').implement({
  description: 'Unauthenticated calls to one REST endpoint on one day, from one address and for one user.',
  fields: (t) => ({
    day: t.expose('day', time('The day, given as the time at which it began (midnight UTC).')),
    endpoint: t.exposeString('endpoint', { description: 'The method and path, such as `GET /requests/{id}`.' }),
    address: t.string({
      ...nullable("The caller's address. Null if there were too many addresses to count separately."),
      resolve: ({ address }) => textOrNull(address),
    }),
    user: t.string({
      ...nullable('The user whose quota the calls named. Null if the calls named no user, or a user without a quota.'),
      resolve: ({ user }) => textOrNull(user),
    }),
    accepted: t.int({
      description:
        'The number of calls that Tapegate accepted without authentication. Calls from the last few seconds may not be counted yet.',
      resolve: ({ uses }) => Number(uses),
    }),
    rejected: t.int({
      description:
        "The number of calls rejected because the endpoint requires authentication. For these calls, `user` is null unless the path contains the user's name.",
      resolve: ({ refused }) => Number(refused),
    }),
    lastAt: t.expose('lastAt', time('The time of the last call.')),
  }),
});

const KindType = builder.enumType('AuditKind', {
  description: 'The type of object that an audit entry is about.',
  values: describeValues<AuditKind>({
    REQUEST: 'A request, identified by its `requestId`.',
    QUOTA: 'A quota, identified by its user.',
    USER: 'A user, identified by name.',
    TOKEN: 'An API token, identified by its id.',
    FILES: 'Files that match a pattern.',
    VOLUME: 'A volume, identified by name.',
    DRIVE: 'A drive, identified by name.',
    LIBRARY: 'A library, identified by name.',
    DISK: 'A restore disk, identified by its mount point.',
    CATALOGUE: 'The catalogue, for operations that add, rename, withdraw, reinstate or purge files.',
    RULE: 'A path rule.',
    WEBHOOK: 'A webhook, identified by its id.',
    CLOCK: 'The database clock.',
    NONE: 'The service as a whole, or an unknown object.',
  }),
});

/** Results in the column `result`, which otherwise contains an error code. */
const auditResults = {
  DONE: 'The operation succeeded.',
  BEGUN: 'A long operation has started. A later entry contains its result.',
};

const ResultType = builder.enumType('AuditResult', {
  description: 'The result of an audited operation.',
  values: describeValues<keyof typeof auditResults | 'FAILED'>({ ...auditResults, FAILED: 'The operation failed.' }),
});

const isAuditResult = (result: string): result is keyof typeof auditResults => Object.hasOwn(auditResults, result);

const AuditType = builder.prismaNode('Audit', {
  name: 'AuditEntry',
  id: { field: 'id' },
  nullable: true,
  description: 'An audit entry: a change, or a rejected attempt to make a change.',
  fields: (t) => ({
    at: t.expose('at', time('When the change or attempt was made.')),
    caller: t.string({
      ...nullable("The caller's name. Null if unknown, or if the entry counts several callers."),
      resolve: ({ who }) => textOrNull(who),
    }),
    authentication: t.field({
      type: AuthenticationType,
      description: 'How the caller was authenticated.',
      resolve: ({ way }) => way as Way,
    }),
    tokenId: t.exposeInt('tokenId', nullable("The id of the caller's API token.")),
    address: t.exposeString(
      'address',
      nullable("The caller's network address. For a command, the host on which the command ran."),
    ),
    operation: t.exposeString('operation', { description: 'The operation, such as `createRequest`.' }),
    objectKind: t.field({
      type: KindType,
      description: 'The type of the object that the entry is about.',
      resolve: ({ kind }) => kind as AuditKind,
    }),
    object: t.string({
      ...nullable('The id or name of the object. Null if the entry is about no single object.'),
      resolve: ({ object }) => textOrNull(object),
    }),
    input: t.string({
      description: 'The input of the operation as JSON. Long strings and lists are truncated.',
      resolve: ({ given }) => JSON.stringify(given),
    }),
    result: t.field({
      type: ResultType,
      description: 'Whether the operation succeeded.',
      resolve: ({ result }) => (isAuditResult(result) ? result : 'FAILED'),
    }),
    errorCode: t.string({
      ...nullable('The error code. Null if the operation did not fail.'),
      resolve: ({ result }) => (isAuditResult(result) ? null : result),
    }),
    count: t.exposeInt('count', {
      description:
        'The number of occurrences that this entry represents. Similar rejections within a minute share one entry.',
    }),
  }),
});

builder.queryFields((t) => ({
  caller: t.field({
    type: CallerType,
    description:
      'Returns the caller of this query. If the caller sends a token, Tapegate checks the token even if the site does not require authentication.',
    resolve: (_root, _args, ctx) => showCaller(ctx),
  }),
  tokens: t.connection(
    {
      type: TokenType,
      nullable: true,
      description: 'Returns all API tokens, oldest first, including expired and revoked ones. For operators.',
      complexity: pageComplexity,
      resolve: (_root, args, ctx) =>
        counted(
          resolveIdPage(args, 'Token', (page) => listTokens(ctx, page)),
          () => countTokens(ctx),
        ),
    },
    countedConnection(TokenType, 'Token'),
  ),
  legacyUses: t.connection(
    {
      type: LegacyUseType,
      nullable: true,
      description:
        'Returns unauthenticated REST calls from the last 90 days, latest first. Tapegate records these calls only while `TAPEGATE_AUTH` contains `legacy`.',
      complexity: pageComplexity,
      resolve: (_root, args, ctx) =>
        counted(
          resolveBigIdPage(args, 'use', (page) => listLegacyUses(ctx, page)),
          () => countLegacyUses(ctx),
        ),
    },
    countedConnection(LegacyUseType, 'LegacyUse'),
  ),
  auditEntries: t.prismaConnection(
    {
      type: AuditType,
      nullable: true,
      cursor: 'id',
      description: 'Returns the audit log, oldest entry first.',
      complexity: pageComplexity,
      args: {
        caller: t.arg.string({ description: "Filters by the caller's name." }),
        operation: t.arg.string({ description: 'Filters by operation. Fails if the operation is unknown.' }),
        objectKind: t.arg({ type: KindType, description: 'Filters by object type.' }),
        object: t.arg.string({ description: "Filters by the object's exact id or name." }),
        since: t.arg(time('Returns only entries at or after this time.')),
        until: t.arg(time('Returns only entries before this time.')),
      },
      totalCount: (_root, { caller: who, ...args }, ctx) => listAudit(ctx, { who, ...args }, ctx.reader).count(),
      resolve: (query, _root, { caller: who, ...args }, ctx) =>
        readListPage(query, { name: 'id', isKey: isBigInt }, listAudit(ctx, { who, ...args }, ctx.reader).page),
    },
    ...connectionOf('AuditEntry'),
  ),
}));
