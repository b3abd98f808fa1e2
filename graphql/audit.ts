/** Who asked for which change, and what came of it. */
import type { AuditKind } from '../src/audit.js';
import { listAudit } from '../src/operations/audit/lists.js';
import { builder, pageComplexity } from './builder.js';
import { isBigInt, readListPage } from './pages.js';

/** One for each kind that there is. */
function describe(texts: Record<AuditKind, string>) {
  const entries = Object.entries(texts).map(([kind, description]) => [kind, { description }]);
  return Object.fromEntries(entries) as Record<AuditKind, { description: string }>;
}

const KindType = builder.enumType('AuditKind', {
  description: 'What a change may be about.',
  values: describe({
    REQUEST: 'A request, by its `requestId`.',
    QUOTA: 'A quota, by its user.',
    USER: 'A user, by name.',
    TOKEN: 'An API token, by its id.',
    FILES: 'The files of a match.',
    VOLUME: 'A volume, by name.',
    DRIVE: 'A drive, by name.',
    BACKEND: 'A tape back end, by name.',
    DISK: 'A restore disk, by its mount point.',
    CATALOGUE: 'What the catalogue is given; the folder that was archived.',
    RULE: 'A rule of access.',
    WEBHOOK: 'A webhook, by its id.',
    NONE: 'The service as a whole, or what nobody knows.',
  }),
});

const AuditType = builder.prismaObject('Audit', {
  description: 'What somebody has asked for: a change that was made, or what was refused.',
  fields: (t) => ({
    at: t.expose('at', { type: 'DateTime', description: 'When it was.' }),
    who: t.exposeString('who', {
      description: "The caller's name; empty where nobody knows it, and where it was several callers.",
    }),
    way: t.exposeString('way', {
      description:
        'How the caller was known, such as `token`; `system` is this program, `unknown` is nobody that a way knows.',
    }),
    tokenId: t.exposeInt('tokenId', { nullable: true, description: 'The id of its API token.' }),
    address: t.exposeString('address', {
      nullable: true,
      description: 'Where it asked from: in the network, or on which host as a command.',
    }),
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
  audit: t.prismaConnection({
    authScopes: { operation: 'listAudit' },
    type: AuditType,
    cursor: 'id',
    description: 'Who asked for which change, in the order in which it was.',
    complexity: pageComplexity,
    args: {
      who: t.arg.string({ description: 'The name of the caller.' }),
      operation: t.arg.string({ description: 'What was asked for; a name that nothing has is refused.' }),
      objectKind: t.arg({ type: KindType, description: 'What it was about.' }),
      object: t.arg.string({ description: 'Its id or name, whole.' }),
      since: t.arg({ type: 'DateTime', description: 'From this time on.' }),
      until: t.arg({ type: 'DateTime', description: 'Before this time, which is later than `since`.' }),
    },
    totalCount: (_root, args, ctx) => listAudit(ctx, args, ctx.reader).count(),
    resolve: (query, _root, args, ctx) =>
      readListPage(query, { name: 'id', isKey: isBigInt }, listAudit(ctx, args, ctx.reader).page),
  }),
}));
