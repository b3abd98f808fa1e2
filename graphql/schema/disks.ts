/** Restore disks. */
import { ForbiddenError, InUseError, InvalidInputError, NotFoundError } from '../../src/core/errors.js';
import {
  type DiskMeasurement,
  listDisksByPage,
  type RemovedDisk,
  readHostsOf,
  readMeasurements,
  removeDisk,
  resizeDisk,
} from '../../src/domain/disks/disks.js';
import { type ComparisonProgress, readComparisons } from '../../src/domain/disks/renumbered.js';
import { bigInt, bigIntOrNull, builder, nullable, pageComplexity } from './builder.js';
import { readBack } from './errors.js';
import { createBatch, isInt, readListPage } from './pages.js';

const comparisons = createBatch<number, ComparisonProgress>(readComparisons);
const measurements = createBatch<number, DiskMeasurement>(readMeasurements);
const hosts = createBatch<number, string[]>(readHostsOf);

const ComparisonType = builder.objectRef<ComparisonProgress>('DiskComparison').implement({
  description: 'How far the copies of a restore disk are compared with their checksums.',
  fields: (t) => ({
    compared: t.exposeInt('compared', { description: 'Copies that were compared.' }),
    total: t.exposeInt('total', { description: 'All copies of the disk.' }),
  }),
});

export const RestoreDiskType = builder.prismaNode('RestoreDisk', {
  id: { field: 'id' },
  nullable: true,
  description: 'A mount point where recalled files are put.',
  fields: (t) => ({
    mountpoint: t.exposeString('mountpoint', {
      description: 'Absolute path: a file is at the mount point followed by its logical path.',
    }),
    size: t.expose('size', bigInt('Its allocation, in bytes.')),
    used: t.expose('used', bigInt('Bytes that copies take.')),
    reserved: t.expose('reserved', bigInt('Bytes kept for recalls that run.')),
    free: t.field({
      ...bigIntOrNull(
        'Bytes that are really free on it, whatever its allocation: as engines saw within the last minute, the least where several see it. Null where none could say.',
      ),
      resolve: async ({ id }, _args, ctx) => (await measurements(ctx, id))?.free,
    }),
    problem: t.string({
      ...nullable(
        'What engines saw wrong with it within the last minute, by their hosts; why it is suspended because it fails; or that it is full, in its own words, and takes nothing new for a while. Null where none saw anything wrong.',
      ),
      resolve: async ({ id }, _args, ctx) => (await measurements(ctx, id))?.problem,
    }),
    comparison: t.field({
      type: ComparisonType,
      nullable: true,
      description:
        'Progress of the comparison of its copies with their checksums, which follows a change of their inodes: the disk was copied, or is numbered anew at each mount. Null: no copies are compared.',
      resolve: async ({ id }, _args, ctx) => await comparisons(ctx, id),
    }),
    hosts: t.stringList({
      description:
        'Hosts whose engines have looked at it within the last minute, whatever they saw, the first 100 by name; for viewers and operators.',
      resolve: async ({ id }, _args, ctx) => (await hosts(ctx, id)) ?? [],
    }),
  }),
});

builder.queryFields((t) => ({
  restoreDisks: t.prismaConnection({
    type: 'RestoreDisk',
    cursor: 'id',
    description: 'All restore disks, in the order in which they were added.',
    complexity: pageComplexity,
    totalCount: (_root, _args, ctx) => listDisksByPage(ctx).count(),
    resolve: (query, _root, _args, ctx) => readListPage(query, { name: 'id', isKey: isInt }, listDisksByPage(ctx).page),
  }),
}));

const ResizeDiskInput = builder.inputType('ResizeDiskInput', {
  description: 'Which restore disk gets which allocation.',
  fields: (t) => ({
    mountpoint: t.string({ required: true, description: 'Absolute path of one that is known.' }),
    size: t.field({ type: 'BigInt', required: true, description: 'Its allocation, in bytes.' }),
  }),
});

const RemovedDiskType = builder.objectRef<RemovedDisk>('RemovedDisk').implement({
  description: 'A restore disk that is no more. What stands there is left alone, and so is its marker.',
  fields: (t) => ({
    id: t.globalID({
      description: 'Of its node, which is no more.',
      resolve: ({ id }) => ({ type: 'RestoreDisk', id }),
    }),
    mountpoint: t.exposeString('mountpoint', { description: 'Where it was.' }),
    size: t.expose('size', bigInt('Its allocation, in bytes.')),
    used: t.expose('used', bigInt('Bytes that copies took.')),
    reserved: t.expose('reserved', bigInt('Bytes that were kept for recalls.')),
    stalePartialFiles: t.exposeStringList('stalePartialFiles', {
      description:
        'Logical paths of files that recalls may have left there, whole or in part: the disk fails, so that nobody could look. The first 100.',
    }),
  }),
});

builder.mutationFields((t) => ({
  resizeDisk: t.prismaField({
    type: 'RestoreDisk',
    description:
      'Changes the allocation of a restore disk, which counts as full no more. One that is new is added by `tapegate disk add`, on a host that has it.',
    errors: { types: [InvalidInputError, NotFoundError, ForbiddenError] },
    args: { input: t.arg({ type: ResizeDiskInput, required: true, description: 'Which one, and what.' }) },
    resolve: async (query, _root, { input }, ctx) => {
      const { id } = await resizeDisk(ctx, input);
      return await readBack(listDisksByPage(ctx).one(id, query));
    },
  }),
  removeDisk: t.field({
    type: RemovedDiskType,
    description: 'Takes a restore disk that holds no copies out of use for good.',
    errors: { types: [InvalidInputError, NotFoundError, InUseError, ForbiddenError] },
    args: { mountpoint: t.arg.string({ required: true, description: 'Its absolute path.' }) },
    resolve: async (_root, { mountpoint }, ctx) => await removeDisk(ctx, mountpoint),
  }),
}));
