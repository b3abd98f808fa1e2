/** Requests: read, made, changed, ended, watched. */
import { cancellable } from '../src/cancellable.js';
import {
  InvalidInputError,
  NotFoundError,
  QuotaExceededError,
  UnknownUserError,
  WrongQuotaError,
} from '../src/errors.js';
import type { AwaitedPath, Hold } from '../src/generated/prisma/client.js';
import { ErrorClass, HoldState, RequestState } from '../src/generated/prisma/enums.js';
import { createRequest } from '../src/operations/requests/create.js';
import { cancelRequest } from '../src/operations/requests/ends.js';
import { countAwaited, countReleased, readMountpoints } from '../src/operations/requests/figures.js';
import { listRequests } from '../src/operations/requests/lists.js';
import { getRequest } from '../src/operations/requests/rows.js';
import { updateRequest } from '../src/operations/requests/update.js';
import { type RequestProgress, watchRequest } from '../src/operations/requests/watch.js';
import { createBatch } from './batch.js';
import { builder, pageComplexity } from './builder.js';
import { orNull } from './errors.js';
import { watchFromPlace } from './event-place.js';
import { type InnerList, isInt, readListPage, resolveInnerPage } from './pages.js';

const RequestStateType = builder.enumType('RequestState', {
  values: {
    [RequestState.QUEUED]: { description: 'No recall has begun.' },
    [RequestState.RESTORING]: {},
    [RequestState.COMPLETED]: { description: 'Every file that the catalogue knows is on disk.' },
    [RequestState.PARTIAL]: { description: 'Nothing is left to do, and some files have failed.' },
    [RequestState.EXPIRED]: {},
    [RequestState.CANCELLED]: {},
  },
});
const HoldStateType = builder.enumType(HoldState, { name: 'HoldState' });
export const ErrorClassType = builder.enumType(ErrorClass, { name: 'ErrorClass' });

const HoldType = builder.prismaObject('Hold', {
  description: "One request's claim on one file.",
  fields: (t) => ({
    file: t.relation('file'),
    size: t.expose('size', { type: 'BigInt', description: 'Bytes charged for it.' }),
    state: t.expose('state', { type: HoldStateType }),
    errorClass: t.expose('errorClass', { type: ErrorClassType, nullable: true }),
    error: t.exposeString('error', { nullable: true, description: 'Why the file failed.' }),
  }),
});

const AwaitedPathType = builder.prismaObject('AwaitedPath', {
  description:
    'A path of a request that has no file yet: unknown to the catalogue, without room in the quota, or beyond the ' +
    "request's own limits.",
  fields: (t) => ({
    path: t.exposeString('path'),
    reason: t.exposeString('reason', { description: 'UNKNOWN, QUOTA_FULL or LIMIT.' }),
  }),
});

const awaitedCounts = createBatch(countAwaited);
const releasedCounts = createBatch(countReleased);
const mountpointsOf = createBatch(readMountpoints);

const holds: InnerList<Hold> = {
  place: { table: 'hold', parent: 'request_id', key: 'ordinal' },
  typeName: 'Hold',
  load: (ctx, pages, query) =>
    ctx.db.prisma.hold.findMany({
      ...query,
      where: { OR: pages.map(({ parentId, keys }) => ({ requestId: parentId, ordinal: { in: keys } })) },
    }),
  parentOf: (hold) => hold.requestId,
  keyOf: (hold) => hold.ordinal,
};

const awaited: InnerList<AwaitedPath> = {
  place: { table: 'awaited_path', parent: 'request_id', key: 'ordinal' },
  typeName: 'AwaitedPath',
  load: (ctx, pages, query) =>
    ctx.db.prisma.awaitedPath.findMany({
      ...query,
      where: { OR: pages.map(({ parentId, keys }) => ({ requestId: parentId, ordinal: { in: keys } })) },
    }),
  parentOf: (path) => path.requestId,
  keyOf: (path) => path.ordinal,
};

export const RequestType = builder.prismaNode('Request', {
  id: { field: 'id' },
  nullable: true,
  fields: (t) => ({
    requestId: t.exposeInt('id', { description: 'The id that REST knows.' }),
    quota: t.relation('quota'),
    state: t.expose('state', { type: RequestStateType }),
    pattern: t.exposeString('pattern', { description: 'Empty when the request lists files.' }),
    label: t.exposeString('label'),
    requestDate: t.expose('requestDate', { type: 'DateTime' }),
    retention: t.expose('retention', { type: 'DateTime', description: 'When its files are let go.' }),
    notifyOnFirstFile: t.exposeString('notifyOnFirstFile', { nullable: true }),
    notifyOnLastFile: t.exposeString('notifyOnLastFile', { nullable: true }),
    maxFiles: t.exposeInt('maxFiles', { nullable: true, description: 'Files that it may hold at most.' }),
    maxBytes: t.expose('maxBytes', { type: 'BigInt', nullable: true, description: 'Bytes that it may hold at most.' }),
    tapestoreRequestStart: t.expose('tapestoreRequestStart', { type: 'DateTime', nullable: true }),
    tapestoreRequestEnd: t.expose('tapestoreRequestEnd', { type: 'DateTime', nullable: true }),
    firstFilesOnDisk: t.expose('firstFilesOnDisk', { type: 'DateTime', nullable: true }),
    lastFilesOnDisk: t.expose('lastFilesOnDisk', { type: 'DateTime', nullable: true }),
    filesTotal: t.exposeInt('filesTotal', { description: 'Files that the catalogue knows.' }),
    filesOnDisk: t.exposeInt('filesOnDisk'),
    filesFailed: t.exposeInt('filesFailed'),
    bytesTotal: t.expose('bytesTotal', { type: 'BigInt' }),
    bytesOnDisk: t.expose('bytesOnDisk', { type: 'BigInt' }),
    filesUnknown: t.int({
      description: 'Paths that the catalogue does not know (yet).',
      select: { id: true },
      resolve: async ({ id }, _args, ctx) => (await awaitedCounts(ctx, id))?.unknown ?? 0,
    }),
    filesRefused: t.int({
      description: 'Files that found no room in the quota when they appeared.',
      select: { id: true },
      resolve: async ({ id }, _args, ctx) => (await awaitedCounts(ctx, id))?.refused ?? 0,
    }),
    filesOverLimit: t.int({
      description: "Files that were beyond the request's own limits when they appeared.",
      select: { id: true },
      resolve: async ({ id }, _args, ctx) => (await awaitedCounts(ctx, id))?.overLimit ?? 0,
    }),
    filesReleased: t.int({
      description: 'Files that were let go before the end of the request; no other count has them.',
      select: { id: true },
      resolve: async ({ id }, _args, ctx) => (await releasedCounts(ctx, id)) ?? 0,
    }),
    restoredBelow: t.stringList({
      description: 'Mount points of the restore disks that have files of it: each is there under its archive path.',
      select: { id: true },
      resolve: async ({ id }, _args, ctx) => (await mountpointsOf(ctx, id)) ?? [],
    }),
    holds: t.connection({
      type: HoldType,
      complexity: pageComplexity,
      args: { states: t.arg({ type: [HoldStateType] }) },
      select: { id: true },
      resolve: ({ id }, args, ctx, info) => resolveInnerPage({ ctx, info, parentId: id }, holds, args),
    }),
    awaited: t.connection({
      type: AwaitedPathType,
      complexity: pageComplexity,
      select: { id: true },
      resolve: ({ id }, args, ctx, info) => resolveInnerPage({ ctx, info, parentId: id }, awaited, args),
    }),
  }),
});

builder.queryFields((t) => ({
  request: t.prismaField({
    type: 'Request',
    nullable: true,
    args: { id: t.arg.int({ required: true }) },
    resolve: (query, _root, { id }, ctx) => orNull(getRequest(ctx, id, query)),
  }),
  requests: t.prismaConnection({
    type: 'Request',
    cursor: 'id',
    description: 'Requests, oldest first. Ended ones only where `states` names EXPIRED or CANCELLED.',
    complexity: pageComplexity,
    args: { quota: t.arg.string({ description: 'A user.' }), states: t.arg({ type: [RequestStateType] }) },
    totalCount: (_root, args, ctx) => listRequests(ctx, args).count(),
    resolve: (query, _root, args, ctx) =>
      readListPage(query, { name: 'id', isKey: isInt }, listRequests(ctx, args).page),
  }),
}));

export const CreateRequestInput = builder.inputType('CreateRequestInput', {
  description: 'Exactly one of pattern and files is given.',
  fields: (t) => ({
    quota: t.string({ required: true, description: 'The user whose quota is charged.' }),
    pattern: t.string({ description: 'A plain, case-sensitive substring of paths; files that appear later join.' }),
    files: t.stringList({ description: 'Logical paths, also such that the catalogue does not know yet.' }),
    retention: t.field({ type: 'DateTime', description: 'Five days from now unless given.' }),
    label: t.string(),
    maxFiles: t.int({ description: 'What it may hold at most; more files at once are refused, later ones stay out.' }),
    maxBytes: t.field({ type: 'BigInt', description: 'The same in bytes.' }),
    notifyOnFirstFile: t.string({ description: "An e-mail address; an empty one means the quota's own." }),
    notifyOnLastFile: t.string({ description: "An e-mail address; an empty one means the quota's own." }),
  }),
});

const UpdateRequestInput = builder.inputType('UpdateRequestInput', {
  description: 'What is not given stays as it is.',
  fields: (t) => ({
    id: t.int({ required: true }),
    quota: t.string({ description: "When given, it must be the request's own." }),
    retention: t.field({ type: 'DateTime', description: 'One in the past ends the request, a later one revives it.' }),
    label: t.string(),
    maxFiles: t.int({ description: 'Null removes it. A greater one lets files join at once that stayed out for it.' }),
    maxBytes: t.field({ type: 'BigInt', description: 'The same in bytes.' }),
    notifyOnFirstFile: t.string({ description: "Null removes it; an empty one means the quota's own." }),
    notifyOnLastFile: t.string({ description: "Null removes it; an empty one means the quota's own." }),
  }),
});

builder.mutationFields((t) => ({
  createRequest: t.prismaField({
    type: 'Request',
    errors: {
      types: [InvalidInputError, UnknownUserError, QuotaExceededError],
      union: { name: 'CreateRequestResult' },
    },
    args: { input: t.arg({ type: CreateRequestInput, required: true }) },
    resolve: async (query, _root, { input }, ctx) => getRequest(ctx, await createRequest(ctx, input), query),
  }),
  updateRequest: t.prismaField({
    type: 'Request',
    errors: {
      types: [InvalidInputError, UnknownUserError, QuotaExceededError, WrongQuotaError, NotFoundError],
      union: { name: 'UpdateRequestResult' },
    },
    args: { input: t.arg({ type: UpdateRequestInput, required: true }) },
    resolve: async (query, _root, { input }, ctx) => getRequest(ctx, await updateRequest(ctx, input), query),
  }),
  cancelRequest: t.prismaField({
    type: 'Request',
    errors: { types: [NotFoundError], union: { name: 'CancelRequestResult' } },
    args: { id: t.arg.int({ required: true }) },
    resolve: async (query, _root, { id }, ctx) => getRequest(ctx, await cancelRequest(ctx, id), query),
  }),
}));

const RequestProgressType = builder.objectRef<RequestProgress>('RequestProgress').implement({
  fields: (t) => ({
    requestId: t.exposeInt('requestId'),
    state: t.expose('state', { type: RequestStateType }),
    filesTotal: t.exposeInt('filesTotal'),
    filesOnDisk: t.exposeInt('filesOnDisk'),
    filesFailed: t.exposeInt('filesFailed'),
    bytesTotal: t.expose('bytesTotal', { type: 'BigInt' }),
    bytesOnDisk: t.expose('bytesOnDisk', { type: 'BigInt' }),
    eta: t.expose('eta', {
      type: 'DateTime',
      nullable: true,
      description: 'The end, at the rate so far; null while it waits for what is out of service.',
    }),
    at: t.expose('at', { type: 'DateTime' }),
    eventId: t.expose('eventId', { type: 'BigInt', description: 'Give it as `after` to go on from here.' }),
  }),
});

builder.subscriptionFields((t) => ({
  requestProgress: t.field({
    type: RequestProgressType,
    description:
      'The present state of a request, then every step of it; completes when the request has finished. ' +
      'With `after`, the steps since that event.',
    args: { id: t.arg.int({ required: true }), after: t.arg({ type: 'BigInt' }) },
    subscribe: (_root, { id, after }, ctx) =>
      cancellable((signal) => watchFromPlace(ctx, after, (place) => watchRequest(ctx, { id, after: place }, signal))),
    resolve: (progress) => progress,
  }),
}));
