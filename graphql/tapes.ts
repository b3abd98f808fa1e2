/** Volumes and drives. */
import { listVolumes } from '../src/operations/catalogue/volumes.js';
import { listDrives, readClaimed } from '../src/operations/recalls/drives.js';
import { createBatch } from './batch.js';
import { builder, pageComplexity } from './builder.js';
import { isInt, isText, readListPage } from './pages.js';

const claimed = createBatch(readClaimed);

builder.prismaNode('Volume', {
  id: { field: 'id' },
  nullable: true,
  description: 'One cartridge.',
  fields: (t) => ({
    name: t.exposeString('name', { description: 'As the label of the cartridge says.' }),
    medium: t.exposeString('medium', {
      description: 'What it is, for the cost model of the plan: `lto-8`, `lto-9`, or `linear` where nobody has said.',
    }),
    drive: t.relation('drive', { nullable: true, description: 'The drive that has it mounted; null: none.' }),
    filesWaiting: t.relationCount('recalls', {
      where: { state: 'WAITING' },
      description: 'Files that are still to be read from it.',
    }),
  }),
});

builder.prismaNode('Drive', {
  id: { field: 'id' },
  nullable: true,
  description: 'One tape drive, or one unit of concurrency of a back end.',
  fields: (t) => ({
    name: t.exposeString('name', { description: 'As the engine calls it.' }),
    volume: t.relation('volume', { nullable: true, description: 'The volume it has mounted; null: none.' }),
    isClaimed: t.boolean({
      description: 'An engine that lives holds it.',
      select: { id: true },
      resolve: async ({ id }, _args, ctx) => (await claimed(ctx, id)) ?? false,
    }),
    filesRunning: t.relationCount('recalls', {
      where: { state: 'RUNNING' },
      description: 'Files that it has in hand.',
    }),
  }),
});

builder.queryFields((t) => ({
  volumes: t.prismaConnection({
    authScopes: { operation: 'listVolumes' },
    type: 'Volume',
    cursor: 'name',
    description: 'All volumes, in order of their names.',
    complexity: pageComplexity,
    totalCount: (_root, _args, ctx) => listVolumes(ctx).count(),
    resolve: (query, _root, _args, ctx) => readListPage(query, { name: 'name', isKey: isText }, listVolumes(ctx).page),
  }),
  drives: t.prismaConnection({
    authScopes: { operation: 'listDrives' },
    type: 'Drive',
    cursor: 'id',
    description: 'All drives, in the order in which they were added.',
    complexity: pageComplexity,
    totalCount: (_root, _args, ctx) => listDrives(ctx).count(),
    resolve: (query, _root, _args, ctx) => readListPage(query, { name: 'id', isKey: isInt }, listDrives(ctx).page),
  }),
}));
