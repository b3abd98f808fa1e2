/** Volumes whose files have moved to others, and volumes that leave the archive. */
import { ForbiddenError, InUseError, InvalidInputError, NotFoundError } from '../src/errors.js';
import type { ChosenFiles } from '../src/operations/catalogue/chosen-files.js';
import { type RetiredVolume, reinstateVolume, retireVolume } from '../src/operations/catalogue/retirements.js';
import { moveVolume } from '../src/operations/catalogue/volume-moves.js';
import { getVolume } from '../src/operations/catalogue/volumes.js';
import { builder } from './builder.js';
import { readBack } from './errors.js';

builder.prismaObjectField('Volume', 'retiredAt', (t) =>
  t.expose('retiredAt', {
    type: 'DateTime',
    nullable: true,
    description: 'Since then no file is on it, and none comes there; null: it is in use.',
  }),
);

builder.prismaObjectField('Volume', 'retiredWhy', (t) =>
  t.exposeString('retiredWhy', { nullable: true, description: 'Why it was retired; null where nobody has said.' }),
);

const MovedVolumeType = builder.objectRef<ChosenFiles>('MovedVolume').implement({
  description: 'The files that had their first or second copy on the volume.',
  fields: (t) => ({
    files: t.exposeInt('files', { description: 'How many there are.' }),
    bytes: t.expose('bytes', { type: 'BigInt', description: 'Bytes of all of them together.' }),
    requests: t.exposeInt('requests', { description: 'Live requests that hold one of them, or wait for one.' }),
  }),
});

const RetiredVolumeType = builder.objectRef<RetiredVolume>('RetiredVolume').implement({
  description: 'The files that had their first or second copy on the volume; some may have been withdrawn before.',
  fields: (t) => ({
    files: t.exposeInt('files', { description: 'How many there are.' }),
    bytes: t.expose('bytes', { type: 'BigInt', description: 'Bytes of all of them together.' }),
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
  moveVolume: t.field({
    authScopes: { operation: 'moveVolume' },
    type: MovedVolumeType,
    description:
      'Says that a cartridge was copied onto another one: its files are there from now on, at the same positions. Nothing is copied.',
    errors: { types: errors, union: { name: 'MoveVolumeResult' } },
    args: { input: t.arg({ type: MoveVolumeInput, required: true, description: 'Which was copied onto which.' }) },
    resolve: (_root, { input: { dryRun, ...input } }, ctx) => moveVolume(ctx, { ...input, isDryRun: dryRun }),
  }),
  retireVolume: t.field({
    authScopes: { operation: 'retireVolume' },
    type: RetiredVolumeType,
    description:
      'Takes a volume out of the archive: its files are read from their other copies from now on, and nothing is put on it any more.',
    errors: { types: errors, union: { name: 'RetireVolumeResult' } },
    args: { input: t.arg({ type: RetireVolumeInput, required: true, description: 'Which one, and why.' }) },
    resolve: (_root, { input: { dryRun, ...input } }, ctx) => retireVolume(ctx, { ...input, isDryRun: dryRun }),
  }),
  reinstateVolume: t.prismaField({
    authScopes: { operation: 'reinstateVolume' },
    type: 'Volume',
    description: 'Has a retired volume used again. The files that it had do not come back by themselves.',
    errors: { types: [InvalidInputError, NotFoundError, ForbiddenError], union: { name: 'ReinstateVolumeResult' } },
    args: { name: t.arg.string({ required: true, description: 'As the label of the cartridge says.' }) },
    resolve: async (query, _root, { name }, ctx) => {
      const id = await reinstateVolume(ctx, name);
      return await readBack(getVolume(ctx, id, query));
    },
  }),
}));
