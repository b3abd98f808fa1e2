/** The plan: drives, the queue by volume, and where a request stands in it. */
import { cancellable } from '../../src/core/cancellable.js';
import { ForbiddenError, InvalidInputError, UnknownUserError } from '../../src/core/errors.js';
import { timeOf } from '../../src/core/time.js';
import { type Estimate, estimateRequest, type LibraryPrice, type Price } from '../../src/domain/plan/estimate.js';
import { type Plan, type PlanDrive, type PlanUser, type PlanVolume, showPlan } from '../../src/domain/plan/plan.js';
import {
  type EndRange,
  type RequestEnd,
  readWaiting,
  type Waiting,
  type WaitingPart,
  waitingReasons,
  watchEnd,
} from '../../src/domain/plan/waiting.js';
import { bigInt, builder, describeValues, nullable, pageComplexity, time, timeOrNull } from './builder.js';
import { createBatch, pageOf } from './pages.js';
import { CreateRequestInput } from './requests.js';

/** Reading the plan looks at the whole queue. */
const PLAN_COMPLEXITY = 500;

const formatTime = (seconds: number | null) => (seconds === null ? null : timeOf(seconds));

const EndRangeType = builder.objectRef<EndRange>('EndRange').implement({
  description: 'When it may be done. The cost model knows neither what breaks nor who comes next.',
  fields: (t) => ({
    earliest: t.field({
      ...time('If the drives did nothing else, and libraries that stage files were as quick as they can be.'),
      resolve: (range) => timeOf(range.earliest),
    }),
    planned: t.field({
      ...time('By the plan, with the queue as it is, and what files have taken at libraries that stage them.'),
      resolve: (range) => timeOf(range.planned),
    }),
    latest: t.field({
      ...time('What nine of ten requests keep when many ask at once, with all that comes after them.'),
      resolve: (range) => timeOf(range.latest),
    }),
  }),
});

const END_UNKNOWN =
  'Why no end can be told, for people, where that is because of a library that stages files; null: for another reason, or it is told.';

const PlanDriveType = builder.objectRef<PlanDrive>('PlanDrive').implement({
  description: 'What a drive does just now.',
  fields: (t) => ({
    name: t.exposeString('name', { description: 'As the engine calls it.' }),
    isClaimed: t.exposeBoolean('isClaimed', { description: 'An engine that lives holds it.' }),
    host: t.exposeString('host', nullable('Where its engine runs; for viewers and operators.')),
    library: t.exposeString('library', { description: 'The name of its library.' }),
    isOpen: t.exposeBoolean('isOpen', { description: 'Neither it nor its library is out of service.' }),
    volume: t.exposeString('volume', nullable('The volume that it has mounted; null: none.')),
    filesRunning: t.exposeInt('filesRunning', { description: 'Files that it has in hand.' }),
    bytesRunning: t.expose('bytesRunning', bigInt('Bytes that it has in hand.')),
    rate: t.exposeFloat(
      'rate',
      nullable('Bytes a second that it has read of late; null: no engine has it, or one that does not say.'),
    ),
  }),
});

const PlanUserType = builder.objectRef<PlanUser>('PlanUser').implement({
  description: 'What one user waits for on a volume.',
  fields: (t) => ({
    user: t.exposeString('user', { description: 'Who waits.' }),
    files: t.exposeInt('files', { description: 'Files that the user waits for there.' }),
    bytes: t.expose('bytes', bigInt('Bytes of these.')),
    oldest: t.expose('oldest', time('When the oldest of them was asked for.')),
    priority: t.exposeInt('priority', { description: 'The highest among them.' }),
  }),
});

const PlanVolumeType = builder.objectRef<PlanVolume>('PlanVolume').implement({
  description: 'A volume with work.',
  fields: (t) => ({
    place: t.exposeInt('place', nullable('From 1 on; null when no drive can come to it.')),
    volume: t.exposeString('volume', { description: 'Its name.' }),
    library: t.exposeString('library', { description: 'The name of its library.' }),
    medium: t.exposeString('medium', {
      description: 'The cost model that the plan goes by: `lto-8`, `lto-9` or `linear`.',
    }),
    files: t.exposeInt('files', { description: 'Files that wait on it.' }),
    bytes: t.expose('bytes', bigInt('Bytes of these.')),
    users: t.expose('users', { type: [PlanUserType], description: 'Who waits for them.' }),
    drive: t.exposeString('drive', nullable('The drive that has it mounted or will come to it first; null: none can.')),
    isMounted: t.exposeBoolean('isMounted', { description: 'A drive has it now.' }),
    reason: t.exposeString('reason', nullable('For people: why it stands there; null: there is nothing to tell.')),
    problem: t.exposeString(
      'problem',
      nullable('For people: why drives leave it alone for a while; null: they do not.'),
    ),
    start: t.field({
      ...timeOrNull('When a drive comes to it by the plan; null: none can.'),
      resolve: (volume) => formatTime(volume.start),
    }),
    end: t.field({
      ...timeOrNull('When the last of its files is read by the plan; null: no drive can come to it.'),
      resolve: (volume) => formatTime(volume.end),
    }),
  }),
});

const PlanType = builder.objectRef<Plan>('Plan').implement({
  description: 'What the drives do and will do, made from the same queue and by the same rules as their choices.',
  fields: (t) => ({
    at: t.field({ ...time('When the plan was made.'), resolve: (plan) => timeOf(plan.now) }),
    drives: t.expose('drives', { type: [PlanDriveType], description: 'All drives of the site.' }),
    filesWaiting: t.int({
      description: 'Files that wait on all volumes.',
      resolve: (plan) => plan.volumes.reduce((sum, volume) => sum + volume.files, 0),
    }),
    bytesWaiting: t.field({
      ...bigInt('Bytes of these.'),
      resolve: (plan) => plan.volumes.reduce((sum, volume) => sum + volume.bytes, 0n),
    }),
    queue: t.connection({
      type: PlanVolumeType,
      description: 'The volumes with work, in the order in which drives come to them.',
      complexity: pageComplexity,
      resolve: (plan, args) => pageOf(args, plan.volumes, ({ start, volume }) => [start, volume]),
    }),
  }),
});

const WaitingReasonType = builder.enumType('WaitingReason', {
  description: 'Why files wait.',
  values: describeValues<keyof typeof waitingReasons>(waitingReasons, '.'),
});

const WaitingPartType = builder.objectRef<WaitingPart>('WaitingPart').implement({
  description: 'Files of a request that wait on one volume for one reason.',
  fields: (t) => ({
    volume: t.exposeString('volume', nullable('Its name; null: the catalogue knows no volume of them.')),
    place: t.exposeInt('place', nullable('Of the volume in the queue, from 1 on; null: it has none.')),
    reason: t.expose('reason', { type: WaitingReasonType, description: 'Why they wait.' }),
    explanation: t.exposeString('explanation', {
      description: 'The same for people, with the words of an operator or of the last error.',
    }),
    files: t.exposeInt('files', { description: 'How many.' }),
    bytes: t.expose('bytes', bigInt('Bytes of these.')),
    nextTry: t.expose('nextTry', timeOrNull('None of them is tried again before; null: at any time.')),
  }),
});

const WaitingType = builder.objectRef<Waiting>('Waiting').implement({
  description: 'Where a request stands in the plan.',
  fields: (t) => ({
    at: t.field({
      ...time('When this was read, by the clock that the other times go by.'),
      resolve: (waiting) => timeOf(waiting.at),
    }),
    files: t.exposeInt('files', { description: 'Files that wait.' }),
    bytes: t.expose('bytes', bigInt('Bytes of these.')),
    place: t.exposeInt('place', nullable('Of its next volume in the queue, from 1 on; null: it has none there.')),
    parts: t.connection({
      type: WaitingPartType,
      description: 'By volume and reason, in order of their places.',
      complexity: pageComplexity,
      resolve: (waiting, args) =>
        pageOf(args, waiting.parts, ({ place, volume, reason }) => [place, volume ?? '', reason]),
    }),
    end: t.expose('end', {
      type: EndRangeType,
      nullable: true,
      description:
        'Null when it cannot be told: something is out of service, no restore disk has room, no engine works, one has yet to look whether a changed copy is there, or nobody knows how long a library takes that stages files.',
    }),
    endUnknown: t.exposeString('endUnknown', nullable(END_UNKNOWN)),
  }),
});

const waitingOf = createBatch(readWaiting);

builder.prismaObjectField('Request', 'waiting', (t) =>
  t.field({
    type: WaitingType,
    nullable: true,
    description: 'Where it stands in the plan, and why; null when no file of it waits.',
    complexity: PLAN_COMPLEXITY,
    resolve: async ({ id }, _args, ctx) => (await waitingOf(ctx, id)) ?? null,
  }),
);

const RequestEndType = builder.objectRef<RequestEnd>('RequestEnd').implement({
  description: 'When a request will be done, as far as it can be told.',
  fields: (t) => ({
    requestId: t.exposeInt('requestId', { description: 'The id that REST knows.' }),
    at: t.expose('at', time('When this was told.')),
    end: t.expose('end', {
      type: EndRangeType,
      nullable: true,
      description:
        'Null when it cannot be told: something is out of service, no engine works, or nothing is left to wait for.',
    }),
  }),
});

builder.subscriptionFields((t) => ({
  requestEnd: t.field({
    type: RequestEndType,
    description:
      'When a request will be done: the range at once, and again when the plan has left it. Completes when the request has finished.',
    args: { id: t.arg.int({ required: true, description: 'The id that REST knows.' }) },
    subscribe: (_root, { id }, ctx) => cancellable((signal) => watchEnd(ctx, id, signal)),
    resolve: (end) => end,
  }),
}));

const AMOUNT = 'A decimal number with two to six digits after the point, such as `12.50`: exact, and rounded up.';
const CURRENCY = 'As the settings of the library have it, such as `EUR`.';

const PriceType = builder.objectRef<Price>('Price').implement({
  description: 'An amount of money.',
  fields: (t) => ({
    amount: t.exposeString('amount', { description: AMOUNT }),
    currency: t.exposeString('currency', { description: CURRENCY }),
  }),
});

const LibraryPriceType = builder.objectRef<LibraryPrice>('LibraryPrice').implement({
  description:
    'What a library would charge for a request, by its settings. What is there already, or on its way for others, costs nothing.',
  fields: (t) => ({
    library: t.exposeString('library', { description: 'Its name.' }),
    files: t.exposeInt('files', { description: 'Files that it would be asked for.' }),
    bytes: t.expose('bytes', bigInt('Bytes of these.')),
    amount: t.exposeString('amount', { description: AMOUNT }),
    currency: t.exposeString('currency', { description: CURRENCY }),
    note: t.exposeString('note', { description: 'For people: what it is made of.' }),
  }),
});

const EstimateType = builder.objectRef<Estimate>('Estimate').implement({
  description: 'What a request would take.',
  fields: (t) => ({
    files: t.exposeInt('files', { description: 'Files that the catalogue knows.' }),
    bytes: t.expose('bytes', bigInt('Bytes of these.')),
    filesUnknown: t.exposeInt('filesUnknown', { description: 'Paths that the catalogue does not know (yet).' }),
    unknownPaths: t.exposeStringList('unknownPaths', { description: 'The first twenty of these.' }),
    filesOnDisk: t.exposeInt('filesOnDisk', { description: 'Files that are there already.' }),
    bytesOnDisk: t.expose('bytesOnDisk', bigInt('Bytes of these.')),
    filesAtPrimaryPlace: t.exposeInt('filesAtPrimaryPlace', {
      description: 'Of the files on disk, the ones at their primary place: no restore disk has them.',
    }),
    bytesAtPrimaryPlace: t.expose('bytesAtPrimaryPlace', bigInt('Bytes of these.')),
    filesOnTheirWay: t.exposeInt('filesOnTheirWay', { description: 'Files that others have asked for already.' }),
    filesAlsoRequested: t.exposeInt('filesAlsoRequested', {
      description: 'Files that other live requests of the quota contain already: each request charges them.',
    }),
    bytesAlsoRequested: t.expose('bytesAlsoRequested', bigInt('Bytes of these.')),
    filesToRecall: t.exposeInt('filesToRecall', {
      description: 'Files to come from tape, those on their way included.',
    }),
    bytesToRecall: t.expose('bytesToRecall', bigInt('Bytes of these.')),
    filesWithoutPlace: t.exposeInt('filesWithoutPlace', {
      description: 'Files on no volume that is known: they would fail.',
    }),
    volumes: t.exposeInt('volumes', { description: 'Volumes that hold the files to be recalled.' }),
    mounts: t.exposeInt('mounts', { description: 'Of these, the ones that no drive has mounted.' }),
    volumesSuspended: t.exposeInt('volumesSuspended', { description: 'Of these, the ones out of service.' }),
    user: t.string({ description: 'Whose quota would be charged.', resolve: ({ quota }) => quota.user }),
    quotaSize: t.field({ ...bigInt('Bytes of the quota.'), resolve: ({ quota }) => quota.size }),
    quotaUsed: t.field({ ...bigInt('Bytes in use before the request.'), resolve: ({ quota }) => quota.used }),
    quotaUsedAfter: t.field({
      ...bigInt('Bytes in use after it, were it made.'),
      resolve: ({ quota }) => quota.usedAfter,
    }),
    isEnough: t.exposeBoolean('isEnough', { description: 'The files fit into the quota.' }),
    hasRoom: t.exposeBoolean('hasRoom', {
      description: 'The allocations of the restore disks in service have room for what is to be recalled.',
    }),
    prices: t.expose('prices', {
      type: [LibraryPriceType],
      description: 'What libraries would charge for it; those that charge for nothing are left out.',
    }),
    price: t.expose('price', {
      type: PriceType,
      nullable: true,
      description: 'All of these together; null: nobody charges for it, or not all in one currency.',
    }),
    end: t.expose('end', {
      type: EndRangeType,
      nullable: true,
      description:
        'Null when it cannot be told: something is out of service, no restore disk has room, no engine works, or nobody knows how long a library takes that stages files.',
    }),
    endUnknown: t.exposeString('endUnknown', nullable(END_UNKNOWN)),
  }),
});

builder.queryFields((t) => ({
  plan: t.field({
    type: PlanType,
    description: 'The plan as it is now.',
    complexity: PLAN_COMPLEXITY,
    resolve: (_root, _args, ctx) => showPlan(ctx),
  }),
  estimateRequest: t.field({
    type: EstimateType,
    description: 'What `createRequest` would take with the same input; nothing is stored.',
    complexity: PLAN_COMPLEXITY,
    errors: { types: [InvalidInputError, UnknownUserError, ForbiddenError] },
    args: { input: t.arg({ type: CreateRequestInput, required: true, description: 'As for `createRequest`.' }) },
    resolve: (_root, { input }, ctx) => estimateRequest(ctx, input, ctx.reader),
  }),
}));
