/** API tokens, which operators make and revoke. */
import { ForbiddenError, InvalidInputError, NotFoundError } from '../src/errors.js';
import { TokenRole } from '../src/generated/prisma/enums.js';
import { createToken, listTokens, revokeToken, type Token } from '../src/operations/access/tokens.js';
import { builder, pageComplexity } from './builder.js';
import { createIntCursors, resolveCursorPage } from './cursors.js';

const RoleType = builder.enumType('TokenRole', {
  description: 'What the bearer of a token is.',
  values: {
    [TokenRole.USER]: { description: 'The user of that name, with the quota of that name.' },
    [TokenRole.VIEWER]: { description: 'Sees everything, and changes nothing.' },
    [TokenRole.OPERATOR]: { description: 'May do everything.' },
    [TokenRole.SERVICE]: { description: 'Acts for the users that the token names.' },
  },
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
    madeAt: t.field({ type: 'DateTime', description: 'When it was made.', resolve: (token) => String(token.madeAt) }),
    madeBy: t.exposeString('madeBy', { description: 'Who has made it.' }),
    expiresAt: t.field({
      type: 'DateTime',
      nullable: true,
      description: 'From when on it is good no longer; null: it stays so until it is revoked.',
      resolve: ({ expiresAt }) => expiresAt?.toString(),
    }),
    revokedAt: t.field({
      type: 'DateTime',
      nullable: true,
      description: 'When it was revoked; null: it was not.',
      resolve: ({ revokedAt }) => revokedAt?.toString(),
    }),
    usedAt: t.field({
      type: 'DateTime',
      nullable: true,
      description: 'When it was shown last, to the hour; null: never.',
      resolve: ({ usedAt }) => usedAt?.toString(),
    }),
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

const cursors = createIntCursors('Token');

builder.queryFields((t) => ({
  tokens: t.connection({
    authScopes: { operation: 'listTokens' },
    type: TokenType,
    description: 'All API tokens that were ever made, oldest first; for operators.',
    complexity: pageComplexity,
    resolve: (_root, args, ctx) =>
      resolveCursorPage(args, cursors, {
        keyOf: ({ id }: Token) => id,
        find: ({ inverted, ...page }) => listTokens(ctx, { ...page, descending: inverted }),
      }),
  }),
}));

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
    expiresAt: t.field({ type: 'DateTime', description: 'Unless given, it is good until it is revoked.' }),
  }),
});

builder.mutationFields((t) => ({
  createToken: t.field({
    authScopes: { operation: 'createToken' },
    type: CreatedToken,
    description: 'Makes an API token, and shows it once.',
    errors: { types: [InvalidInputError, ForbiddenError], union: { name: 'CreateTokenResult' } },
    args: { input: t.arg({ type: CreateTokenInput, required: true, description: 'Which one.' }) },
    resolve: (_root, { input }, ctx) => createToken(ctx, input),
  }),
  revokeToken: t.field({
    authScopes: { operation: 'revokeToken' },
    type: TokenType,
    description:
      'Ends a token: its bearer is known no longer, and what it has open ends within 5 s. A second time changes nothing.',
    errors: { types: [NotFoundError, ForbiddenError], union: { name: 'RevokeTokenResult' } },
    args: { id: t.arg.int({ required: true, description: 'Its `tokenId`.' }) },
    resolve: (_root, { id }, ctx) => revokeToken(ctx, id),
  }),
}));
