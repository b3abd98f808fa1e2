/** Volumes and drives. */
import { builder, pageComplexity } from './builder.js';
import { readListPage } from './pages.js';

builder.prismaNode('Volume', {
  id: { field: 'id' },
  nullable: true,
  description: 'One cartridge.',
  fields: (t) => ({
    name: t.exposeString('name'),
    drive: t.relation('drive', { nullable: true, description: 'The drive that has it mounted.' }),
    filesWaiting: t.relationCount('recalls', { where: { state: 'WAITING' } }),
  }),
});

builder.prismaNode('Drive', {
  id: { field: 'id' },
  nullable: true,
  description: 'One tape drive, or one unit of concurrency of a back end.',
  fields: (t) => ({
    name: t.exposeString('name'),
    volume: t.relation('volume', { nullable: true, description: 'The volume it has mounted.' }),
    isClaimed: t.boolean({ select: { engineId: true }, resolve: (drive) => drive.engineId !== null }),
    filesRunning: t.relationCount('recalls', { where: { state: 'RUNNING' } }),
  }),
});

builder.queryFields((t) => ({
  volumes: t.prismaConnection({
    type: 'Volume',
    cursor: 'name',
    complexity: pageComplexity,
    totalCount: (_root, _args, ctx) => ctx.db.prisma.volume.count(),
    resolve: (query, _root, _args, ctx) =>
      readListPage(query, { name: 'name', type: 'string' }, (page) =>
        ctx.db.prisma.volume.findMany({ ...page, orderBy: { name: 'asc' } }),
      ),
  }),
  drives: t.prismaConnection({
    type: 'Drive',
    cursor: 'id',
    complexity: pageComplexity,
    totalCount: (_root, _args, ctx) => ctx.db.prisma.drive.count(),
    resolve: (query, _root, _args, ctx) =>
      readListPage(query, { name: 'id', type: 'number' }, (page) =>
        ctx.db.prisma.drive.findMany({ ...page, orderBy: { id: 'asc' } }),
      ),
  }),
}));
