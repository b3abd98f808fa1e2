/** Volumes and drives. */
import { listVolumes } from '../src/operations/catalogue/volumes.js';
import { listDrives } from '../src/operations/recalls/drives.js';
import { builder, pageComplexity } from './builder.js';
import { isInt, isText, readListPage } from './pages.js';

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
    totalCount: (_root, _args, ctx) => listVolumes(ctx).count(),
    resolve: (query, _root, _args, ctx) => readListPage(query, { name: 'name', isKey: isText }, listVolumes(ctx).page),
  }),
  drives: t.prismaConnection({
    type: 'Drive',
    cursor: 'id',
    complexity: pageComplexity,
    totalCount: (_root, _args, ctx) => listDrives(ctx).count(),
    resolve: (query, _root, _args, ctx) => readListPage(query, { name: 'id', isKey: isInt }, listDrives(ctx).page),
  }),
}));
