/** Defines the GraphQL mutations that withdraw, reinstate, rename and purge files. */
import { ForbiddenError, InUseError, InvalidInputError, NotFoundError } from '../../src/core/errors.js';
import { type PurgedFiles, purgeFiles, reinstateFiles, withdrawFiles } from '../../src/domain/catalogue/withdrawals.js';
import { renameFiles } from '../../src/domain/catalogue-changes/renames.js';
import { bigInt, builder } from './builder.js';
import { defineMutation, resultOf } from './payloads.js';
import { AffectedFilesType } from './tapes.js';

const PATH = 'A logical path. A trailing slash selects all files below the prefix.';
const DRY_RUN = 'Whether to report the changes without making them.';
const errors = [InvalidInputError, NotFoundError, ForbiddenError];
const renameErrors = [...errors, InUseError];

const WithdrawFilesInput = builder.inputType('WithdrawFilesInput', {
  description: 'Input of `withdrawFiles`.',
  fields: (t) => ({
    path: t.string({ required: true, description: PATH }),
    reason: t.string({
      description: 'The reason shown to users who wait for one of the files. At most 2,000 characters.',
    }),
    dryRun: t.boolean({ description: DRY_RUN }),
  }),
});

const ReinstateFilesInput = builder.inputType('ReinstateFilesInput', {
  description: 'Input of `reinstateFiles`.',
  fields: (t) => ({
    path: t.string({ required: true, description: PATH }),
    dryRun: t.boolean({ description: DRY_RUN }),
  }),
});

const RenameFilesInput = builder.inputType('RenameFilesInput', {
  description: 'Input of `renameFiles`.',
  fields: (t) => ({
    from: t.string({ required: true, description: PATH }),
    to: t.string({
      required: true,
      description:
        'The new path. Must end with a slash if `from` ends with a slash, and must not end with a slash otherwise.',
    }),
    inLibrary: t.boolean({
      description:
        'Whether the files were also renamed in the library. True is allowed only for a library that finds files by path. If false (the default), Tapegate continues to use the old paths to read the files.',
    }),
    dryRun: t.boolean({ description: DRY_RUN }),
  }),
});

const PurgeFilesInput = builder.inputType('PurgeFilesInput', {
  description: 'Input of `purgeFiles`.',
  fields: (t) => ({
    path: t.string({ required: true, description: PATH }),
    dryRun: t.boolean({ description: DRY_RUN }),
  }),
});

const PurgedFilesType = builder.objectRef<PurgedFiles>('PurgedFiles').implement({
  description: 'The result of `purgeFiles`.',
  fields: (t) => ({
    fileCount: t.exposeInt('files', { description: 'The number of purged files.' }),
    bytes: t.expose('bytes', bigInt('The total size of the purged files in bytes.')),
    filesKept: t.exposeInt('kept', {
      description:
        'The number of withdrawn files that were not purged because they are on disk or in use. A file is in use if a live request contains the file or waits for it.',
    }),
  }),
});

defineMutation('withdrawFiles', {
  description:
    'Withdraws files from the catalogue. Withdrawn files are not listed and cannot be requested. Requests that wait for a withdrawn file report the withdrawal. A copy stays on disk while a request contains the file.',
  errors: errors,
  resolve: ({ dryRun, ...input }, ctx) => withdrawFiles(ctx, { ...input, isDryRun: dryRun }),
  input: WithdrawFilesInput,
  result: (t) => ({
    affected: t.field({
      type: AffectedFilesType,
      nullable: true,
      description: 'The withdrawn files.',
      resolve: resultOf,
    }),
  }),
});

defineMutation('reinstateFiles', {
  description: 'Restores withdrawn files to the catalogue, and adds each file to the requests that wait for the file.',
  errors: errors,
  resolve: ({ dryRun, ...input }, ctx) => reinstateFiles(ctx, { ...input, isDryRun: dryRun }),
  input: ReinstateFilesInput,
  result: (t) => ({
    affected: t.field({
      type: AffectedFilesType,
      nullable: true,
      description: 'The files that were restored to the catalogue.',
      resolve: resultOf,
    }),
  }),
});

defineMutation('renameFiles', {
  description:
    'Renames files in the catalogue. Requests keep the renamed files, and copies keep their paths on disk. If a request waits for the new path of a file, Tapegate adds the renamed file to the request.',
  errors: renameErrors,
  resolve: ({ dryRun, inLibrary, ...input }, ctx) =>
    renameFiles(ctx, { ...input, isInLibrary: inLibrary, isDryRun: dryRun }),
  input: RenameFilesInput,
  result: (t) => ({
    affected: t.field({
      type: AffectedFilesType,
      nullable: true,
      description: 'The renamed files.',
      resolve: resultOf,
    }),
  }),
});

defineMutation('purgeFiles', {
  description:
    'Permanently removes withdrawn files from the catalogue, so that other files can use their paths. Requests still list each purged file, but under a path that begins with `/.tapegate-purged/`.',
  errors: renameErrors,
  resolve: ({ dryRun, ...input }, ctx) => purgeFiles(ctx, { ...input, isDryRun: dryRun }),
  input: PurgeFilesInput,
  result: (t) => ({
    purged: t.field({ type: PurgedFilesType, nullable: true, description: 'The purged files.', resolve: resultOf }),
  }),
});
