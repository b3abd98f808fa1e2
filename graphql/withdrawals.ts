/** Files that are withdrawn, and come back. */
import { ForbiddenError, InvalidInputError, NotFoundError } from '../src/errors.js';
import type { ChosenFiles } from '../src/operations/catalogue/chosen-files.js';
import { reinstateFiles, withdrawFiles } from '../src/operations/catalogue/withdrawals.js';
import { builder } from './builder.js';

builder.prismaObjectField('TapeFile', 'withdrawnAt', (t) =>
  t.expose('withdrawnAt', {
    type: 'DateTime',
    nullable: true,
    description: 'Since then nobody can ask for it; null: it is not withdrawn.',
  }),
);

builder.prismaObjectField('TapeFile', 'withdrawnWhy', (t) =>
  t.exposeString('withdrawnWhy', { nullable: true, description: 'Why it is withdrawn; null where nobody has said.' }),
);

export const ChosenFilesType = builder.objectRef<ChosenFiles>('ChosenFiles').implement({
  description: 'The files that `withdrawFiles`, `reinstateFiles` or `renameFiles` was about.',
  fields: (t) => ({
    files: t.exposeInt('files', { description: 'How many there are.' }),
    bytes: t.expose('bytes', { type: 'BigInt', description: 'Bytes of all of them together.' }),
    requests: t.exposeInt('requests', { description: 'Live requests that hold one of them, or wait for one.' }),
  }),
});

export const PATH = 'Of a file; or of a folder, with a slash at its end, for all files below it.';
export const DRY_RUN = 'Only say what would be done.';
const errors = [InvalidInputError, NotFoundError, ForbiddenError];

const WithdrawFilesInput = builder.inputType('WithdrawFilesInput', {
  description: 'What is withdrawn.',
  fields: (t) => ({
    path: t.string({ required: true, description: PATH }),
    why: t.string({
      description: 'For people: those who wait for one of the files are told. At most 2,000 characters.',
    }),
    dryRun: t.boolean({ description: DRY_RUN }),
  }),
});

const ReinstateFilesInput = builder.inputType('ReinstateFilesInput', {
  description: 'What comes back.',
  fields: (t) => ({
    path: t.string({ required: true, description: PATH }),
    dryRun: t.boolean({ description: DRY_RUN }),
  }),
});

builder.mutationFields((t) => ({
  withdrawFiles: t.field({
    authScopes: { operation: 'withdrawFiles' },
    type: ChosenFilesType,
    description:
      'Takes files out of the catalogue: they are in no list, and nobody can ask for them. Who waits for one is told; copies on disk stay as long as requests have them.',
    errors: { types: errors, union: { name: 'WithdrawFilesResult' } },
    args: { input: t.arg({ type: WithdrawFilesInput, required: true, description: 'What is withdrawn.' }) },
    resolve: (_root, { input: { dryRun, ...input } }, ctx) => withdrawFiles(ctx, { ...input, isDryRun: dryRun }),
  }),
  reinstateFiles: t.field({
    authScopes: { operation: 'reinstateFiles' },
    type: ChosenFilesType,
    description: 'Brings withdrawn files back. Requests that wait for them take them in.',
    errors: { types: errors, union: { name: 'ReinstateFilesResult' } },
    args: { input: t.arg({ type: ReinstateFilesInput, required: true, description: 'What comes back.' }) },
    resolve: (_root, { input: { dryRun, ...input } }, ctx) => reinstateFiles(ctx, { ...input, isDryRun: dryRun }),
  }),
}));
