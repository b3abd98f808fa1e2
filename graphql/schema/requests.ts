/** Requests: read, made, changed, ended, watched. */

import {
  ForbiddenError,
  InvalidInputError,
  LimitReachedError,
  NotFoundError,
  QuotaExceededError,
  UnknownUserError,
  WrongQuotaError,
} from '../../src/core/errors.js';
import { formatFiles, formatMissing } from '../../src/core/requested-files.js';
import type { Context } from '../../src/domain/context.js';
import type { PageWish } from '../../src/domain/page-keys.js';
import { visibleQuotas } from '../../src/domain/policy.js';
import { keyOf, type RequestFileKey, readTries, type Tries } from '../../src/domain/recalls/queue.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { cancelRequest, releaseFiles } from '../../src/domain/requests/ends.js';
import {
  countAtPrimaryPlace,
  countReleased,
  countUnresolved,
  getRequest,
  listRequests,
  readMountpoints,
  readRequestFiles,
  readUnresolved,
} from '../../src/domain/requests/rows.js';
import { retryRequest, setPriority, updateRequest } from '../../src/domain/requests/update.js';
import { type RequestProgress, watchRequest } from '../../src/domain/requests/watch.js';
import type {
  ErrorClass,
  RecallState,
  RequestFileState,
  RequestState,
  UnresolvedReason,
} from '../../src/generated/prisma/enums.js';
import {
  bigInt,
  bigIntOrNull,
  builder,
  describeValues,
  nullable,
  pageComplexity,
  time,
  timeOrNull,
} from './builder.js';
import { orNull, readBack } from './errors.js';
import { watchFromPlace } from './event-place.js';
import { selectsCommon, TapeFileType } from './files.js';
import { createBatch, isInt, resolveInnerPage, resolveRootPage } from './pages.js';

export const RequestStateType = builder.enumType('RequestState', {
  description: 'How far a request is.',
  values: describeValues<RequestState>({
    QUEUED: 'No recall has begun.',
    RESTORING: 'A recall has begun, and files are still to come.',
    COMPLETED: 'All known files are on disk. `filesUnknown` and `filesRefused` count the missing files.',
    PARTIAL: 'Nothing is left to do, and some files have failed.',
    EXPIRED: 'Its retention is over, and its files are let go.',
    CANCELLED: 'It was ended before that.',
  }),
});
const [unresolvedCounts, releasedCounts] = [createBatch(countUnresolved), createBatch(countReleased)];
const [primaryCounts, mountpointsOf] = [createBatch(countAtPrimaryPlace), createBatch(readMountpoints)];

function summarize(
  request: { filesTotal: number; filesOnDisk: number },
  { unknown: filesUnknown = 0, refused: filesRefused = 0 }: { unknown?: number; refused?: number } = {},
): string {
  const files = { ...request, filesUnknown, filesRefused };
  return [formatFiles(files), formatMissing(files)].filter(Boolean).join('; ');
}

export const RequestType = builder.prismaNode('Request', {
  include: { quota: true },
  id: { resolve: ({ id }) => id },
  findUnique: (id, ctx) => ({ id: Number(id), quota: visibleQuotas(ctx) }),
  nullable: true,
  description: 'What a user asked for: a pattern or a list of files, charged to a quota until its retention.',
  fields: (t) => ({
    requestId: t.exposeInt('id', { description: 'The id that REST knows.' }),
    state: t.expose('state', { type: RequestStateType, description: 'How far it is.' }),
    pattern: t.exposeString('pattern', {
      description: 'The substring of the paths that it takes; empty when it lists files.',
    }),
    label: t.exposeString('label', { description: 'For people.' }),
    requestDate: t.expose('requestDate', time('When it was made.')),
    retention: t.expose('retention', time('When its files are let go.')),
    notifyOnFirstFile: t.exposeString(
      'notifyOnFirstFile',
      nullable('The address that is told when the first file is on disk; null: none.'),
    ),
    notifyOnLastFile: t.exposeString(
      'notifyOnLastFile',
      nullable('The address that is told when nothing is left to do; null: none.'),
    ),
    maxFiles: t.exposeInt('maxFiles', nullable('Files that it may hold at most; null: no limit.')),
    maxBytes: t.expose('maxBytes', bigIntOrNull('Bytes that it may hold at most; null: no limit.')),
    tapestoreRequestStart: t.expose(
      'tapestoreRequestStart',
      timeOrNull('When its first recall began; null: none has.'),
    ),
    tapestoreRequestEnd: t.expose(
      'tapestoreRequestEnd',
      timeOrNull('When its last recall ended; null: none has begun, or some have not ended.'),
    ),
    firstFilesOnDisk: t.expose('firstFilesOnDisk', timeOrNull('When its first file was on disk; null: none has been.')),
    lastFilesOnDisk: t.expose('lastFilesOnDisk', timeOrNull('When nothing was left to do; null: something is.')),
    restoredBelow: t.stringList({
      description:
        'Mount points of the restore disks that have files of it: each is there under its archive path. Empty where that is not so of one of them, since files were renamed: `restoredPath` of each says where it is.',
      resolve: async ({ id }, _args, ctx) => (await mountpointsOf(ctx, id)) ?? [],
    }),
    filesTotal: t.exposeInt('filesTotal', { description: 'Files that it holds, of all states but RELEASED.' }),
    filesOnDisk: t.exposeInt('filesOnDisk', { description: 'Files that are there.' }),
    filesFailed: t.exposeInt('filesFailed', { description: 'Files that were given up.' }),
    bytesTotal: t.expose('bytesTotal', bigInt('Bytes of all its files.')),
    bytesOnDisk: t.expose('bytesOnDisk', bigInt('Bytes of those that are there.')),
    filesUnknown: t.int({
      description: 'Paths that the catalogue does not know (yet).',
      resolve: async ({ id }, _args, ctx) => (await unresolvedCounts(ctx, id))?.unknown ?? 0,
    }),
    filesRefused: t.int({
      description: 'Files that found no room in the quota when they appeared.',
      resolve: async ({ id }, _args, ctx) => (await unresolvedCounts(ctx, id))?.refused ?? 0,
    }),
    summary: t.string({
      description: 'How many of its files are on disk, for people: `18 of 20 files; 2 names not found`.',
      resolve: async (request, _args, ctx) => summarize(request, await unresolvedCounts(ctx, request.id)),
    }),
    filesOverLimit: t.int({
      description: "Files that were beyond the request's own limits when they appeared.",
      resolve: async ({ id }, _args, ctx) => (await unresolvedCounts(ctx, id))?.overLimit ?? 0,
    }),
    hasMoreExcluded: t.boolean({
      description: 'Was more left out of it than these counts and unresolved paths tell? It joins when there is room.',
      resolve: ({ excludedSize }) => excludedSize !== null && excludedSize > 0, // of none it is not known whether it may have them
    }),
    filesAtPrimaryPlace: t.int({
      description: 'Of the files that are there, those at their primary place: no restore disk has them.',
      resolve: async ({ id }, _args, ctx) => (await primaryCounts(ctx, id)) ?? 0,
    }),
    filesReleased: t.int({
      description: 'Files that were let go before the end of the request; no other count has them.',
      resolve: async ({ id }, _args, ctx) => (await releasedCounts(ctx, id)) ?? 0,
    }),
    priority: t.exposeInt('priority', {
      description: 'Files of requests with a greater one are recalled first; 0 is usual.',
    }),
  }),
});

/** The one list of requests, wherever it is. */
export const RequestConnection = builder.connectionObject(
  {
    type: RequestType,
    name: 'QueryRequestsConnection',
    fields: (t) => ({ totalCount: t.int({ resolve: (connection) => (connection as object as Counted).totalCount() }) }),
  },
  { name: 'QueryRequestsConnectionEdge' },
);

/** A connection that counts its list only if it is asked to. */
export interface Counted {
  totalCount: () => Promise<number>;
}

builder.queryFields((t) => ({
  request: t.field({
    type: RequestType,
    nullable: true,
    description: 'A request by its id, ended ones too; null when there is none.',
    args: { id: t.arg.int({ required: true, description: 'The id that REST knows.' }) },
    resolve: (_root, { id }, ctx) => orNull(getRequest(ctx, id)),
  }),
  requests: t.connection(
    {
      type: RequestType,
      description: 'Requests, oldest first. Ended ones only where `states` names EXPIRED or CANCELLED.',
      complexity: pageComplexity,
      args: {
        quota: t.arg.string({ description: 'Only of this user; of all unless given.' }),
        states: t.arg({ type: [RequestStateType], description: 'Only at one of these; live ones unless given.' }),
      },
      resolve: async (_root, args, ctx) => {
        const { page, count } = listRequests(ctx, args, ctx.reader);
        return { ...(await resolveRootPage(args, { name: 'id', isKey: isInt }, page)), totalCount: count };
      },
    },
    RequestConnection,
  ),
}));

export const CreateRequestInput = builder.inputType('CreateRequestInput', {
  description: 'Exactly one of pattern and files is given.',
  fields: (t) => ({
    quota: t.string({ required: true, description: 'The user whose quota is charged.' }),
    pattern: t.string({ description: 'A plain, case-sensitive substring of paths; files that appear later join.' }),
    files: t.stringList({ description: 'Logical paths, also such that the catalogue does not know yet.' }),
    retention: t.field(time('When its files are let go: five days from now unless given.')),
    label: t.string({ description: 'For people; the pattern or the first path unless given.' }),
    maxFiles: t.int({ description: 'Files that it may hold at most; more at once are refused, later ones stay out.' }),
    maxBytes: t.field(bigInt('Bytes that it may hold at most; more at once are refused, later files stay out.')),
    notifyOnFirstFile: t.string({ description: "An e-mail address; an empty one means the quota's own." }),
    notifyOnLastFile: t.string({ description: "An e-mail address; an empty one means the quota's own." }),
  }),
});

const UpdateRequestInput = builder.inputType('UpdateRequestInput', {
  description: 'What is not given stays as it is.',
  fields: (t) => ({
    id: t.int({ required: true, description: 'The id that REST knows.' }),
    quota: t.string({ description: "When given, it must be the request's own." }),
    retention: t.field(time('One in the past ends the request, a later one revives it.')),
    label: t.string({ description: 'For people.' }),
    maxFiles: t.int({
      description: 'In files. Null removes the limit; a greater one lets files join at once that stayed out for it.',
    }),
    maxBytes: t.field(bigInt('The same in bytes.')),
    notifyOnFirstFile: t.string({ description: "Null removes it; an empty one means the quota's own." }),
    notifyOnLastFile: t.string({ description: "Null removes it; an empty one means the quota's own." }),
  }),
});

const takingErrors = [InvalidInputError, UnknownUserError, QuotaExceededError, LimitReachedError, ForbiddenError];

const RequestProgressType = builder.objectRef<RequestProgress>('RequestProgress').implement({
  description: 'Where a request stands after one step.',
  fields: (t) => ({
    requestId: t.exposeInt('requestId', { description: 'The id that REST knows.' }),
    state: t.expose('state', { type: RequestStateType, description: 'How far it is.' }),
    filesTotal: t.exposeInt('filesTotal', { description: 'Files that it holds.' }),
    filesOnDisk: t.exposeInt('filesOnDisk', { description: 'Files that are there.' }),
    filesFailed: t.exposeInt('filesFailed', { description: 'Files that were given up.' }),
    bytesTotal: t.expose('bytesTotal', bigInt('Bytes of all its files.')),
    bytesOnDisk: t.expose('bytesOnDisk', bigInt('Bytes of those that are there.')),
    eta: t.expose(
      'eta',
      timeOrNull(
        'The end, at the rate of files and bytes so far; null: it cannot be told, or something is out of service.',
      ),
    ),
    at: t.expose('at', time('When the step was made.')),
    eventId: t.expose('eventId', bigInt('Give it as `after` to go on from here.')),
  }),
});

builder.subscriptionFields((t) => ({
  requestProgress: t.field({
    type: RequestProgressType,
    description:
      'The present state of a request, then every step of it; completes when the request has finished. ' +
      'With `after`, the steps since that event.',
    args: {
      id: t.arg.int({ required: true, description: 'The id that REST knows.' }),
      after: t.arg(bigInt('The `eventId` of the last message that was seen.')),
    },
    subscribe: (_root, { id, after }, ctx) =>
      watchFromPlace(ctx, after, (place, signal) => watchRequest(ctx, { id, after: place }, signal)),
    resolve: (progress) => progress,
  }),
}));

const RequestFileStateType = builder.enumType('RequestFileState', {
  description: 'How it goes with one file of a request.',
  values: describeValues<RequestFileState>({
    WAITING: 'It is still to come.',
    ON_DISK: 'It is there.',
    FAILED: 'It was given up.',
    RELEASED: 'It was let go before the end of the request.',
  }),
});
export const ErrorClassType = builder.enumType('ErrorClass', {
  description: 'What went wrong, which decides whether and when it is tried again.',
  values: describeValues<ErrorClass>({
    TRANSIENT: 'It may pass without an action.',
    PERMANENT: 'It will not change by trying.',
    MEDIA: 'The cartridge.',
    SPACE: 'No room, in the restore area or at a library.',
    POLICY: 'A rule of the site.',
  }),
});
const UnresolvedReasonType = builder.enumType('UnresolvedReason', {
  description: 'Why a request has no file for a path.',
  values: describeValues<UnresolvedReason>({
    UNKNOWN: 'The catalogue does not know it (yet).',
    QUOTA_FULL: 'There was no room in the quota when it appeared.',
    LIMIT: "It was beyond the request's own limits when it appeared.",
  }),
});

const RequestFileType = builder.prismaObject('RequestFile', {
  include: { file: true },
  description: "One request's claim on one file.",
  fields: (t) => ({
    file: t.field({ type: TapeFileType, description: 'The requested file.', resolve: ({ file }) => file }),
    size: t.expose('size', bigInt('Bytes charged for it.')),
    state: t.expose('state', { type: RequestFileStateType, description: 'How it goes with it.' }),
    errorClass: t.expose('errorClass', {
      type: ErrorClassType,
      nullable: true,
      description: 'Of what the file failed; null: it has not.',
    }),
    error: t.exposeString('error', nullable('For people: why it failed; null: it has not.')),
  }),
});

const UnresolvedPathType = builder.prismaObject('UnresolvedPath', {
  description:
    'A path of a request that has no file yet: unknown to the catalogue, without room in the quota, or beyond the ' +
    "request's own limits.",
  fields: (t) => ({
    path: t.exposeString('path', { description: 'Logical path.' }),
    reason: t.expose('reason', { type: UnresolvedReasonType, description: 'Why it has no file.' }),
  }),
});

const readCommonRequestFiles = (ctx: Context, ids: readonly number[], wish: PageWish) =>
  readRequestFiles(ctx, ids, wish, { isCommon: true });

builder.prismaObjectFields('Request', (t) => ({
  files: t.connection({
    type: RequestFileType,
    complexity: pageComplexity,
    description: 'Its files, in the order in which it took them.',
    args: {
      states: t.arg({
        type: [RequestFileStateType],
        description: 'Only files in one of these states. Default: all states.',
      }),
    },
    resolve: ({ id }, args, ctx, info) => {
      const isCommon = selectsCommon(info, 'edges', 'node', 'file');
      return resolveInnerPage(
        { ctx, info, parentId: id },
        { read: isCommon ? readCommonRequestFiles : readRequestFiles },
        args,
      );
    },
  }),
  unresolved: t.connection({
    type: UnresolvedPathType,
    description: 'Its paths that have no file yet, in the order in which it took them.',
    complexity: pageComplexity,
    resolve: ({ id }, args, ctx, info) => resolveInnerPage({ ctx, info, parentId: id }, { read: readUnresolved }, args),
  }),
}));

const RecallStateType = builder.enumType('RecallState', {
  description: 'Whether a recall has begun.',
  values: describeValues<RecallState>({
    WAITING: 'Not yet, or it is tried again.',
    RUNNING: 'A drive has it in hand.',
  }),
});

const tries = createBatch<string, Tries>((ctx, keys) => readTries(ctx, keys.map(requestFileOf)));
const triesOf = (ctx: Context, requestFile: RequestFileKey) => tries(ctx, keyOf(requestFile));

function requestFileOf(key: string): RequestFileKey {
  const [requestId, fileId] = key.split('/');
  return { requestId: Number(requestId), fileId: BigInt(fileId ?? 0) };
}

builder.prismaObjectFields('RequestFile', (t) => ({
  recallState: t.field({
    type: RecallStateType,
    nullable: true,
    description: 'Of the recall that it waits for; null when it waits for none.',
    resolve: async (requestFile, _args, ctx) => (await triesOf(ctx, requestFile))?.state ?? null,
  }),
  attempts: t.int({
    ...nullable('Tries that have failed; null when it waits for no recall.'),
    resolve: async (requestFile, _args, ctx) => (await triesOf(ctx, requestFile))?.attempts ?? null,
  }),
  lastErrorClass: t.field({
    type: ErrorClassType,
    nullable: true,
    description: 'Of the last try, or of the end; null: nothing has failed.',
    resolve: async (requestFile, _args, ctx) =>
      requestFile.errorClass ?? (await triesOf(ctx, requestFile))?.errorClass ?? null,
  }),
  lastError: t.string({
    ...nullable(
      'Why the last try failed, or the next one cannot begin, or why the file was given up; null: nothing has failed.',
    ),
    resolve: async (requestFile, _args, ctx) => requestFile.error ?? (await triesOf(ctx, requestFile))?.error ?? null,
  }),
  nextTry: t.field({
    ...timeOrNull('Not before this time; null when it runs, may begin at any time, or will not.'),
    resolve: async (requestFile, _args, ctx) => (await triesOf(ctx, requestFile))?.nextTry ?? null,
  }),
}));

const ReleaseFilesInput = builder.inputType('ReleaseFilesInput', {
  description: 'Exactly one of paths and match is given.',
  fields: (t) => ({
    id: t.int({ required: true, description: 'The id that REST knows.' }),
    paths: t.stringList({ description: 'Logical paths that the request holds or waits for.' }),
    match: t.string({ description: 'A plain, case-sensitive substring of the paths of the request.' }),
  }),
});

const RetryRequestInput = builder.inputType('RetryRequestInput', {
  description: 'Which request has its failed files tried again.',
  fields: (t) => ({
    id: t.int({ required: true, description: 'The id that REST knows.' }),
    quota: t.string({ description: 'When given, it must be the quota of the request.' }),
  }),
});

builder.mutationFields((t) => ({
  createRequest: t.field({
    type: RequestType,
    description: 'Asks for files, and charges the quota for those that the catalogue knows.',
    errors: { types: takingErrors },
    args: { input: t.arg({ type: CreateRequestInput, required: true, description: 'What is asked for.' }) },
    resolve: async (_root, { input }, ctx) => readBack(getRequest(ctx, await createRequest(ctx, input))),
  }),
  updateRequest: t.field({
    type: RequestType,
    description: 'Changes what it is given; ends or revives the request by its retention.',
    errors: { types: [...takingErrors, WrongQuotaError, NotFoundError] },
    args: { input: t.arg({ type: UpdateRequestInput, required: true, description: 'What is changed, and to what.' }) },
    resolve: async (_root, { input }, ctx) => readBack(getRequest(ctx, await updateRequest(ctx, input))),
  }),
  cancelRequest: t.field({
    type: RequestType,
    description: 'Ends a request: its files are let go, and its charge is given back. A second time changes nothing.',
    errors: { types: [NotFoundError, ForbiddenError] },
    args: { id: t.arg.int({ required: true, description: 'The id that REST knows.' }) },
    resolve: async (_root, { id }, ctx) => readBack(getRequest(ctx, await cancelRequest(ctx, id))),
  }),
  setPriority: t.field({
    type: RequestType,
    description: 'Says which requests go first.',
    errors: { types: [InvalidInputError, NotFoundError, ForbiddenError] },
    args: {
      id: t.arg.int({ required: true, description: 'The id that REST knows.' }),
      priority: t.arg.int({ required: true, description: 'From -1000 to 1000; a greater one goes first.' }),
    },
    resolve: async (_root, input, ctx) => getRequest(ctx, await setPriority(ctx, input)),
  }),
  releaseFiles: t.field({
    type: RequestType,
    description:
      'Lets files of a request go before its end: their charge is given back, and they never join it again. ' +
      'Releasing them twice changes nothing; a request that has ended is refused.',
    errors: { types: [InvalidInputError, NotFoundError, ForbiddenError] },
    args: { input: t.arg({ type: ReleaseFilesInput, required: true, description: 'Which files.' }) },
    resolve: async (_root, { input }, ctx) => readBack(getRequest(ctx, await releaseFiles(ctx, input))),
  }),
  retryRequest: t.field({
    type: RequestType,
    description:
      'Has all files of a request that have failed tried again, with all their tries before them. ' +
      'A request without failed files is left as it is; one that has ended is refused.',
    errors: { types: [InvalidInputError, NotFoundError, UnknownUserError, WrongQuotaError, ForbiddenError] },
    args: { input: t.arg({ type: RetryRequestInput, required: true, description: 'Which request.' }) },
    resolve: async (_root, { input }, ctx) => readBack(getRequest(ctx, await retryRequest(ctx, input))),
  }),
}));
