/** What is in a request: its files, and the paths that have none yet. */
import { AwaitedReason, ErrorClass, HoldState } from '../src/generated/prisma/enums.js';
import { readAwaited, readHolds } from '../src/operations/requests/rows.js';
import { builder, pageComplexity } from './builder.js';
import { TapeFileType } from './files.js';
import { resolveInnerPage } from './pages.js';

const HoldStateType = builder.enumType('HoldState', {
  description: 'How it goes with one file of a request.',
  values: {
    [HoldState.WAITING]: { description: 'It is still to come.' },
    [HoldState.ON_DISK]: { description: 'It is there.' },
    [HoldState.FAILED]: { description: 'It was given up.' },
    [HoldState.RELEASED]: { description: 'It was let go before the end of the request.' },
  },
});
export const ErrorClassType = builder.enumType('ErrorClass', {
  description: 'What went wrong, which decides whether and when it is tried again.',
  values: {
    [ErrorClass.TRANSIENT]: { description: 'It may pass by itself.' },
    [ErrorClass.PERMANENT]: { description: 'It will not change by trying.' },
    [ErrorClass.MEDIA]: { description: 'The cartridge.' },
    [ErrorClass.SPACE]: { description: 'No room, in the restore area or at a library.' },
    [ErrorClass.POLICY]: { description: 'A rule of the site.' },
  },
});
const AwaitedReasonType = builder.enumType('AwaitedReason', {
  description: 'Why a request has no file for a path.',
  values: {
    [AwaitedReason.UNKNOWN]: { description: 'The catalogue does not know it (yet).' },
    [AwaitedReason.QUOTA_FULL]: { description: 'There was no room in the quota when it appeared.' },
    [AwaitedReason.LIMIT]: { description: "It was beyond the request's own limits when it appeared." },
  },
});

const HoldType = builder.prismaObject('Hold', {
  include: { file: true },
  description: "One request's claim on one file.",
  fields: (t) => ({
    file: t.field({ type: TapeFileType, description: 'The file that is held.', resolve: ({ file }) => file }),
    size: t.expose('size', { type: 'BigInt', description: 'Bytes charged for it.' }),
    state: t.expose('state', { type: HoldStateType, description: 'How it goes with it.' }),
    errorClass: t.expose('errorClass', {
      type: ErrorClassType,
      nullable: true,
      description: 'Of what the file failed; null: it has not.',
    }),
    error: t.exposeString('error', { nullable: true, description: 'For people: why it failed; null: it has not.' }),
  }),
});

const AwaitedPathType = builder.prismaObject('AwaitedPath', {
  description:
    'A path of a request that has no file yet: unknown to the catalogue, without room in the quota, or beyond the ' +
    "request's own limits.",
  fields: (t) => ({
    path: t.exposeString('path', { description: 'Logical path.' }),
    reason: t.expose('reason', { type: AwaitedReasonType, description: 'Why it has no file.' }),
  }),
});

builder.prismaObjectFields('Request', (t) => ({
  holds: t.connection({
    type: HoldType,
    complexity: pageComplexity,
    description: 'Its files, in the order in which it took them.',
    args: {
      states: t.arg({ type: [HoldStateType], description: 'Only holds at one of these; at any unless given.' }),
    },
    resolve: ({ id }, args, ctx, info) => resolveInnerPage({ ctx, info, parentId: id }, { read: readHolds }, args),
  }),
  awaited: t.connection({
    type: AwaitedPathType,
    description: 'Its paths that have no file yet, in the order in which it took them.',
    complexity: pageComplexity,
    resolve: ({ id }, args, ctx, info) => resolveInnerPage({ ctx, info, parentId: id }, { read: readAwaited }, args),
  }),
}));
