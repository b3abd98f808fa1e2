/** Defines the GraphQL types for volumes and drives. */

import { ForbiddenError, InUseError, InvalidInputError, NotFoundError } from '../../src/core/errors.js';
import { type MediumName, mediumNameOf } from '../../src/core/medium-names.js';
import type { ChosenFiles } from '../../src/domain/catalogue/chosen-files.js';
import {
  getVolume,
  listVolumes,
  readVolumeFiguresOf,
  readVolumes,
  setMedium,
} from '../../src/domain/catalogue/volumes.js';
import { type RetiredVolume, reinstateVolume, retireVolume } from '../../src/domain/catalogue-changes/retirements.js';
import { moveVolume } from '../../src/domain/catalogue-changes/volume-moves.js';
import type { Context } from '../../src/domain/context.js';
import { listDrives, readClaimed, readDriveHosts } from '../../src/domain/recalls/drives.js';
import type { Volume } from '../../src/generated/prisma/client.js';
import {
  bigInt,
  bigIntOrNull,
  builder,
  countedConnection,
  nameValues,
  nullable,
  pageComplexity,
  timeOrNull,
} from './builder.js';
import { readBack } from './errors.js';
import { createBatch, isInt, isText, readListPage } from './pages.js';
import { defineMutation, resultOf } from './payloads.js';

const claimed = createBatch(readClaimed);
const hosts = createBatch(readDriveHosts);
const figures = createBatch((ctx: Context, ids: number[]) => readVolumeFiguresOf(ctx, ids, ctx.reader));

const volumeOf = createBatch(readVolumes);

export async function findVolume(ctx: Context, id: number | null): Promise<Volume | null> {
  return id === null ? null : ((await volumeOf(ctx, id)) ?? null);
}

/**
 * Query cost of a volume's file counts. The cost is high, because PostgreSQL reads the rows of all files on the volume.
 */
const FIGURES_COMPLEXITY = 10;

export const MediumType = builder.enumType('Medium', {
  description: 'A cost model, with which the planner estimates how long a drive takes to read files.',
  values: nameValues<MediumName>({
    'lto-8': 'An LTO-8 cartridge, which a drive reads along a serpentine path.',
    'lto-9': 'An LTO-9 cartridge, which a drive reads along a serpentine path.',
    linear: 'The time to reach a file grows with the distance from the previous file.',
  }),
});

export const VolumeType = builder.prismaNode('Volume', {
  id: { field: 'id' },
  nullable: true,
  description: 'A tape cartridge.',
  fields: (t) => ({
    name: t.exposeString('name', { description: "The name on the cartridge's label." }),
    medium: t.field({
      type: MediumType,
      description: 'The cost model with which the planner estimates read times. By default, `LINEAR`.',
      resolve: ({ medium }) => mediumNameOf(medium),
    }),
    library: t.relation('library', { description: 'The library that contains the volume.' }),
    drive: t.relation(
      'drive',
      nullable('The drive in which the volume is mounted. Null if the volume is not mounted.'),
    ),
    filesWaiting: t.relationCount('recalls', {
      where: { state: 'WAITING' },
      description: 'The number of files waiting to be read from the volume.',
    }),
    fileCount: t.int({
      nullable: true,
      description: 'The number of files on the volume. For viewers and operators.',
      complexity: FIGURES_COMPLEXITY,
      resolve: async ({ id }, _args, ctx) => (await figures(ctx, id))?.files ?? 0,
    }),
    bytes: t.field({
      ...bigIntOrNull('The total size of the files on the volume in bytes. For viewers and operators.'),
      complexity: FIGURES_COMPLEXITY,
      resolve: async ({ id }, _args, ctx) => (await figures(ctx, id))?.bytes ?? 0n,
    }),
    retiredAt: t.expose(
      'retiredAt',
      timeOrNull(
        'When the volume was retired. The catalogue lists no files on a retired volume, and Tapegate adds no files to it. Null if the volume is not retired.',
      ),
    ),
    retiredReason: t.exposeString(
      'retiredReason',
      nullable('Why the volume was retired. Null if no reason was given.'),
    ),
    failureCount: t.exposeInt('failures', {
      description: 'The number of consecutive mounts of the volume that ended with an unexpected error.',
    }),
    failingSince: t.expose(
      'failingSince',
      timeOrNull('When the first of these mounts failed. Null if the last mount did not fail.'),
    ),
    problem: t.exposeString(
      'problem',
      nullable('The error of the last failed mount. Null if the last mount did not fail.'),
    ),
    nextTryAt: t.expose(
      'retryAt',
      timeOrNull('When drives may mount the volume again after a failed mount. Null if they need not wait.'),
    ),
  }),
});

export const DriveType = builder.prismaNode('Drive', {
  id: { field: 'id' },
  nullable: true,
  description: 'A tape drive. A staging library has one drive for each read that can run at the same time.',
  fields: (t) => ({
    name: t.exposeString('name', { description: "The drive's name, such as `drive-1`." }),
    library: t.relation('library', { description: 'The library that contains the drive.' }),
    volume: t.relation('volume', nullable('The mounted volume. Null if no volume is mounted.')),
    isClaimed: t.boolean({
      description: 'Whether a running engine has claimed the drive.',
      resolve: async ({ id }, _args, ctx) => (await claimed(ctx, id)) ?? false,
    }),
    host: t.string({
      ...nullable(
        'The host of the engine that has claimed the drive. Null if no engine has claimed the drive, or if the version of the engine is too old to report its host. For viewers and operators.',
      ),
      resolve: async ({ id }, _args, ctx) => (await hosts(ctx, id)) ?? null,
    }),
    filesRunning: t.relationCount('recalls', {
      where: { state: 'RUNNING' },
      description: 'The number of files that the drive is reading.',
    }),
  }),
});

export const VolumeConnection = countedConnection(VolumeType, 'Volume');
export const DriveConnection = countedConnection(DriveType, 'Drive');

builder.queryFields((t) => ({
  volume: t.prismaField({
    type: 'Volume',
    nullable: true,
    description:
      'Returns the volume with the given name, even if it is retired. Returns null if the volume does not exist.',
    args: { name: t.arg.string({ required: true, description: "The volume's name." }) },
    resolve: (query, _root, { name }, ctx) => getVolume(ctx, name, query),
  }),
  volumes: t.prismaConnection(
    {
      type: 'Volume',
      nullable: true,
      cursor: 'name',
      description: 'Returns the volumes, ordered by name. By default, omits retired volumes.',
      complexity: pageComplexity,
      args: { includeRetired: t.arg.boolean({ description: 'Whether to include retired volumes.' }) },
      totalCount: (_root, { includeRetired: retired }, ctx) => listVolumes(ctx, { retired }).count(),
      resolve: (query, _root, { includeRetired: retired }, ctx) =>
        readListPage(query, { name: 'name', isKey: isText }, listVolumes(ctx, { retired }).page),
    },
    VolumeConnection,
  ),
  drives: t.prismaConnection(
    {
      type: 'Drive',
      nullable: true,
      cursor: 'id',
      description: 'Returns all drives in the order in which they were added.',
      complexity: pageComplexity,
      totalCount: (_root, _args, ctx) => listDrives(ctx).count(),
      resolve: (query, _root, _args, ctx) => readListPage(query, { name: 'id', isKey: isInt }, listDrives(ctx).page),
    },
    DriveConnection,
  ),
}));

const SetVolumeMediumInput = builder.inputType('SetVolumeMediumInput', {
  description: 'Input of `setVolumeMedium`. Requires exactly one of `names` and `all`.',
  fields: (t) => ({
    names: t.stringList({
      description: 'The names of the volumes. If any name is unknown, the mutation fails and changes no volumes.',
    }),
    all: t.boolean({ description: 'Whether to change all volumes.' }),
    medium: t.field({ type: MediumType, required: true, description: 'The cost model.' }),
  }),
});

const ChangedVolumes = builder.objectRef<{ volumes: number; medium: MediumName }>('ChangedVolumes').implement({
  description: 'The result of `setVolumeMedium`.',
  fields: (t) => ({
    volumeCount: t.int({
      description: 'The number of volumes whose cost model was set.',
      resolve: ({ volumes }) => volumes,
    }),
    medium: t.expose('medium', { type: MediumType, description: 'The cost model.' }),
  }),
});

export const AffectedFilesType = builder.objectRef<ChosenFiles>('AffectedFiles').implement({
  description: 'The files affected by a catalogue change.',
  fields: (t) => ({
    fileCount: t.exposeInt('files', { description: 'The number of files.' }),
    bytes: t.expose('bytes', bigInt('The total size in bytes of the files.')),
    requestCount: t.exposeInt('requests', {
      description:
        'The number of live requests that contain at least one of these files, or have the path of one as an unresolved path.',
    }),
  }),
});

const RetiredVolumeType = builder.objectRef<RetiredVolume>('RetiredVolume').implement({
  description:
    'The files with a first or second copy on the retired volume, including files that were withdrawn earlier.',
  fields: (t) => ({
    fileCount: t.exposeInt('files', { description: 'The number of files.' }),
    bytes: t.expose('bytes', bigInt('The total size in bytes of the files.')),
    filesElsewhere: t.exposeInt('elsewhere', {
      description: 'The number of files that are now read from another copy.',
    }),
    filesWithdrawn: t.exposeInt('withdrawn', {
      description: 'The number of files that were withdrawn, because they had no other copy.',
    }),
    requestCount: t.exposeInt('requests', {
      description:
        'The number of live requests that contain at least one of these files, or have the path of one as an unresolved path.',
    }),
  }),
});

const DRY_RUN = 'Whether to report the changes without making them.';
const errors = [InvalidInputError, NotFoundError, InUseError, ForbiddenError];

const MoveVolumeInput = builder.inputType('MoveVolumeInput', {
  description: 'Input of `moveVolume`.',
  fields: (t) => ({
    from: t.string({ required: true, description: 'The name of the volume that was copied.' }),
    to: t.string({
      required: true,
      description:
        'The name of the volume that contains the copies. If this volume does not exist, Tapegate adds it to the library of the volume `from`, with the same cost model.',
    }),
    dryRun: t.boolean({ description: DRY_RUN }),
  }),
});

const RetireVolumeInput = builder.inputType('RetireVolumeInput', {
  description: 'Input of `retireVolume`.',
  fields: (t) => ({
    name: t.string({ required: true, description: "The volume's name." }),
    reason: t.string({
      description: 'The reason shown to users who wait for a withdrawn file. At most 2,000 characters.',
    }),
    withdraw: t.boolean({
      description:
        'Whether to withdraw files that have no other copy. By default, the mutation fails if the volume contains such files.',
    }),
    dryRun: t.boolean({ description: DRY_RUN }),
  }),
});

defineMutation('setVolumeMedium', {
  description: 'Sets the cost model with which the planner estimates the time to read volumes.',
  errors: [InvalidInputError, NotFoundError, ForbiddenError],
  resolve: async ({ names, all, medium }, ctx) => {
    if ((names?.length ?? 0) > 0 === (all === true)) {
      throw new InvalidInputError(
        'names',
        'must contain a volume if all is not true, and must be empty if all is true',
      );
    }
    return { medium, volumes: await setMedium(ctx, { medium, names: all ? undefined : (names ?? []) }) };
  },
  input: SetVolumeMediumInput,
  result: (t) => ({
    changed: t.field({ type: ChangedVolumes, nullable: true, description: 'The changed volumes.', resolve: resultOf }),
  }),
});

defineMutation('moveVolume', {
  description:
    'Records that a cartridge was copied to another cartridge. Tapegate then reads the files from the new cartridge, at the same positions. Does not copy data.',
  errors: errors,
  resolve: ({ dryRun, ...input }, ctx) => moveVolume(ctx, { ...input, isDryRun: dryRun }),
  input: MoveVolumeInput,
  result: (t) => ({
    affected: t.field({
      type: AffectedFilesType,
      nullable: true,
      description: 'The files whose position changed.',
      resolve: resultOf,
    }),
  }),
});

defineMutation('retireVolume', {
  description:
    "Retires a volume. Tapegate then reads the volume's files from their other copies, and adds no files to the volume.",
  errors: errors,
  resolve: ({ dryRun, ...input }, ctx) => retireVolume(ctx, { ...input, isDryRun: dryRun }),
  input: RetireVolumeInput,
  result: (t) => ({
    retired: t.field({
      type: RetiredVolumeType,
      nullable: true,
      description: 'The files on the retired volume.',
      resolve: resultOf,
    }),
  }),
});

const ReinstateVolumeInput = builder.inputType('ReinstateVolumeInput', {
  description: 'Input of `reinstateVolume`.',
  fields: (t) => ({ name: t.string({ required: true, description: "The volume's name." }) }),
});

defineMutation('reinstateVolume', {
  description: "Puts a retired volume back into use. Does not restore the volume's former files to the catalogue.",
  errors: [InvalidInputError, NotFoundError, ForbiddenError],
  resolve: async ({ name }, ctx) => {
    const id = await reinstateVolume(ctx, name);
    return await readBack(listVolumes(ctx).one(id, {}));
  },
  input: ReinstateVolumeInput,
  result: (t) => ({
    volume: t.field({ type: VolumeType, nullable: true, description: 'The volume.', resolve: resultOf }),
  }),
});
