/** Files that get other paths, and files that are forgotten. */

import { hasRole } from '../src/caller.js';
import { ForbiddenError, InUseError, InvalidInputError, NotFoundError } from '../src/errors.js';
import { type ForgottenFiles, forgetFiles } from '../src/operations/catalogue/forgetting.js';
import { renameFiles } from '../src/operations/catalogue/renames.js';
import { builder } from './builder.js';
import { ChosenFilesType, DRY_RUN, PATH } from './withdrawals.js';

builder.prismaObjectField('TapeFile', 'tapePath', (t) =>
  t.string({
    nullable: true,
    description:
      'By which its library finds it, where that is another name than its path: it was renamed here, and not there. For operators and viewers.',
    // it may be of a folder that is kept from others
    resolve: ({ tapePath }, _args, ctx) => (hasRole(ctx.caller, 'operator', 'viewer') ? tapePath : null),
  }),
);

const errors = [InvalidInputError, NotFoundError, InUseError, ForbiddenError];

const RenameFilesInput = builder.inputType('RenameFilesInput', {
  description: 'What is renamed.',
  fields: (t) => ({
    from: t.string({ required: true, description: PATH }),
    to: t.string({
      required: true,
      description: 'What it is called from now on, with a slash at its end where `from` has one.',
    }),
    inLibrary: t.boolean({
      description:
        'A library that finds files by their paths calls them so as well by now; else it finds them by their names of before.',
    }),
    dryRun: t.boolean({ description: DRY_RUN }),
  }),
});

const ForgetFilesInput = builder.inputType('ForgetFilesInput', {
  description: 'What is forgotten.',
  fields: (t) => ({
    path: t.string({ required: true, description: PATH }),
    dryRun: t.boolean({ description: DRY_RUN }),
  }),
});

const ForgottenFilesType = builder.objectRef<ForgottenFiles>('ForgottenFiles').implement({
  description: 'The files that `forgetFiles` was about.',
  fields: (t) => ({
    files: t.exposeInt('files', { description: 'How many are forgotten.' }),
    bytes: t.expose('bytes', { type: 'BigInt', description: 'Bytes of all of them together.' }),
    kept: t.exposeInt('kept', {
      description:
        'Withdrawn ones that are not forgotten yet: something of them is on disk, or a live request has them or waits for them.',
    }),
  }),
});

builder.mutationFields((t) => ({
  renameFiles: t.field({
    authScopes: { operation: 'renameFiles' },
    type: ChosenFilesType,
    description:
      'Gives files other paths. Requests keep them, copies on disk stay where they are, and requests that wait for the new paths take them in.',
    errors: { types: errors, union: { name: 'RenameFilesResult' } },
    args: { input: t.arg({ type: RenameFilesInput, required: true, description: 'What is renamed.' }) },
    resolve: (_root, { input: { dryRun, inLibrary, ...input } }, ctx) =>
      renameFiles(ctx, { ...input, isInLibrary: inLibrary, isDryRun: dryRun }),
  }),
  forgetFiles: t.field({
    authScopes: { operation: 'forgetFiles' },
    type: ForgottenFilesType,
    description:
      'Forgets withdrawn files for good: their paths are free for others. What requests tell of them stays, under a name that no file of the catalogue has.',
    errors: { types: errors, union: { name: 'ForgetFilesResult' } },
    args: { input: t.arg({ type: ForgetFilesInput, required: true, description: 'What is forgotten.' }) },
    resolve: (_root, { input: { dryRun, ...input } }, ctx) => forgetFiles(ctx, { ...input, isDryRun: dryRun }),
  }),
}));
