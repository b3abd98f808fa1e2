/** Restore disks. */
import { listDisksByPage } from '../src/operations/disks/disks.js';
import { builder, pageComplexity } from './builder.js';
import { isInt, readListPage } from './pages.js';

builder.prismaNode('RestoreDisk', {
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
