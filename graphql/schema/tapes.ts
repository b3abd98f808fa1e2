/** Volumes and drives. */

import { ForbiddenError, InUseError, InvalidInputError, NotFoundError } from '../../src/core/errors.js';
import type { ChosenFiles } from '../../src/domain/catalogue/chosen-files.js';
import { listVolumes, readVolumeFiguresOf, readVolumes, setMedium } from '../../src/domain/catalogue/volumes.js';
import { type RetiredVolume, reinstateVolume, retireVolume } from '../../src/domain/catalogue-changes/retirements.js';
import { moveVolume } from '../../src/domain/catalogue-changes/volume-moves.js';
import type { Context } from '../../src/domain/context.js';
import { listDrives, readClaimed, readDriveHosts } from '../../src/domain/recalls/drives.js';
import type { Volume } from '../../src/generated/prisma/client.js';
import { bigInt, builder, nullable, pageComplexity, timeOrNull } from './builder.js';
import { readBack } from './errors.js';
import { createBatch, isInt, isText, readListPage } from './pages.js';

const claimed = createBatch(readClaimed);
const hosts = createBatch(readDriveHosts);
const figures = createBatch((ctx: Context, ids: number[]) => readVolumeFiguresOf(ctx, ids, ctx.reader));

const volumeOf = createBatch(readVolumes);

/** The volume of an id, which a file may not have. */
export async function findVolume(ctx: Context, id: number | null): Promise<Volume | null> {
  return id === null ? null : ((await volumeOf(ctx, id)) ?? null);
}

/** Each of the files on a volume is looked at. */
const FIGURES_COMPLEXITY = 10;

export const VolumeType = builder.prismaNode('Volume', {
  id: { field: 'id' },
  nullable: true,
  description: 'One cartridge.',
  fields: (t) => ({
    name: t.exposeString('name', { description: 'As the label of the cartridge says.' }),
    medium: t.exposeString('medium', {
      description: 'What it is, for the cost model of the plan: `lto-8`, `lto-9`, or `linear` where nobody has said.',
    }),
    library: t.relation('library', { description: 'The tape system that it is in.' }),
    drive: t.relation('drive', nullable('The drive that has it mounted; null: none.')),
    filesWaiting: t.relationCount('recalls', {
      where: { state: 'WAITING' },
      description: 'Files that are still to be read from it.',
    }),
    files: t.int({
      description: 'Files that are on it, by the catalogue; for viewers and operators.',
      complexity: FIGURES_COMPLEXITY,
      resolve: async ({ id }, _args, ctx) => (await figures(ctx, id))?.files ?? 0,
    }),
    bytes: t.field({
      ...bigInt('Bytes of these files together; for viewers and operators.'),
      complexity: FIGURES_COMPLEXITY,
      resolve: async ({ id }, _args, ctx) => (await figures(ctx, id))?.bytes ?? 0n,
    }),
    retiredAt: t.expose(
      'retiredAt',
      timeOrNull('Since then no file is on it, and none comes there; null: it is in use.'),
    ),
    retiredWhy: t.exposeString('retiredWhy', nullable('Why it was retired; null if no reason was given.')),
  }),
});

builder.prismaNode('Drive', {
  id: { field: 'id' },
  nullable: true,
  description: 'One tape drive, or one unit of concurrency of a library.',
  fields: (t) => ({
    name: t.exposeString('name', { description: 'As the engine calls it.' }),
    library: t.relation('library', { description: 'The tape system that it belongs to.' }),
    volume: t.relation('volume', nullable('The volume it has mounted; null: none.')),
    isClaimed: t.boolean({
      description: 'An engine that lives holds it.',
      resolve: async ({ id }, _args, ctx) => (await claimed(ctx, id)) ?? false,
    }),
    host: t.string({
      ...nullable(
        'Where the engine runs that holds it; null: none does, or one of a version that does not say. For viewers and operators.',
      ),
      resolve: async ({ id }, _args, ctx) => (await hosts(ctx, id)) ?? null,
    }),
    filesRunning: t.relationCount('recalls', {
      where: { state: 'RUNNING' },
      description: 'Files that it has in hand.',
    }),
  }),
});

builder.queryFields((t) => ({
  volumes: t.prismaConnection({
    type: 'Volume',
    cursor: 'name',
    description: 'All volumes that are in use, in order of their names.',
    complexity: pageComplexity,
    args: { retired: t.arg.boolean({ description: 'Those that are retired as well; without it, they are left out.' }) },
    totalCount: (_root, { retired }, ctx) => listVolumes(ctx, { retired }).count(),
    resolve: (query, _root, { retired }, ctx) =>
      readListPage(query, { name: 'name', isKey: isText }, listVolumes(ctx, { retired }).page),
  }),
  drives: t.prismaConnection({
    type: 'Drive',
    cursor: 'id',
    description: 'All drives, in the order in which they were added.',
    complexity: pageComplexity,
    totalCount: (_root, _args, ctx) => listDrives(ctx).count(),
    resolve: (query, _root, _args, ctx) => readListPage(query, { name: 'id', isKey: isInt }, listDrives(ctx).page),
  }),
}));

const SetVolumeInput = builder.inputType('SetVolumeInput', {
  description: 'Which volumes are meant, and what is said of them. Exactly one of names and all is given.',
  fields: (t) => ({
    names: t.stringList({ description: 'As the labels of the cartridges say; all are known, or nothing is changed.' }),
    all: t.boolean({ description: 'All volumes.' }),
    medium: t.string({ required: true, description: '`lto-8`, `lto-9` or `linear`.' }),
  }),
});

const ChangedVolumes = builder.objectRef<{ volumes: number; medium: string }>('ChangedVolumes').implement({
  description: 'What `setVolume` has done.',
  fields: (t) => ({
    volumes: t.exposeInt('volumes', { description: 'How many are as was said now.' }),
    medium: t.exposeString('medium', { description: 'What they are.' }),
  }),
});

export const ChosenFilesType = builder.objectRef<ChosenFiles>('ChosenFiles').implement({
  description: 'The files that a change of the catalogue was about.',
  fields: (t) => ({
    files: t.exposeInt('files', { description: 'How many there are.' }),
    bytes: t.expose('bytes', bigInt('Bytes of all of them together.')),
    requests: t.exposeInt('requests', { description: 'Live requests that hold one of them, or wait for one.' }),
  }),
});

const RetiredVolumeType = builder.objectRef<RetiredVolume>('RetiredVolume').implement({
  description: 'The files that had their first or second copy on the volume; some may have been withdrawn before.',
  fields: (t) => ({
    files: t.exposeInt('files', { description: 'How many there are.' }),
    bytes: t.expose('bytes', bigInt('Bytes of all of them together.')),
    elsewhere: t.exposeInt('elsewhere', { description: 'Those with another copy, where they are read from now on.' }),
    withdrawn: t.exposeInt('withdrawn', { description: 'Those that were nowhere else, and are withdrawn with it.' }),
    requests: t.exposeInt('requests', { description: 'Live requests that hold one of them, or wait for one.' }),
  }),
});

const DRY_RUN = 'Only say what would be done.';
const errors = [InvalidInputError, NotFoundError, InUseError, ForbiddenError];

const MoveVolumeInput = builder.inputType('MoveVolumeInput', {
  description: 'Which cartridge was copied onto which.',
  fields: (t) => ({
    from: t.string({ required: true, description: 'As the label of the one says that was copied.' }),
    to: t.string({
      required: true,
      description:
        'The same of the one that has the copy; it is made, of the same library and medium, where nobody knows it.',
    }),
    dryRun: t.boolean({ description: DRY_RUN }),
  }),
});

const RetireVolumeInput = builder.inputType('RetireVolumeInput', {
  description: 'Which volume leaves the archive.',
  fields: (t) => ({
    name: t.string({ required: true, description: 'As the label of the cartridge says.' }),
    why: t.string({
      description:
        'For people: those who wait for a file that is withdrawn with it are told. At most 2,000 characters.',
    }),
    withdraw: t.boolean({
      description: 'Withdraw the files that are nowhere else; without it, a volume with such is refused.',
    }),
    dryRun: t.boolean({ description: DRY_RUN }),
  }),
});

builder.mutationFields((t) => ({
  setVolume: t.field({
    type: ChangedVolumes,
    description: 'Says of which medium volumes are, which the planner goes by.',
    errors: { types: [InvalidInputError, NotFoundError, ForbiddenError] },
    args: { input: t.arg({ type: SetVolumeInput, required: true, description: 'Which volumes, and what.' }) },
    resolve: async (_root, { input: { names, all, medium } }, ctx) => {
      if ((names?.length ?? 0) > 0 === (all === true)) {
        throw new InvalidInputError('names', 'must be given, or else all be true');
      }
      return { medium, volumes: await setMedium(ctx, { medium, names: all ? undefined : (names ?? []) }) };
    },
  }),
  moveVolume: t.field({
    type: ChosenFilesType,
    description:
      'Says that a cartridge was copied onto another one: its files are there from now on, at the same positions. Nothing is copied.',
    errors: { types: errors },
    args: { input: t.arg({ type: MoveVolumeInput, required: true, description: 'Which was copied onto which.' }) },
    resolve: (_root, { input: { dryRun, ...input } }, ctx) => moveVolume(ctx, { ...input, isDryRun: dryRun }),
  }),
  retireVolume: t.field({
    type: RetiredVolumeType,
    description:
      'Takes a volume out of the archive: its files are read from their other copies from now on, and nothing is put on it any more.',
    errors: { types: errors },
    args: { input: t.arg({ type: RetireVolumeInput, required: true, description: 'Which one, and why.' }) },
    resolve: (_root, { input: { dryRun, ...input } }, ctx) => retireVolume(ctx, { ...input, isDryRun: dryRun }),
  }),
  reinstateVolume: t.prismaField({
    type: 'Volume',
    description: 'Has a retired volume used again. The files that it had do not come back by themselves.',
    errors: { types: [InvalidInputError, NotFoundError, ForbiddenError] },
    args: { name: t.arg.string({ required: true, description: 'As the label of the cartridge says.' }) },
    resolve: async (query, _root, { name }, ctx) => {
      const id = await reinstateVolume(ctx, name);
      return await readBack(listVolumes(ctx).one(id, query));
    },
  }),
}));
