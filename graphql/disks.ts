/** Restore disks. */
import { listDisksByPage } from '../src/operations/disks/disks.js';
import { type DiskMeasurement, readMeasurements } from '../src/operations/disks/measurements.js';
import { createBatch } from './batch.js';
import { builder, pageComplexity } from './builder.js';
import { isInt, readListPage } from './pages.js';

const measurements = createBatch<number, DiskMeasurement>(readMeasurements);

export const RestoreDiskType = builder.prismaNode('RestoreDisk', {
  id: { field: 'id' },
  nullable: true,
  description: 'A mount point where recalled files are put.',
  fields: (t) => ({
    mountpoint: t.exposeString('mountpoint', {
      description: 'Absolute path: a file is at the mount point followed by its logical path.',
    }),
    size: t.expose('size', { type: 'BigInt', description: 'Its allocation, in bytes.' }),
    used: t.expose('used', { type: 'BigInt', description: 'Bytes that copies take.' }),
    reserved: t.expose('reserved', { type: 'BigInt', description: 'Bytes kept for recalls that run.' }),
    free: t.field({
      type: 'BigInt',
      nullable: true,
      description:
        'Bytes that are really free on it, whatever its allocation: as engines saw within the last minute, the least where several see it. Null where none could say.',
      select: { id: true },
      resolve: async ({ id }, _args, ctx) => (await measurements(ctx, id))?.free,
    }),
    problem: t.string({
      nullable: true,
      description:
        'What engines saw wrong with it within the last minute, by their hosts; why it is held since it fails; or that it is full, in its own words, and takes nothing new for a while. Null where none saw anything wrong.',
      select: { id: true },
      resolve: async ({ id }, _args, ctx) => (await measurements(ctx, id))?.problem,
    }),
  }),
});

builder.queryFields((t) => ({
  restoreDisks: t.prismaConnection({
    authScopes: { operation: 'listDisksByPage' },
    type: 'RestoreDisk',
    cursor: 'id',
    description: 'All restore disks, in the order in which they were added.',
    complexity: pageComplexity,
    totalCount: (_root, _args, ctx) => listDisksByPage(ctx).count(),
    resolve: (query, _root, _args, ctx) => readListPage(query, { name: 'id', isKey: isInt }, listDisksByPage(ctx).page),
  }),
}));
