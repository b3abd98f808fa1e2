/**
 * Defines the GraphQL types for the restore plan: drives, the volume queue, and requests' positions and estimated end
 * times.
 */
import { cancellable } from '../../src/core/cancellable.js';
import { ForbiddenError, InvalidInputError, UnknownUserError } from '../../src/core/errors.js';
import { mediumNameOf } from '../../src/core/medium-names.js';
import { timeOf } from '../../src/core/time.js';
import { type Estimate, estimateRequest, type LibraryPrice, type Price } from '../../src/domain/plan/estimate.js';
import { type Plan, type PlanDrive, type PlanUser, type PlanVolume, showPlan } from '../../src/domain/plan/plan.js';
import {
  type EndRange,
  readWaiting,
  type Waiting,
  type WaitingPart,
  waitingReasons,
} from '../../src/domain/plan/waiting.js';
import { readDriveUsers } from '../../src/domain/recalls/drives.js';
import { getRequest } from '../../src/domain/requests/rows.js';
import { type RequestEnd, watchEnd } from '../../src/domain/watching/end-watch.js';
import {
  bigInt,
  builder,
  countedConnection,
  describeValues,
  nullable,
  pageComplexity,
  textOrNull,
  time,
  timeOrNull,
} from './builder.js';
import { orNull } from './errors.js';
import { createBatch, pageOf } from './pages.js';
import { defineOutcome, resultOf, settle } from './payloads.js';
import { CreateRequestInput } from './request-changes.js';
import { RequestType } from './requests.js';
import { driveSuspension, librarySuspension, ModeType, SuspensionType } from './suspensions.js';
import { MediumType } from './tapes.js';

/** Query cost of the plan. The cost is high, because Tapegate reads the whole queue to compute a plan. */
export const PLAN_COMPLEXITY = 500;

export const formatTime = (seconds: number | null) => (seconds === null ? null : timeOf(seconds));

export const EndRangeType = builder.objectRef<EndRange>('EndRange').implement({
  description:
    'An estimate of when a request will finish. The estimate does not consider possible failures or later requests.',
  fields: (t) => ({
    at: t.field({ ...time('When the estimate was made.'), resolve: (range) => timeOf(range.at) }),
    earliest: t.field({
      ...time(
        "The earliest time at which the request is likely to finish. This time assumes that drives read only this request's files, and that staging libraries deliver files at the highest speed recorded so far.",
      ),
      resolve: (range) => timeOf(range.earliest),
    }),
    planned: t.field({
      ...time(
        'The time at which the request is planned to finish. This time assumes that drives follow the plan for the current queue, and that staging libraries take the usual time to deliver files.',
      ),
      resolve: (range) => timeOf(range.planned),
    }),
    latest: t.field({
      ...time(
        'The latest time at which the request is likely to finish. If speeds were measured, and few later requests arrive, four of five requests finish between `earliest` and this time.',
      ),
      resolve: (range) => timeOf(range.latest),
    }),
    isMeasured: t.exposeBoolean('isMeasured', {
      description:
        "Whether the estimate uses speeds that were measured at this site. Otherwise, it uses the media's nominal speeds, and may be far off.",
    }),
  }),
});

const END_UNKNOWN =
  'Why Tapegate cannot estimate when the request will finish. Null if Tapegate has an estimate, or if the reason is unknown.';

const usersOfDrive = createBatch(readDriveUsers);

const PlanDriveType = builder.objectRef<PlanDrive>('PlanDrive').implement({
  description: 'The current state of a drive.',
  fields: (t) => ({
    name: t.exposeString('name', { description: "The drive's name, such as `drive-1`." }),
    isClaimed: t.exposeBoolean('isClaimed', { description: 'Whether a running engine has claimed the drive.' }),
    host: t.exposeString(
      'host',
      nullable('The host of the engine that has claimed the drive. For viewers and operators.'),
    ),
    libraryName: t.exposeString('library', { description: "The library's name." }),
    isOpen: t.exposeBoolean('isOpen', {
      description: 'Whether the drive is in service, that is, neither the drive nor its library is suspended.',
    }),
    suspensionMode: t.expose('suspensionMode', {
      type: ModeType,
      nullable: true,
      description: 'How the drive or its library is suspended. Null if both are in service.',
    }),
    hasLibraryFailed: t.exposeBoolean('hasLibraryFailed', {
      description: "Whether the library has failed. The drive's engine will try a failed library again later.",
    }),
    volumeName: t.exposeString('volume', nullable('The mounted volume. Null if no volume is mounted.')),
    filesRunning: t.exposeInt('filesRunning', { description: 'The number of files that the drive is reading.' }),
    bytesRunning: t.expose('bytesRunning', bigInt('The total size in bytes of the files that the drive is reading.')),
    bytesPerSecond: t.exposeFloat(
      'rate',
      nullable(
        'The recent read rate in bytes per second. Null if no engine has claimed the drive, or if the version of the engine is too old to report a rate.',
      ),
    ),
    users: t.stringList({
      description:
        'Users for whom the drive is reading files, in alphabetical order. At most 10. Only users that the caller may see.',
      resolve: async ({ name }, _args, ctx) => (await usersOfDrive(ctx, name)) ?? [],
    }),
    suspension: t.field({
      type: SuspensionType,
      nullable: true,
      description: 'The suspension of the drive, or else of its library. Null if both are in service.',
      resolve: async ({ name, library }, _args, ctx) =>
        (await driveSuspension(ctx, name)) ?? (await librarySuspension(ctx, library)) ?? null,
    }),
  }),
});

const PlanUserType = builder.objectRef<PlanUser>('PlanUser').implement({
  description: 'The files on a volume that one user is waiting for.',
  fields: (t) => ({
    user: t.exposeString('user', { description: "The user's name." }),
    fileCount: t.exposeInt('files', { description: 'The number of files.' }),
    bytes: t.expose('bytes', bigInt("The total size in bytes of the user's waiting files.")),
    oldestAt: t.expose('oldest', time("When the user's longest-waiting file was requested.")),
    priority: t.exposeInt('priority', { description: "The highest priority of the user's waiting files." }),
  }),
});

const PlanVolumeType = builder.objectRef<PlanVolume>('PlanVolume').implement({
  description: 'A volume with files to recall.',
  fields: (t) => ({
    queuePosition: t.exposeInt(
      'queuePosition',
      nullable("The volume's position in the queue, counted from 1. Null if no drive can mount the volume."),
    ),
    volumeName: t.exposeString('volume', { description: "The volume's name." }),
    libraryName: t.exposeString('library', { description: "The library's name." }),
    medium: t.field({
      type: MediumType,
      description: 'The cost model with which the planner estimates mount and read times of the volume.',
      resolve: ({ medium }) => mediumNameOf(medium),
    }),
    fileCount: t.exposeInt('files', { description: 'The number of waiting files.' }),
    bytes: t.expose('bytes', bigInt('The total size in bytes of the waiting files.')),
    users: t.expose('users', {
      type: [PlanUserType],
      description: 'The users who are waiting for files on the volume.',
    }),
    driveName: t.exposeString(
      'drive',
      nullable('The drive that has mounted the volume, or will mount it first. Null if no drive can mount it.'),
    ),
    isMounted: t.exposeBoolean('isMounted', { description: 'Whether a drive has mounted the volume.' }),
    reason: t.exposeString('reason', nullable('Why the volume has this position in the queue. May be null.')),
    problem: t.exposeString(
      'problem',
      nullable('Why drives temporarily skip the volume. Null if drives do not skip the volume.'),
    ),
    nextTryAt: t.expose('nextTry', timeOrNull('When engines will try a failed library again. Null if unknown.')),
    startsAt: t.field({
      ...timeOrNull('The planned time of the mount. Null if no drive can mount the volume.'),
      resolve: (volume) => formatTime(volume.start),
    }),
    endsAt: t.field({
      ...timeOrNull(
        'The planned time at which a drive finishes reading the last file. Null if no drive can mount the volume.',
      ),
      resolve: (volume) => formatTime(volume.end),
    }),
  }),
});

const PlanType = builder.objectRef<Plan>('Plan').implement({
  description: 'The current and planned work of the drives. The plan follows the rules by which drives choose volumes.',
  fields: (t) => ({
    at: t.field({ ...time('When the plan was made.'), resolve: (plan) => timeOf(plan.now) }),
    drives: t.expose('drives', { type: [PlanDriveType], description: 'All drives at the site.' }),
    filesWaiting: t.int({
      description: 'The number of waiting files on all volumes.',
      resolve: (plan) => plan.volumes.reduce((sum, volume) => sum + volume.files, 0),
    }),
    bytesWaiting: t.field({
      ...bigInt('The total size in bytes of all waiting files.'),
      resolve: (plan) => plan.volumes.reduce((sum, volume) => sum + volume.bytes, 0n),
    }),
    queue: t.connection(
      {
        type: PlanVolumeType,
        description: 'The volumes with files to recall, in the order in which drives are planned to mount them.',
        complexity: pageComplexity,
        resolve: (plan, args) => pageOf(args, plan.volumes, ({ start, volume }) => [start, volume]),
      },
      countedConnection(PlanVolumeType, 'PlanVolume'),
    ),
  }),
});

const WaitingReasonType = builder.enumType('WaitingReason', {
  description: 'A reason why files are waiting.',
  values: describeValues<keyof typeof waitingReasons>(waitingReasons),
});

const WaitingPartType = builder.objectRef<WaitingPart>('WaitingPart').implement({
  description: 'Files of one request that are on the same volume and are waiting for the same reason.',
  fields: (t) => ({
    volumeName: t.exposeString(
      'volume',
      nullable("The volume's name. Null if the catalogue does not contain the volume of the files."),
    ),
    queuePosition: t.exposeInt(
      'queuePosition',
      nullable("The volume's position in the queue, counted from 1. Null if the volume is not in the queue."),
    ),
    reason: t.expose('reason', { type: WaitingReasonType, description: 'Why the files are waiting.' }),
    explanation: t.exposeString('explanation', {
      description: "A description of the reason. The description may include an operator's note or the last error.",
    }),
    fileCount: t.exposeInt('files', { description: 'The number of files.' }),
    bytes: t.expose('bytes', bigInt('The total size in bytes of the files.')),
    nextTryAt: t.expose('nextTry', timeOrNull('The earliest time of the next attempt. Null if the time is unknown.')),
  }),
});

export const WaitingType = builder.objectRef<Waiting>('Waiting').implement({
  description: 'The position of a request in the plan, and why its files are waiting.',
  fields: (t) => ({
    at: t.field({
      ...time('When the plan was read.'),
      resolve: (waiting) => timeOf(waiting.at),
    }),
    fileCount: t.exposeInt('files', { description: 'The number of waiting files.' }),
    bytes: t.expose('bytes', bigInt('The total size in bytes of the waiting files.')),
    queuePosition: t.exposeInt(
      'queuePosition',
      nullable(
        'The queue position, counted from 1, of the next volume from which the request needs files. Null if no such volume is in the queue.',
      ),
    ),
    parts: t.connection(
      {
        type: WaitingPartType,
        description: 'The waiting files, grouped by volume and reason, in queue order.',
        complexity: pageComplexity,
        resolve: (waiting, args) =>
          pageOf(args, waiting.parts, ({ queuePosition, volume, reason }) => [queuePosition, volume ?? '', reason]),
      },
      countedConnection(WaitingPartType, 'WaitingPart'),
    ),
    end: t.expose('end', {
      type: EndRangeType,
      nullable: true,
      description:
        "An estimate of when the request will finish. Null if Tapegate cannot estimate this time, for example because a volume is suspended, no restore disk has room, or no engine is running. Also null if an engine must first check a copy on disk, or if a staging library's delivery time is unknown.",
    }),
    endUnknown: t.exposeString('endUnknown', nullable(END_UNKNOWN)),
  }),
});

const waitingOf = createBatch(readWaiting);

builder.prismaObjectField('Request', 'waiting', (t) =>
  t.field({
    type: WaitingType,
    nullable: true,
    description: "The request's position in the plan, and why its files are waiting. Null if no file is waiting.",
    complexity: PLAN_COMPLEXITY,
    resolve: async ({ id }, _args, ctx) => (await waitingOf(ctx, id)) ?? null,
  }),
);

const RequestEndType = builder.objectRef<RequestEnd>('RequestEnd').implement({
  description: 'An estimate of when a request will finish.',
  fields: (t) => ({
    requestId: t.exposeInt('requestId', { description: "The request's id." }),
    request: t.field({
      type: RequestType,
      nullable: true,
      description: 'The request. Its fields can be newer than the other fields of the event.',
      resolve: ({ requestId }, _args, ctx) => orNull(getRequest(ctx, requestId)),
    }),
    at: t.expose('at', time('When the estimate was made.')),
    end: t.expose('end', {
      type: EndRangeType,
      nullable: true,
      description:
        'An estimate of when the request will finish. Null if no file is waiting, or if Tapegate cannot estimate this time, for example because a volume is suspended or no engine is running.',
    }),
  }),
});

builder.subscriptionFields((t) => ({
  requestEnd: t.field({
    type: RequestEndType,
    description:
      'Sends an estimate of when a request will finish. Sends a new estimate when the planned end is no longer between `earliest` and `latest` of the last estimate that was sent. Completes when the request has finished.',
    args: { requestId: t.arg.int({ required: true, description: "The request's id." }) },
    subscribe: (_root, { requestId }, ctx) => cancellable((signal) => watchEnd(ctx, requestId, signal)),
    resolve: (end) => end,
  }),
}));

const AMOUNT = 'The amount as a decimal number with two to six decimals, rounded up, such as `12.50`.';
const CURRENCY = "The currency in the library's settings, such as `EUR`.";

const PriceType = builder.objectRef<Price>('Price').implement({
  description: 'An amount of money.',
  fields: (t) => ({
    amount: t.exposeString('amount', { description: AMOUNT }),
    currency: t.exposeString('currency', { description: CURRENCY }),
  }),
});

const LibraryPriceType = builder.objectRef<LibraryPrice>('LibraryPrice').implement({
  description:
    "The amount of money that a library charges for a request, according to the library's settings. Files that are on the library's disk, or already requested from the library, cost nothing.",
  fields: (t) => ({
    libraryName: t.exposeString('library', { description: "The library's name." }),
    fileCount: t.exposeInt('files', { description: 'The number of files to request from the library.' }),
    bytes: t.expose('bytes', bigInt('The total size in bytes of the files to request from the library.')),
    amount: t.exposeString('amount', { description: AMOUNT }),
    currency: t.exposeString('currency', { description: CURRENCY }),
    note: t.string({
      ...nullable('A description of how the amount was computed.'),
      resolve: ({ note }) => textOrNull(note),
    }),
  }),
});

const EstimateType = builder.objectRef<Estimate>('Estimate').implement({
  description: 'An estimate of what a request would require.',
  fields: (t) => ({
    fileCount: t.exposeInt('files', { description: 'The number of requested files that the catalogue contains.' }),
    bytes: t.expose('bytes', bigInt('The total size in bytes of the requested files that the catalogue contains.')),
    filesUnknown: t.exposeInt('filesUnknown', {
      description: 'The number of requested paths that the catalogue does not contain.',
    }),
    unknownPaths: t.exposeStringList('unknownPaths', {
      description: 'The first 20 requested paths that the catalogue does not contain.',
    }),
    filesOnDisk: t.exposeInt('filesOnDisk', { description: 'The number of requested files that are already on disk.' }),
    bytesOnDisk: t.expose(
      'bytesOnDisk',
      bigInt('The total size in bytes of the requested files that are already on disk.'),
    ),
    filesAtPrimaryPath: t.exposeInt('filesAtPrimaryPath', {
      description:
        'The number of requested files that are on disk at the path from which they were archived, instead of on a restore disk.',
    }),
    bytesAtPrimaryPath: t.expose(
      'bytesAtPrimaryPath',
      bigInt(
        'The total size in bytes of the requested files that are on disk at the path from which they were archived.',
      ),
    ),
    filesOnTheirWay: t.exposeInt('filesOnTheirWay', {
      description: 'The number of requested files that are already being recalled for other requests.',
    }),
    filesAlsoRequested: t.exposeInt('filesAlsoRequested', {
      description:
        'The number of requested files that are also in other live requests of the same quota. The quota is charged for such a file once for each request.',
    }),
    bytesAlsoRequested: t.expose(
      'bytesAlsoRequested',
      bigInt('The total size in bytes of the requested files that are also in other live requests of the same quota.'),
    ),
    filesToRecall: t.exposeInt('filesToRecall', {
      description:
        'The number of files to recall from tape, including files that are already being recalled for other requests.',
    }),
    bytesToRecall: t.expose('bytesToRecall', bigInt('The total size in bytes of the files to recall.')),
    filesWithoutPlace: t.exposeInt('filesWithoutPlace', {
      description: 'The number of requested files whose volume is unknown. Recalls of these files would fail.',
    }),
    volumeCount: t.exposeInt('volumes', { description: 'The number of volumes that contain files to recall.' }),
    mountCount: t.exposeInt('mounts', { description: 'The number of volumes that drives must mount.' }),
    volumesSuspended: t.exposeInt('volumesSuspended', {
      description: 'The number of suspended volumes that contain files to recall.',
    }),
    hasRoom: t.exposeBoolean('hasRoom', {
      description:
        'Whether the restore disks in service have room for the files to recall. Considers how many bytes Tapegate may use on each disk.',
    }),
    prices: t.expose('prices', {
      type: [LibraryPriceType],
      description: 'The amount that each library would charge. Excludes libraries that charge nothing.',
    }),
    price: t.expose('price', {
      type: PriceType,
      nullable: true,
      description:
        'The total amount that the libraries would charge. Null if no library charges for the request, or if the libraries charge in different currencies.',
    }),
    end: t.expose('end', {
      type: EndRangeType,
      nullable: true,
      description:
        "An estimate of when the request will finish. Null if Tapegate cannot estimate this time, for example because a volume is suspended, no restore disk has room, no engine is running, or a staging library's delivery time is unknown.",
    }),
    endUnknown: t.exposeString('endUnknown', nullable(END_UNKNOWN)),
  }),
});

builder.objectFields(EstimateType, (t) => ({
  user: t.string({ description: 'The user whose quota would be charged.', resolve: ({ quota }) => quota.user }),
  quotaSize: t.field({ ...bigInt("The quota's size in bytes."), resolve: ({ quota }) => quota.size }),
  quotaUsed: t.field({
    ...bigInt('The number of bytes of the quota that are in use before the request is created.'),
    resolve: ({ quota }) => quota.used,
  }),
  quotaUsedAfter: t.field({
    ...bigInt('The number of bytes of the quota that would be in use after the request is created.'),
    resolve: ({ quota }) => quota.usedAfter,
  }),
  fitsQuota: t.exposeBoolean('isEnough', { description: 'Whether the files fit into the quota.' }),
}));

const EstimateRequestResult = defineOutcome<Estimate>(
  'EstimateRequestResult',
  'The result of `estimateRequest`.',
  (t) => ({
    estimate: t.field({ type: EstimateType, nullable: true, description: 'The estimate.', resolve: resultOf }),
  }),
);

builder.queryFields((t) => ({
  plan: t.field({
    type: PlanType,
    nullable: true,
    description: 'Returns the current plan.',
    complexity: PLAN_COMPLEXITY,
    resolve: (_root, _args, ctx) => showPlan(ctx),
  }),
  estimateRequest: t.field({
    type: EstimateRequestResult,
    nullable: true,
    description: 'Estimates the effect of `createRequest` with the same input. Stores nothing.',
    complexity: PLAN_COMPLEXITY,
    args: { input: t.arg({ type: CreateRequestInput, required: true, description: 'The request to estimate.' }) },
    resolve: (_root, { input }, ctx) =>
      settle([InvalidInputError, UnknownUserError, ForbiddenError], () => estimateRequest(ctx, input, ctx.reader)),
  }),
}));
