/** Defines the GraphQL mutations for requests. */
import {
  ForbiddenError,
  InvalidInputError,
  LimitReachedError,
  NotFoundError,
  QuotaExceededError,
  UnknownUserError,
  WrongQuotaError,
} from '../../src/core/errors.js';
import { createDownload } from '../../src/domain/disks/downloads.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { cancelRequest, releaseFiles } from '../../src/domain/requests/ends.js';
import { getRequest } from '../../src/domain/requests/rows.js';
import { retryRequest, setRequestPriority, updateRequest } from '../../src/domain/requests/update.js';
import { bigInt, bigIntOrNull, builder, time, timeOrNull } from './builder.js';
import { readBack, withFieldNames } from './errors.js';
import { defineMutation, resultOf } from './payloads.js';
import { RequestType } from './requests.js';

export const CreateRequestInput = builder.inputType('CreateRequestInput', {
  description: 'Input of `createRequest`. Requires exactly one of `pattern` and `files`.',
  fields: (t) => ({
    quota: t.string({ required: true, description: 'The user whose quota is charged.' }),
    pattern: t.string({
      description:
        'A plain, case-sensitive substring. Requests all files whose path contains this substring, including files that are added to the catalogue later.',
    }),
    files: t.stringList({
      description: 'The logical paths of the requested files. The catalogue does not have to contain these paths yet.',
    }),
    retention: t.field(time('When the request expires and releases its files. Default: in five days.')),
    label: t.string({ description: 'A name for the request. Default: the pattern or the first path.' }),
    maxFiles: t.int({
      description:
        'The maximum number of files in the request. The mutation fails if the catalogue already contains more requested files than this. If requested files are added to the catalogue later, Tapegate adds them to the request only up to the maximum.',
    }),
    maxBytes: t.field(
      bigInt(
        'The maximum total size in bytes of the files in the request. The mutation fails if the requested files in the catalogue already have a larger total size. If requested files are added to the catalogue later, Tapegate adds them to the request only up to the maximum.',
      ),
    ),
    notifyOnFirstFile: t.string({
      description:
        "The email address to notify when the first file is on disk. An empty string means the quota's email address.",
    }),
    notifyOnLastFile: t.string({
      description:
        "The email address to notify when the request has finished. An empty string means the quota's email address.",
    }),
    idempotencyKey: t.string({
      description:
        'A key that makes it safe to repeat the mutation: 1 to 255 visible ASCII characters, for example a random UUID. For 24 hours, a call with the same key and input returns the request that the first call created, and changes nothing. A call with the same key and another input fails. If the first call failed, its key is not stored. `estimateRequest` ignores the key.',
    }),
  }),
});

const UpdateRequestInput = builder.inputType('UpdateRequestInput', {
  description: 'Input of `updateRequest`. Omitted fields stay unchanged.',
  fields: (t) => ({
    requestId: t.int({ required: true, description: "The request's id." }),
    expectedQuota: t.string({
      description:
        'The user whose quota the request must belong to. If the request belongs to another quota, the mutation fails.',
    }),
    retention: t.field(
      time('The new expiry time. A time in the past ends the request. A time in the future revives an ended request.'),
    ),
    label: t.string({ description: 'The new label.' }),
    maxFiles: t.int({
      description:
        'The new maximum number of files in the request. Null removes the limit. If the limit is raised, Tapegate can add files that exceeded the previous limit.',
    }),
    maxBytes: t.field(
      bigInt(
        'The new maximum total size in bytes of the files in the request. Null removes the limit. If the limit is raised, Tapegate can add files that exceeded the previous limit.',
      ),
    ),
    notifyOnFirstFile: t.string({
      description:
        "The email address to notify when the first file is on disk. Null means no email. An empty string means the quota's email address.",
    }),
    notifyOnLastFile: t.string({
      description:
        "The email address to notify when the request has finished. Null means no email. An empty string means the quota's email address.",
    }),
  }),
});

const takingErrors = [InvalidInputError, UnknownUserError, QuotaExceededError, LimitReachedError, ForbiddenError];

const ReleaseFilesInput = builder.inputType('ReleaseFilesInput', {
  description: 'Input of `releaseFiles`. Requires exactly one of `paths` and `match`.',
  fields: (t) => ({
    requestId: t.int({ required: true, description: "The request's id." }),
    paths: t.stringList({
      description:
        'The logical paths to release: paths of files in the request, or requested paths that the catalogue does not contain.',
    }),
    match: t.string({
      description: 'A plain, case-sensitive substring. Releases all paths of the request that contain this substring.',
    }),
  }),
});

const RetryRequestInput = builder.inputType('RetryRequestInput', {
  description: 'Input of `retryRequest`.',
  fields: (t) => ({
    requestId: t.int({ required: true, description: "The request's id." }),
    paths: t.stringList({
      description:
        'The logical paths of the files to retry. All of them must be in the request. Files that have not failed stay unchanged. Default: all failed files.',
    }),
    expectedQuota: t.string({
      description:
        'The user whose quota the request must belong to. If the request belongs to another quota, the mutation fails.',
    }),
  }),
});

defineMutation('createRequest', {
  description: 'Creates a request, and charges the quota for the requested files that the catalogue contains.',
  errors: takingErrors,
  resolve: async (input, ctx) => readBack(getRequest(ctx, await createRequest(ctx, input))),
  input: CreateRequestInput,
  result: (t) => ({
    request: t.field({ type: RequestType, nullable: true, description: 'The new request.', resolve: resultOf }),
  }),
});

defineMutation('updateRequest', {
  description: 'Changes a request. A new expiry time can end or revive the request.',
  errors: [...takingErrors, WrongQuotaError, NotFoundError],
  resolve: async ({ requestId: id, expectedQuota: quota, ...input }, ctx) => {
    const updated = await withFieldNames(updateRequest(ctx, { id, quota, ...input }), { quota: 'expectedQuota' });
    return await readBack(getRequest(ctx, updated));
  },
  input: UpdateRequestInput,
  result: (t) => ({
    request: t.field({ type: RequestType, nullable: true, description: 'The changed request.', resolve: resultOf }),
  }),
});

const CancelRequestInput = builder.inputType('CancelRequestInput', {
  description: 'Input of `cancelRequest`.',
  fields: (t) => ({ requestId: t.int({ required: true, description: "The request's id." }) }),
});

defineMutation('cancelRequest', {
  description:
    'Cancels a request and releases its files. The quota is no longer charged for the files. Cancelling a request twice changes nothing.',
  errors: [NotFoundError, ForbiddenError],
  resolve: async ({ requestId }, ctx) => readBack(getRequest(ctx, await cancelRequest(ctx, requestId))),
  input: CancelRequestInput,
  result: (t) => ({
    request: t.field({ type: RequestType, nullable: true, description: 'The cancelled request.', resolve: resultOf }),
  }),
});

const SetRequestPriorityInput = builder.inputType('SetRequestPriorityInput', {
  description: 'Input of `setRequestPriority`.',
  fields: (t) => ({
    requestId: t.int({ required: true, description: "The request's id." }),
    priority: t.int({
      required: true,
      description: 'The priority, from -1000 to 1000. Files of requests with a higher priority are recalled first.',
    }),
  }),
});

defineMutation('setRequestPriority', {
  description: 'Sets the priority of a request.',
  errors: [InvalidInputError, NotFoundError, ForbiddenError],
  resolve: async ({ requestId: id, priority }, ctx) => getRequest(ctx, await setRequestPriority(ctx, { id, priority })),
  input: SetRequestPriorityInput,
  result: (t) => ({
    request: t.field({ type: RequestType, nullable: true, description: 'The changed request.', resolve: resultOf }),
  }),
});

defineMutation('releaseFiles', {
  description:
    'Releases files before their request ends. The quota is no longer charged for the files, and Tapegate does not add them to the request again. Releasing a file twice changes nothing. Fails if the request has ended.',
  errors: [InvalidInputError, NotFoundError, ForbiddenError],
  resolve: async ({ requestId: id, ...input }, ctx) =>
    readBack(getRequest(ctx, await releaseFiles(ctx, { id, ...input }))),
  input: ReleaseFilesInput,
  result: (t) => ({
    request: t.field({ type: RequestType, nullable: true, description: 'The changed request.', resolve: resultOf }),
  }),
});

defineMutation('retryRequest', {
  description:
    'Retries the recalls of failed files in a request: all of them, or those in `paths`. Each file gets the full number of attempts again. Changes nothing if no file has failed. Fails if the request has ended.',
  errors: [InvalidInputError, NotFoundError, UnknownUserError, WrongQuotaError, ForbiddenError],
  resolve: async ({ requestId: id, expectedQuota: quota, paths }, ctx) => {
    const retried = await withFieldNames(retryRequest(ctx, { id, quota, paths }), { quota: 'expectedQuota' });
    return await readBack(getRequest(ctx, retried));
  },
  input: RetryRequestInput,
  result: (t) => ({
    request: t.field({ type: RequestType, nullable: true, description: 'The request.', resolve: resultOf }),
  }),
});

const CreateDownloadInput = builder.inputType('CreateDownloadInput', {
  description: 'Input of `createDownload`.',
  fields: (t) => ({
    requestId: t.int({ required: true, description: "The request's id." }),
    paths: t.stringList({
      description:
        'The logical paths of the files to download. All of them must be on disk for the request. At most 10,000. Default: all files of the request that are on disk and can be downloaded.',
    }),
  }),
});

defineMutation('createDownload', {
  description:
    'Creates a link that downloads files of a request as one zip archive. The link needs no token, works once, and must be used within a minute. The gateway checks access again when the link is used.',
  errors: [InvalidInputError, NotFoundError, ForbiddenError],
  resolve: (input, ctx) => createDownload(ctx, input),
  input: CreateDownloadInput,
  result: (t) => ({
    downloadPath: t.string({
      nullable: true,
      description: 'The URL path from which the gateway serves the archive. The path contains a secret.',
      resolve: ({ value }) => value && `/downloads/${value.secret}`,
    }),
    fileCount: t.int({
      nullable: true,
      description: 'The number of files in the archive.',
      resolve: ({ value }) => value?.fileCount ?? null,
    }),
    skippedCount: t.int({
      nullable: true,
      description:
        'The number of files that the archive omits although they are on disk, for example because they were changed on disk. Zero if the input has `paths`.',
      resolve: ({ value }) => value?.skippedCount ?? null,
    }),
    bytes: t.field({
      ...bigIntOrNull('The total size of the files in bytes.'),
      resolve: ({ value }) => value?.bytes ?? null,
    }),
    expiresAt: t.field({
      ...timeOrNull('The time until which the download must start.'),
      resolve: ({ value }) => value?.expiresAt ?? null,
    }),
  }),
});
