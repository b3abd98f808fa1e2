/** The plan: drives, the queue by volume, where a request stands in it, and what one would take. */
import { InvalidInputError, UnknownUserError } from '../src/errors.js';
import type { EndRange } from '../src/operations/plan/end-of-parts.js';
import { type Estimate, estimateRequest } from '../src/operations/plan/estimate.js';
import { type Plan, type PlanDrive, type PlanUser, type PlanVolume, readPlan } from '../src/operations/plan/plan.js';
import { readWaiting, type Waiting, type WaitingPart, waitingReasons } from '../src/operations/plan/waiting.js';
import { timeOf } from '../src/time.js';
import { createBatch } from './batch.js';
import { builder, pageComplexity } from './builder.js';
import { pageOf } from './made-pages.js';
import { CreateRequestInput } from './requests.js';

/** Reading the plan looks at the whole queue. */
const PLAN_COMPLEXITY = 500;

const timeOrNull = (seconds: number | null) => (seconds === null ? null : timeOf(seconds));

const EndRangeType = builder.objectRef<EndRange>('EndRange').implement({
  description: 'When it may be done. The cost model knows neither what breaks nor who comes next.',
  fields: (t) => ({
    earliest: t.field({
      type: 'DateTime',
      description: 'If the drives did nothing else.',
      resolve: (range) => timeOf(range.earliest),
    }),
    planned: t.field({
      type: 'DateTime',
      description: 'By the plan, with the queue as it is.',
      resolve: (range) => timeOf(range.planned),
    }),
    latest: t.field({
      type: 'DateTime',
      description: 'If all took twice as long as planned.',
      resolve: (range) => timeOf(range.latest),
    }),
  }),
});

const PlanDriveType = builder.objectRef<PlanDrive>('PlanDrive').implement({
  description: 'What a drive does just now.',
  fields: (t) => ({
    name: t.exposeString('name'),
    isClaimed: t.exposeBoolean('isClaimed', { description: 'An engine that lives holds it.' }),
    isOpen: t.exposeBoolean('isOpen', { description: 'Neither it nor its back end is out of service.' }),
    volume: t.exposeString('volume', { nullable: true, description: 'The name of the volume that it has mounted.' }),
    filesRunning: t.exposeInt('filesRunning'),
    bytesRunning: t.expose('bytesRunning', { type: 'BigInt' }),
  }),
});

const PlanUserType = builder.objectRef<PlanUser>('PlanUser').implement({
  description: 'What one user waits for on a volume.',
  fields: (t) => ({
    user: t.exposeString('user'),
    files: t.exposeInt('files'),
    bytes: t.expose('bytes', { type: 'BigInt' }),
    oldest: t.expose('oldest', { type: 'DateTime', description: 'When the oldest of them was asked for.' }),
    priority: t.exposeInt('priority', { description: 'The highest among them.' }),
  }),
});

const PlanVolumeType = builder.objectRef<PlanVolume>('PlanVolume').implement({
  description: 'A volume with work.',
  fields: (t) => ({
    place: t.exposeInt('place', { nullable: true, description: 'From 1 on; null when no drive can come to it.' }),
    volume: t.exposeString('volume'),
    medium: t.exposeString('medium'),
    files: t.exposeInt('files'),
    bytes: t.expose('bytes', { type: 'BigInt' }),
    users: t.expose('users', { type: [PlanUserType] }),
    drive: t.exposeString('drive', { nullable: true, description: 'That has it mounted, or will come to it first.' }),
    isMounted: t.exposeBoolean('isMounted'),
    reason: t.exposeString('reason', { nullable: true, description: 'Why it stands there.' }),
    start: t.field({ type: 'DateTime', nullable: true, resolve: (volume) => timeOrNull(volume.start) }),
    end: t.field({ type: 'DateTime', nullable: true, resolve: (volume) => timeOrNull(volume.end) }),
  }),
});

const PlanType = builder.objectRef<Plan>('Plan').implement({
  description: 'What the drives do and will do, made from the same queue and by the same rules as their choices.',
  fields: (t) => ({
    at: t.field({ type: 'DateTime', resolve: (plan) => timeOf(plan.now) }),
    drives: t.expose('drives', { type: [PlanDriveType] }),
    filesWaiting: t.int({ resolve: (plan) => plan.volumes.reduce((sum, volume) => sum + volume.files, 0) }),
    bytesWaiting: t.field({
      type: 'BigInt',
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
  values: Object.fromEntries(
    Object.entries(waitingReasons).map(([reason, description]) => [reason, { description }]),
  ) as Record<keyof typeof waitingReasons, { description: string }>,
});

const WaitingPartType = builder.objectRef<WaitingPart>('WaitingPart').implement({
  description: 'Files of a request that wait on one volume for one reason.',
  fields: (t) => ({
    volume: t.exposeString('volume', { nullable: true }),
    place: t.exposeInt('place', { nullable: true, description: 'Of the volume in the queue, from 1 on.' }),
    reason: t.expose('reason', { type: WaitingReasonType }),
    explanation: t.exposeString('explanation'),
    files: t.exposeInt('files'),
    bytes: t.expose('bytes', { type: 'BigInt' }),
    nextTry: t.expose('nextTry', { type: 'DateTime', nullable: true }),
  }),
});

const WaitingType = builder.objectRef<Waiting>('Waiting').implement({
  description: 'Where a request stands in the plan.',
  fields: (t) => ({
    files: t.exposeInt('files'),
    bytes: t.expose('bytes', { type: 'BigInt' }),
    place: t.exposeInt('place', { nullable: true, description: 'Of its next volume in the queue, from 1 on.' }),
    parts: t.connection({
      type: WaitingPartType,
      description: 'By volume and reason, in order of their places.',
      complexity: pageComplexity,
      resolve: (waiting, args) =>
        pageOf(args, waiting.parts, ({ place, volume, reason }) => [place, volume ?? '', reason]),
    }),
    end: t.field({
      type: EndRangeType,
      nullable: true,
      description:
        'Null when it cannot be told: something is out of service, no restore disk has room, or no engine works.',
      resolve: (waiting) => waiting.end ?? null,
    }),
  }),
});

const waitingOf = createBatch(readWaiting);

builder.prismaObjectField('Request', 'waiting', (t) =>
  t.field({
    type: WaitingType,
    nullable: true,
    description: 'Where it stands in the plan, and why; null when no file of it waits.',
    complexity: PLAN_COMPLEXITY,
    select: { id: true },
    resolve: async ({ id }, _args, ctx) => (await waitingOf(ctx, id)) ?? null,
  }),
);

const EstimateType = builder.objectRef<Estimate>('Estimate').implement({
  description: 'What a request would take. Sizes are bytes.',
  fields: (t) => ({
    files: t.exposeInt('files', { description: 'That the catalogue knows.' }),
    bytes: t.expose('bytes', { type: 'BigInt' }),
    filesUnknown: t.exposeInt('filesUnknown', { description: 'Paths that the catalogue does not know (yet).' }),
    unknownPaths: t.exposeStringList('unknownPaths', { description: 'The first twenty of them.' }),
    filesOnDisk: t.exposeInt('filesOnDisk', { description: 'There already.' }),
    bytesOnDisk: t.expose('bytesOnDisk', { type: 'BigInt' }),
    filesOnTheirWay: t.exposeInt('filesOnTheirWay', { description: 'Asked for by others already.' }),
    filesToRecall: t.exposeInt('filesToRecall', { description: 'To come from tape, those on their way included.' }),
    bytesToRecall: t.expose('bytesToRecall', { type: 'BigInt' }),
    filesWithoutPlace: t.exposeInt('filesWithoutPlace', {
      description: 'On no volume that is known: they would fail.',
    }),
    volumes: t.exposeInt('volumes', { description: 'That hold the files to be recalled.' }),
    mounts: t.exposeInt('mounts', { description: 'Of these, the ones that no drive has mounted.' }),
    volumesSuspended: t.exposeInt('volumesSuspended', { description: 'Of these, the ones out of service.' }),
    user: t.string({ resolve: ({ quota }) => quota.user }),
    quotaSize: t.field({ type: 'BigInt', resolve: ({ quota }) => quota.size }),
    quotaUsed: t.field({ type: 'BigInt', description: 'Before the request.', resolve: ({ quota }) => quota.used }),
    quotaUsedAfter: t.field({ type: 'BigInt', resolve: ({ quota }) => quota.usedAfter }),
    isEnough: t.exposeBoolean('isEnough', { description: 'The files fit into the quota.' }),
    hasRoom: t.exposeBoolean('hasRoom', {
      description: 'The allocations of the restore disks in service have room for what is to be recalled.',
    }),
    end: t.field({
      type: EndRangeType,
      nullable: true,
      description:
        'Null when it cannot be told: something is out of service, no restore disk has room, or no engine works.',
      resolve: (estimate) => estimate.end ?? null,
    }),
  }),
});

builder.queryFields((t) => ({
  plan: t.field({
    type: PlanType,
    complexity: PLAN_COMPLEXITY,
    resolve: (_root, _args, ctx) => readPlan(ctx),
  }),
  estimateRequest: t.field({
    type: EstimateType,
    description: 'What `createRequest` would take with the same input; nothing is stored.',
    complexity: PLAN_COMPLEXITY,
    errors: { types: [InvalidInputError, UnknownUserError], union: { name: 'EstimateRequestResult' } },
    args: { input: t.arg({ type: CreateRequestInput, required: true }) },
    resolve: (_root, { input }, ctx) => estimateRequest(ctx, input),
  }),
}));
