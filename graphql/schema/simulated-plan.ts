/** Defines the GraphQL types that compare the present plan with the plan for a changed site. */
import { ForbiddenError, InvalidInputError, NotFoundError } from '../../src/core/errors.js';
import { timeOf } from '../../src/core/time.js';
import type { PlanVolume } from '../../src/domain/plan/plan.js';
import {
  type ComparedVolume,
  type PlanComparison,
  type PlanOutcome,
  simulatePlan,
} from '../../src/domain/plan/simulated-plan.js';
import { bigInt, builder, countedConnection, nullable, pageComplexity, time, timeOrNull } from './builder.js';
import { pageOf } from './pages.js';
import { defineOutcome, resultOf, settle } from './payloads.js';
import { formatTime, PLAN_COMPLEXITY } from './plan.js';
import { KindType } from './suspensions.js';

const PlanOutcomeType = builder.objectRef<PlanOutcome>('PlanOutcome').implement({
  description: 'What a plan achieves for the files that are waiting now.',
  fields: (t) => ({
    driveCount: t.exposeInt('drives', { description: 'The number of drives that can work.' }),
    mountCount: t.exposeInt('mounts', {
      description: 'The number of times that drives are planned to mount a volume.',
    }),
    emptyAt: t.field({
      ...timeOrNull('When drives have read all files that they can read. Null if drives can read no waiting file.'),
      resolve: ({ emptyAt }) => formatTime(emptyAt),
    }),
    longestWaitSeconds: t.exposeFloat(
      'longestWaitSeconds',
      nullable(
        "The longest time in seconds from a user's oldest request for files on a volume until all these files are read. Null if drives can read no waiting file.",
      ),
    ),
    filesBlocked: t.exposeInt('filesBlocked', {
      description:
        'The number of waiting files that no drive can read, for example because a volume is suspended. As in the queue, a file can count once for each user who waits for it.',
    }),
    bytesBlocked: t.expose('bytesBlocked', bigInt('The total size in bytes of the files that no drive can read.')),
    filesUnplanned: t.exposeInt('filesUnplanned', {
      description: 'The number of waiting files of staging libraries, which decide themselves when they read files.',
    }),
  }),
});

const PlannedReadType = builder.objectRef<PlanVolume>('PlannedRead').implement({
  description: 'When drives read the waiting files of a volume, according to a plan.',
  fields: (t) => ({
    driveName: t.exposeString(
      'drive',
      nullable('The drive that mounts the volume first. Null if no drive can mount it.'),
    ),
    startsAt: t.field({
      ...timeOrNull('The planned time of the mount. Null if no drive can mount the volume.'),
      resolve: ({ start }) => formatTime(start),
    }),
    endsAt: t.field({
      ...timeOrNull('The planned time at which the last file is read. Null if no drive can mount the volume.'),
      resolve: ({ end }) => formatTime(end),
    }),
    problem: t.exposeString('problem', nullable('Why drives skip the volume. May be null.')),
  }),
});

const ComparedVolumeType = builder.objectRef<ComparedVolume>('ComparedVolume').implement({
  description: 'A volume with waiting files, in the present plan and in the plan for the changed site.',
  fields: (t) => ({
    volumeName: t.string({ description: "The volume's name.", resolve: ({ present }) => present.volume }),
    libraryName: t.string({ description: "The library's name.", resolve: ({ present }) => present.library }),
    fileCount: t.int({ description: 'The number of waiting files.', resolve: ({ present }) => present.files }),
    bytes: t.field({
      ...bigInt('The total size in bytes of the waiting files.'),
      resolve: ({ present }) => present.bytes,
    }),
    present: t.expose('present', { type: PlannedReadType, description: 'The present plan.' }),
    changed: t.expose('changed', { type: PlannedReadType, description: 'The plan for the changed site.' }),
  }),
});

const PlanComparisonType = builder.objectRef<PlanComparison>('PlanComparison').implement({
  description: 'The present plan, and the plan for the changed site. Both plans assume that no new requests arrive.',
  fields: (t) => ({
    at: t.field({ ...time('When the plans were made.'), resolve: ({ now }) => timeOf(now) }),
    present: t.expose('present', { type: PlanOutcomeType, description: 'What the present plan achieves.' }),
    changed: t.expose('changed', {
      type: PlanOutcomeType,
      description: 'What the plan for the changed site achieves.',
    }),
    volumes: t.connection(
      {
        type: ComparedVolumeType,
        description: 'The volumes with waiting files, in the order of the present queue.',
        complexity: pageComplexity,
        resolve: ({ volumes }, args) => pageOf(args, volumes, ({ present }) => [present.start, present.volume]),
      },
      countedConnection(ComparedVolumeType, 'ComparedVolume'),
    ),
  }),
});

const SimulatedSuspensionInput = builder.inputType('SimulatedSuspensionInput', {
  description: 'An object that the changed site does not use.',
  fields: (t) => ({
    kind: t.field({ type: KindType, required: true, description: 'The type of the object: volume, drive or library.' }),
    name: t.string({ required: true, description: 'The name of the volume, drive or library.' }),
  }),
});

const AddedDrivesInput = builder.inputType('AddedDrivesInput', {
  description: 'Drives that the changed site has in addition.',
  fields: (t) => ({
    libraryName: t.string({
      required: true,
      description: 'The name of a library whose volumes Tapegate mounts.',
    }),
    driveCount: t.int({ required: true, description: 'The number of drives to add to the library.' }),
  }),
});

const SimulatePlanInput = builder.inputType('SimulatePlanInput', {
  description: 'Input of `simulatePlan`: the differences between the changed site and the present site.',
  fields: (t) => ({
    suspend: t.field({
      type: [SimulatedSuspensionInput],
      description:
        'The objects that the changed site does not use. Drives finish the files that they are reading. At most 1,000.',
    }),
    addDrives: t.field({
      type: [AddedDrivesInput],
      description: 'The drives that the changed site has in addition. At most 100 drives.',
    }),
  }),
});

const SimulatePlanResult = defineOutcome<PlanComparison>(
  'SimulatePlanResult',
  'The result of `simulatePlan`.',
  (t) => ({
    comparison: t.field({
      type: PlanComparisonType,
      nullable: true,
      description: 'The comparison of the two plans.',
      resolve: resultOf,
    }),
  }),
);

builder.queryFields((t) => ({
  simulatePlan: t.field({
    type: SimulatePlanResult,
    nullable: true,
    description:
      'Computes the plan that the site would have without some volumes, drives or libraries, or with more drives. Returns this plan and the present plan. Changes nothing. For viewers and operators.',
    complexity: 2 * PLAN_COMPLEXITY,
    args: { input: t.arg({ type: SimulatePlanInput, required: true, description: 'The changes to simulate.' }) },
    resolve: (_root, { input: { suspend, addDrives } }, ctx) =>
      settle([InvalidInputError, NotFoundError, ForbiddenError], () =>
        simulatePlan(ctx, {
          suspend,
          addDrives: addDrives?.map(({ libraryName, driveCount }) => ({ library: libraryName, drives: driveCount })),
        }),
      ),
  }),
}));
