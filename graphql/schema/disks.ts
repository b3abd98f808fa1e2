/** Defines the GraphQL types for restore disks. */
import { ForbiddenError, InUseError, InvalidInputError, NotFoundError } from '../../src/core/errors.js';
import {
  type DiskMeasurement,
  listDisksByPage,
  type RemovedDisk,
  readHostsOf,
  readMeasurements,
  removeRestoreDisk,
  resizeRestoreDisk,
} from '../../src/domain/disks/disks.js';
import { type ComparisonProgress, readComparisons } from '../../src/domain/disks/renumbered.js';
import { bigInt, bigIntOrNull, builder, connectionOf, nullable, pageComplexity } from './builder.js';
import { readBack } from './errors.js';
import { createBatch, isInt, readListPage } from './pages.js';
import { defineMutation, resultOf } from './payloads.js';

const comparisons = createBatch<number, ComparisonProgress>(readComparisons);
const measurements = createBatch<number, DiskMeasurement>(readMeasurements);
const hosts = createBatch<number, string[]>(readHostsOf);

const ComparisonType = builder.objectRef<ComparisonProgress>('DiskComparison').implement({
  description: 'The progress of a checksum check of all copies on a restore disk.',
  fields: (t) => ({
    filesCompared: t.exposeInt('compared', { description: 'The number of copies checked so far.' }),
    filesTotal: t.exposeInt('total', { description: 'The number of copies on the disk.' }),
  }),
});

export const RestoreDiskType = builder.prismaNode('RestoreDisk', {
  id: { field: 'id' },
  nullable: true,
  description: 'A restore disk: a mount point below which Tapegate stores recalled files.',
  fields: (t) => ({
    mountpoint: t.exposeString('mountpoint', {
      description: "The absolute mount point. A copy's path is the mount point followed by the file's logical path.",
    }),
    size: t.expose('size', bigInt('The number of bytes that Tapegate may use on the disk.')),
    used: t.expose('used', bigInt('The total size in bytes of the copies on the disk.')),
    reserved: t.expose('reserved', bigInt('The number of bytes reserved for active recalls.')),
    free: t.field({
      ...bigIntOrNull(
        "The number of free bytes in the disk's file system, including bytes that Tapegate may not use. If several engines measured the number in the last minute, this is the lowest value. Null if unknown.",
      ),
      resolve: async ({ id }, _args, ctx) => (await measurements(ctx, id))?.free,
    }),
    problem: t.string({
      ...nullable(
        "A description of the disk's problem, such as recent failures, the reason for a suspension, or a full disk. Null if the disk has no problem.",
      ),
      resolve: async ({ id }, _args, ctx) => (await measurements(ctx, id))?.problem,
    }),
    comparison: t.field({
      type: ComparisonType,
      nullable: true,
      description:
        'The progress of the current checksum check. A check starts when the inodes of copies change, for example because the disk was copied. Null if no check is running.',
      resolve: async ({ id }, _args, ctx) => await comparisons(ctx, id),
    }),
    hosts: t.stringList({
      description:
        'The hosts whose engines checked the disk in the last minute. Lists at most 100 hosts, ordered by name. For viewers and operators.',
      resolve: async ({ id }, _args, ctx) => (await hosts(ctx, id)) ?? [],
    }),
  }),
});

builder.queryFields((t) => ({
  restoreDisks: t.prismaConnection(
    {
      type: 'RestoreDisk',
      nullable: true,
      cursor: 'id',
      description: 'Returns all restore disks in the order in which they were added.',
      complexity: pageComplexity,
      totalCount: (_root, _args, ctx) => listDisksByPage(ctx).count(),
      resolve: (query, _root, _args, ctx) =>
        readListPage(query, { name: 'id', isKey: isInt }, listDisksByPage(ctx).page),
    },
    ...connectionOf('RestoreDisk'),
  ),
}));

const ResizeRestoreDiskInput = builder.inputType('ResizeRestoreDiskInput', {
  description: 'Input of `resizeRestoreDisk`.',
  fields: (t) => ({
    mountpoint: t.string({ required: true, description: "The disk's absolute mount point." }),
    size: t.field({
      type: 'BigInt',
      required: true,
      description: 'The number of bytes that Tapegate may use on the disk.',
    }),
  }),
});

const RemovedDiskType = builder.objectRef<RemovedDisk>('RemovedDisk').implement({
  description: 'A removed restore disk. Tapegate leaves all files on the disk, including the marker file.',
  fields: (t) => ({
    id: t.globalID({
      description: "The disk's former global ID.",
      resolve: ({ id }) => ({ type: 'RestoreDisk', id }),
    }),
    mountpoint: t.exposeString('mountpoint', { description: 'The mount point.' }),
    size: t.expose('size', bigInt('The number of bytes that Tapegate may use on the disk.')),
    used: t.expose('used', bigInt('The total size in bytes of the copies on the disk.')),
    reserved: t.expose('reserved', bigInt('The number of bytes that were reserved for recalls.')),
    stalePartialFiles: t.exposeStringList('stalePartialFiles', {
      description:
        'The logical paths of up to 100 complete or partial files that may remain on the disk. Empty unless Tapegate could not check the disk because the disk was failing.',
    }),
  }),
});

defineMutation('resizeRestoreDisk', {
  description:
    'Changes how many bytes Tapegate may use on a restore disk, and marks the disk as no longer full. To add a disk, run `tapegate disk add` on a host that mounts the disk.',
  errors: [InvalidInputError, NotFoundError, ForbiddenError],
  resolve: async (input, ctx) => {
    const { id } = await resizeRestoreDisk(ctx, input);
    return await readBack(listDisksByPage(ctx).one(id, {}));
  },
  input: ResizeRestoreDiskInput,
  result: (t) => ({
    restoreDisk: t.field({
      type: RestoreDiskType,
      nullable: true,
      description: 'The changed restore disk.',
      resolve: resultOf,
    }),
  }),
});

const RemoveRestoreDiskInput = builder.inputType('RemoveRestoreDiskInput', {
  description: 'Input of `removeRestoreDisk`.',
  fields: (t) => ({ mountpoint: t.string({ required: true, description: "The disk's absolute mount point." }) }),
});

defineMutation('removeRestoreDisk', {
  description: 'Removes a restore disk. Fails if the disk contains copies of files.',
  errors: [InvalidInputError, NotFoundError, InUseError, ForbiddenError],
  resolve: async ({ mountpoint }, ctx) => await removeRestoreDisk(ctx, mountpoint),
  input: RemoveRestoreDiskInput,
  result: (t) => ({
    removed: t.field({
      type: RemovedDiskType,
      nullable: true,
      description: 'The removed restore disk.',
      resolve: resultOf,
    }),
  }),
});
