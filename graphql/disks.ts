/** Restore disks. */
import { listDisksByPage } from '../src/operations/disks/disks.js';
import { builder, pageComplexity } from './builder.js';
import { isInt, readListPage } from './pages.js';

builder.prismaNode('RestoreDisk', {
  id: { field: 'id' },
  nullable: true,
  description: 'A mount point where recalled files are put. Figures are bytes.',
  fields: (t) => ({
    mountpoint: t.exposeString('mountpoint'),
    size: t.expose('size', { type: 'BigInt' }),
    used: t.expose('used', { type: 'BigInt' }),
    reserved: t.expose('reserved', { type: 'BigInt', description: 'For recalls that run.' }),
  }),
});

builder.queryFields((t) => ({
  restoreDisks: t.prismaConnection({
    type: 'RestoreDisk',
    cursor: 'id',
    complexity: pageComplexity,
    totalCount: (_root, _args, ctx) => listDisksByPage(ctx).count(),
    resolve: (query, _root, _args, ctx) => readListPage(query, { name: 'id', isKey: isInt }, listDisksByPage(ctx).page),
  }),
}));
