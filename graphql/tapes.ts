/** Volumes and drives. */
import { builder, pageComplexity } from './builder.js';

builder.prismaNode('Volume', {
  id: { field: 'id' },
  description: 'One cartridge.',
  fields: (t) => ({
    name: t.exposeString('name'),
    drive: t.relation('drive', { nullable: true, description: 'The drive that has it mounted.' }),
    filesWaiting: t.relationCount('recalls', { where: { state: 'WAITING' } }),
  }),
});

builder.prismaNode('Drive', {
  id: { field: 'id' },
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
    resolve: (query, _root, _args, ctx) => ctx.db.prisma.volume.findMany({ ...query, orderBy: { name: 'asc' } }),
  }),
  drives: t.prismaConnection({
    type: 'Drive',
    cursor: 'id',
    complexity: pageComplexity,
    totalCount: (_root, _args, ctx) => ctx.db.prisma.drive.count(),
    resolve: (query, _root, _args, ctx) => ctx.db.prisma.drive.findMany({ ...query, orderBy: { id: 'asc' } }),
  }),
}));
