/** Defines the GraphQL queries and mutations for requests. */

import { nameOfOwner } from '../../src/core/caller.js';
import { formatFiles, formatMissing } from '../../src/core/text/requested-files.js';
import { parseZonedTime } from '../../src/core/time.js';
import type { Context } from '../../src/domain/context.js';
import { checkPattern } from '../../src/domain/input.js';
import type { KeyPage, PageWish } from '../../src/domain/page-keys.js';
import { visibleQuotas } from '../../src/domain/policy.js';
import { keyOf, type RequestFileKey, readTries, type Tries } from '../../src/domain/recalls/queue.js';
import {
  countAtPrimaryPath,
  countFilesOf,
  countReleased,
  countUnresolved,
  countUnresolvedPaths,
  getRequest,
  listRequests,
  MAX_COUNTED,
  type RequestKey,
  type RequestOrder,
  type RequestWithQuota,
  readMountpoints,
  readRequestFiles,
  readUnresolved,
  type StateCount,
} from '../../src/domain/requests/rows.js';
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
  countedConnection,
  describeValues,
  nullable,
  pageComplexity,
  splitPair,
  textOrNull,
  time,
  timeOrNull,
} from './builder.js';
import { orNull } from './errors.js';
import { findRestoredPath, isAtPrimaryPath, selectsCommon, TapeFileType } from './files.js';
import { OrderDirectionType } from './orders.js';
import {
  createBatch,
  createCursors,
  isInt,
  MAX_INT,
  resolveCursorPage,
  resolveInnerPage,
  resolveRootPage,
} from './pages.js';

const requestStates: Record<RequestState, string> = {
  QUEUED: 'No recall has begun.',
  RESTORING: 'Recalls have begun, and some files are not on disk yet.',
  COMPLETED:
    'All files in the request are on disk. `filesUnknown` and `filesRefused` count requested files that are not in the request.',
  PARTIAL: 'The request has finished, but some files failed.',
  EXPIRED: 'The request has expired, and Tapegate has released its files.',
  CANCELLED: 'The request was cancelled before it expired.',
};

export const RequestStateType = builder.enumType('RequestState', {
  description: 'The state of a request.',
  values: describeValues(requestStates),
});
const [unresolvedCounts, releasedCounts] = [createBatch(countUnresolved), createBatch(countReleased)];
const [primaryCounts, mountpointsOf] = [createBatch(countAtPrimaryPath), createBatch(readMountpoints)];

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
  description:
    'A request to restore files: either all files whose path contains a pattern, or the files in a list of paths. The quota is charged for the files until the request ends.',
  fields: (t) => ({
    requestId: t.exposeInt('id', { description: "The request's id in the REST API and in operation arguments." }),
    state: t.expose('state', { type: RequestStateType, description: 'The current state.' }),
    pattern: t.string({
      ...nullable('The substring that all requested paths contain. Null for a request with a list of paths.'),
      resolve: ({ pattern }) => textOrNull(pattern),
    }),
    label: t.exposeString('label', { description: 'A name for the request, chosen by the user. May be empty.' }),
    createdAt: t.expose('requestDate', time('When the request was created.')),
    retention: t.expose('retention', time('When the request expires and releases its files.')),
    notifyOnFirstFile: t.exposeString(
      'notifyOnFirstFile',
      nullable('The email address to notify when the first file is on disk.'),
    ),
    notifyOnLastFile: t.exposeString(
      'notifyOnLastFile',
      nullable('The email address to notify when the request has finished.'),
    ),
    maxFiles: t.exposeInt('maxFiles', nullable('The maximum number of files in the request. Null means no limit.')),
    maxBytes: t.expose('maxBytes', bigIntOrNull('The maximum total file size in bytes. Null means no limit.')),
    recallsStartedAt: t.expose('tapestoreRequestStart', timeOrNull('When the first recall began.')),
    recallsEndedAt: t.expose('tapestoreRequestEnd', timeOrNull('When the last recall ended. Null until it ends.')),
    firstFileOnDiskAt: t.expose('firstFilesOnDisk', timeOrNull('When the first file was on disk.')),
    finishedAt: t.expose('lastFilesOnDisk', timeOrNull('When the request finished. Null until it finishes.')),
    restoredBelow: t.stringList({
      description:
        "The mount points of the restore disks for the request's files. Each file's path on disk is one of these mount points followed by the file's logical path. Empty if a file was renamed: use each file's `pathOnDisk` instead.",
      resolve: async ({ id }, _args, ctx) => (await mountpointsOf(ctx, id)) ?? [],
    }),
    filesTotal: t.exposeInt('filesTotal', {
      description: 'The number of files in the request, excluding released files.',
    }),
    filesOnDisk: t.exposeInt('filesOnDisk', { description: 'The number of files in the request that are on disk.' }),
    filesFailed: t.exposeInt('filesFailed', { description: 'The number of files in the request that failed.' }),
    bytesTotal: t.expose('bytesTotal', bigInt('The total size in bytes of the files in the request.')),
    bytesOnDisk: t.expose('bytesOnDisk', bigInt("The total size in bytes of the request's files on disk.")),
    filesUnknown: t.int({
      description: 'The number of requested paths that the catalogue does not contain.',
      resolve: async ({ id }, _args, ctx) => (await unresolvedCounts(ctx, id))?.unknown ?? 0,
    }),
    filesRefused: t.int({
      description: 'The number of files that did not fit into the quota when they were added to the catalogue.',
      resolve: async ({ id }, _args, ctx) => (await unresolvedCounts(ctx, id))?.refused ?? 0,
    }),
    summary: t.string({
      description: "A summary of the request's progress, such as `18 of 20 files; 2 unresolved paths`.",
      resolve: async (request, _args, ctx) => summarize(request, await unresolvedCounts(ctx, request.id)),
    }),
    filesOverLimit: t.int({
      description: "The number of files that exceeded the request's limits when they were added to the catalogue.",
      resolve: async ({ id }, _args, ctx) => (await unresolvedCounts(ctx, id))?.overLimit ?? 0,
    }),
    hasMoreExcluded: t.boolean({
      description:
        "Whether the request excludes further files that `filesRefused` and `filesOverLimit` do not count. Tapegate adds these files when they fit into the quota and the request's limits.",
      // an `excludedSize` of 0 means that the size is unknown
      resolve: ({ excludedSize }) => excludedSize !== null && excludedSize > 0,
    }),
    filesAtPrimaryPath: t.int({
      description:
        'The number of files in the request that are on disk at the path from which they were archived, instead of on a restore disk.',
      resolve: async ({ id }, _args, ctx) => (await primaryCounts(ctx, id)) ?? 0,
    }),
    filesReleased: t.int({
      description:
        'The number of files that were released before the request ended. The other counts exclude these files.',
      resolve: async ({ id }, _args, ctx) => (await releasedCounts(ctx, id)) ?? 0,
    }),
    priority: t.exposeInt('priority', {
      description: 'The priority. Files of requests with a higher priority are recalled first. Default 0.',
    }),
  }),
});

export const RequestConnection = countedConnection(RequestType, 'Request');

const RequestOrderFieldType = builder.enumType('RequestOrderField', {
  description: 'A field by which requests can be ordered.',
  values: {
    CREATED_AT: { value: 'requestDate', description: 'The time at which the request was created.' },
    RETENTION: { value: 'retention', description: 'The time at which the request expires.' },
    STATE: { value: 'state', description: 'The state, in the order of the values of `RequestState`.' },
    LABEL: { value: 'label', description: 'The label.' },
    BYTES: { value: 'bytesTotal', description: 'The total size of the files in the request.' },
    FILES: { value: 'filesTotal', description: 'The number of files in the request.' },
  } as const,
});

const RequestOrderInput = builder.inputType('RequestOrder', {
  description: 'An order of requests.',
  fields: (t) => ({
    field: t.field({ type: RequestOrderFieldType, required: true, description: 'The field to order by.' }),
    direction: t.field({ type: OrderDirectionType, required: true, description: 'The direction.' }),
  }),
});

/** Cursors are valid only for the order in which they were returned. */
const requestCursors = ({ field, direction }: RequestOrder) =>
  createCursors<RequestKey>(`request-${field}-${direction}`, {
    format: ({ value, id }) => `${id}:${value}`,
    parse: (text) => {
      const [, id, value = ''] = /^(\d{1,10}):([^\0]*)$/s.exec(text) ?? [];
      return Number(id) <= MAX_INT && isOrderValue(field, value) ? { value, id: Number(id) } : undefined;
    },
  });

function isOrderValue(field: RequestOrder['field'], value: string): boolean {
  if (field === 'label') return true;
  if (field === 'filesTotal') return /^\d{1,10}$/.test(value) && Number(value) <= MAX_INT;
  if (field === 'bytesTotal') return /^\d{1,19}$/.test(value) && BigInt(value) < 2n ** 63n;
  return field === 'state' ? Object.hasOwn(requestStates, value) : parseZonedTime(value) !== undefined;
}

const RequestCountType = builder.objectRef<StateCount>('RequestCount').implement({
  description: 'The number of requests in one state.',
  fields: (t) => ({
    state: t.expose('state', { type: RequestStateType, description: 'The state.' }),
    count: t.exposeInt('count', {
      description: `The number of requests. For EXPIRED and CANCELLED, the count stops at ${MAX_COUNTED.toLocaleString('en')}.`,
    }),
  }),
});

builder.queryFields((t) => ({
  request: t.field({
    type: RequestType,
    nullable: true,
    description:
      'Returns the request with the given id, even if the request has ended. Returns null if the request does not exist.',
    args: { requestId: t.arg.int({ required: true, description: "The request's id." }) },
    resolve: (_root, { requestId }, ctx) => orNull(getRequest(ctx, requestId)),
  }),
  requestCounts: t.field({
    type: [RequestCountType],
    nullable: true,
    complexity: { field: 100 },
    description: 'Returns the number of requests in each state, with the filters of `requests`.',
    args: {
      quota: t.arg.string({ description: "Filters by the quota's user." }),
      match: t.arg.string({
        description:
          'A plain, case-sensitive substring of the label, of the pattern, or of the path of a file in the request.',
      }),
    },
    resolve: (_root, args, ctx) => listRequests(ctx, args, ctx.reader).countStates(),
  }),
  requests: t.connection(
    {
      type: RequestType,
      nullable: true,
      description:
        'Returns requests, by default newest first. Excludes ended requests unless `states` contains EXPIRED or CANCELLED.',
      complexity: pageComplexity,
      args: {
        quota: t.arg.string({ description: "Filters by the quota's user." }),
        states: t.arg({
          type: [RequestStateType],
          description: 'Filters by state. Default: all states except EXPIRED and CANCELLED.',
        }),
        match: t.arg.string({
          description:
            'A plain, case-sensitive substring of the label, of the pattern, or of the path of a file in the request.',
        }),
        since: t.arg(time('Returns only requests that were created at or after this time.')),
        until: t.arg(time('Returns only requests that were created before this time.')),
        orderBy: t.arg({ type: RequestOrderInput, description: 'The order. Default: newest first.' }),
      },
      resolve: async (_root, { orderBy, ...args }, ctx) => {
        const { page, orderedPage, count } = listRequests(ctx, args, ctx.reader);
        const found = orderBy
          ? await resolveCursorPage(args, requestCursors(orderBy), {
              keyOf: (row: RequestWithQuota) => ({ value: String(row[orderBy.field]), id: row.id }),
              find: (at: KeyPage<RequestKey>) => orderedPage(orderBy, at),
            })
          : await resolveRootPage(args, { name: 'id', isKey: isInt }, (at) => page({ ...at, descending: true }));
        return { ...found, totalCount: count };
      },
    },
    RequestConnection,
  ),
}));

const RequestFileStateType = builder.enumType('RequestFileState', {
  description: 'The state of a file in a request.',
  values: describeValues<RequestFileState>({
    WAITING: 'Not on disk yet.',
    ON_DISK: 'On disk.',
    FAILED: 'Failed permanently.',
    RELEASED: 'Released before the request ended.',
  }),
});
export const ErrorClassType = builder.enumType('ErrorClass', {
  description: 'The error class, which determines whether and when Tapegate retries the recall of the file.',
  values: describeValues<ErrorClass>({
    TRANSIENT: 'A temporary error.',
    PERMANENT: 'An error that retries cannot fix.',
    MEDIA: 'An error on the cartridge.',
    SPACE: 'The restore disks or the library have no room for the file.',
    POLICY: 'Rejected by a site rule.',
  }),
});
const UnresolvedReasonType = builder.enumType('UnresolvedReason', {
  description: 'Why the file with a requested path is not in the request.',
  values: describeValues<UnresolvedReason>({
    UNKNOWN: 'The catalogue does not contain the path.',
    QUOTA_FULL: 'The file did not fit into the quota when it was added to the catalogue.',
    LIMIT: "The file exceeded the request's limits when it was added to the catalogue.",
  }),
});

export const RequestFileType = builder.prismaNode('RequestFile', {
  id: { resolve: ({ requestId, fileId }) => `${requestId}/${fileId}` },
  findUnique: (id, ctx) => {
    const [requestId, fileId] = splitPair(id);
    const key = { requestId: Number(requestId), fileId: BigInt(fileId) };
    return { requestId_fileId: key, request: { quota: visibleQuotas(ctx) } };
  },
  nullable: true,
  include: { file: true },
  description: 'A file in a request, with its own state.',
  fields: (t) => ({
    file: t.field({ type: TapeFileType, description: 'The file.', resolve: ({ file }) => file }),
    size: t.expose('size', bigInt('The number of bytes that the quota is charged for the file.')),
    state: t.expose('state', { type: RequestFileStateType, description: "The file's state in the request." }),
    errorClass: t.expose('errorClass', {
      type: ErrorClassType,
      nullable: true,
      description: 'The error class. Null if the file has not failed.',
    }),
    error: t.exposeString('error', nullable('The error message. Null if the file has not failed.')),
    pathOnDisk: t.string({
      ...nullable(
        'The path of the file on disk. Null if the file is not on disk, or if its disk is failing or not mounted.',
      ),
      resolve: async ({ file }, _args, ctx) => (isAtPrimaryPath(file) ? file.path : await findRestoredPath(ctx, file)),
    }),
  }),
});

export const RequestFileConnection = countedConnection(RequestFileType, 'RequestFile');

const UnresolvedPathType = builder.prismaObject('UnresolvedPath', {
  description: 'A requested path whose file is not in the request. The field `reason` shows why.',
  fields: (t) => ({
    path: t.exposeString('path', { description: 'The logical path.' }),
    reason: t.expose('reason', {
      type: UnresolvedReasonType,
      description: 'Why the file with this path is not in the request.',
    }),
  }),
});

const readCommonRequestFiles = (ctx: Context, ids: readonly number[], wish: PageWish) =>
  readRequestFiles(ctx, ids, wish, { isCommon: true });

builder.prismaObjectFields('Request', (t) => ({
  createdBy: t.string({
    ...nullable('The name of the caller that created the request. Null if unknown.'),
    resolve: ({ madeBy }) => nameOfOwner(madeBy),
  }),
  files: t.connection(
    {
      type: RequestFileType,
      complexity: pageComplexity,
      description: 'The files in the request, in the order in which they were added.',
      args: {
        states: t.arg({
          type: [RequestFileStateType],
          description: 'Filters by state. Default: all states.',
        }),
        match: t.arg.string({ description: 'A plain, case-sensitive substring of the path.' }),
      },
      resolve: ({ id }, args, ctx, info) => {
        const isCommon = selectsCommon(info, 'edges', 'node', 'file');
        const read = isCommon ? readCommonRequestFiles : readRequestFiles;
        const match = args.match && checkPattern('match', args.match);
        return resolveInnerPage({ ctx, info, parentId: id }, { read, count: countFilesOf }, { ...args, match });
      },
    },
    RequestFileConnection,
  ),
  unresolved: t.connection(
    {
      type: UnresolvedPathType,
      description:
        'The requested paths whose files are not in the request, in the order in which the paths were added to the request.',
      complexity: pageComplexity,
      resolve: ({ id }, args, ctx, info) =>
        resolveInnerPage({ ctx, info, parentId: id }, { read: readUnresolved, count: countUnresolvedPaths }, args),
    },
    countedConnection(UnresolvedPathType, 'UnresolvedPath'),
  ),
}));

export const RecallStateType = builder.enumType('RecallState', {
  description: 'The state of a recall.',
  values: describeValues<RecallState>({
    WAITING: 'Waiting for the first attempt or for a retry.',
    RUNNING: 'A drive is reading the file.',
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
    description: "The state of the file's recall. Null if the file does not wait for a recall.",
    resolve: async (requestFile, _args, ctx) => (await triesOf(ctx, requestFile))?.state ?? null,
  }),
  attempts: t.int({
    ...nullable('The number of failed attempts. Null if the file does not wait for a recall.'),
    resolve: async (requestFile, _args, ctx) => (await triesOf(ctx, requestFile))?.attempts ?? null,
  }),
  lastErrorClass: t.field({
    type: ErrorClassType,
    nullable: true,
    description: 'The class of the last error. Null if there was no error.',
    resolve: async (requestFile, _args, ctx) =>
      requestFile.errorClass ?? (await triesOf(ctx, requestFile))?.errorClass ?? null,
  }),
  lastError: t.string({
    ...nullable(
      'The last error, or the reason for which the next attempt is delayed. Null if there is neither an error nor a delay.',
    ),
    resolve: async (requestFile, _args, ctx) => requestFile.error ?? (await triesOf(ctx, requestFile))?.error ?? null,
  }),
  nextTryAt: t.field({
    ...timeOrNull(
      'The earliest time of the next attempt. Null if the next attempt may begin now, if an attempt is running, or if there will be no further attempt.',
    ),
    resolve: async (requestFile, _args, ctx) => (await triesOf(ctx, requestFile))?.nextTry ?? null,
  }),
}));
