/** Tape files, and the subscription to their stages. */
import type { DefaultConnectionArguments } from '@pothos/plugin-relay';
import type { GraphQLResolveInfo } from 'graphql';
import { hasRole } from '../../src/core/caller.js';
import { ForbiddenError, InUseError, InvalidInputError, NotFoundError } from '../../src/core/errors.js';
import type { Stage } from '../../src/core/stages.js';
import { readAllowed } from '../../src/domain/access/paths.js';
import { getFile, type ListFilesInput, listFiles } from '../../src/domain/catalogue/files.js';
import { type Entry, type Folder, showFolder } from '../../src/domain/catalogue/folders.js';
import { type PurgedFiles, purgeFiles, reinstateFiles, withdrawFiles } from '../../src/domain/catalogue/withdrawals.js';
import { renameFiles } from '../../src/domain/catalogue-changes/renames.js';
import type { Context, LocatedCopy } from '../../src/domain/context.js';
import { readDisks } from '../../src/domain/disks/disks.js';
import { recordMissingFiles } from '../../src/domain/disks/missing.js';
import type { RowCount } from '../../src/domain/page-keys.js';
import { type StageChange, watchStages } from '../../src/domain/requests/watch.js';
import { commonFileFields } from '../../src/domain/row-columns.js';
import type { RestoreDisk, TapeFile } from '../../src/generated/prisma/client.js';
import {
  bigInt,
  bigIntOrNull,
  builder,
  describeValues,
  nullable,
  pageComplexity,
  time,
  timeOrNull,
} from './builder.js';
import { RestoreDiskType } from './disks.js';
import { watchFromPlace } from './event-place.js';
import { createBatch, isText, resolveRootPage, selectedNames } from './pages.js';
import { ChosenFilesType, findVolume, VolumeType } from './tapes.js';

const StageType = builder.enumType('Stage', {
  description: 'Where a tape file is.',
  values: describeValues<Stage>({
    UNVERIFIED: 'On disk; its tape copy is not confirmed, or the file was changed on disk since.',
    ONDISK: 'On disk and on tape.',
    ONTAPE: 'On tape alone.',
    RESTORING: 'On tape; its recall runs.',
    RESTORED: 'On tape, with a copy on a restore disk.',
  }),
});

const ChecksumOriginType = builder.enumType('ChecksumOrigin', {
  description: 'Who says what the checksum of a tape file is.',
  values: describeValues({
    ARCHIVE: 'The person or program that registered the file.',
    FIRST_RESTORE: 'The first restore from its present position computed it, because none was registered.',
  }),
});

type ChecksumOrigin = 'ARCHIVE' | 'FIRST_RESTORE';

function originOf(file: { checksum: string | null; checksumTaken: boolean }): ChecksumOrigin | null {
  if (file.checksum === null) return null;
  return file.checksumTaken ? 'FIRST_RESTORE' : 'ARCHIVE';
}

/** The restore disk that has a copy. A copy that is about to be removed does not count. */
function diskOfCopy({ stage, diskId, changedDiskId }: TapeFile): number | null {
  return stage === 'UNVERIFIED' ? changedDiskId : stage === 'RESTORED' ? diskId : null;
}

const diskOf = createBatch(readDisks);

/** The path of a copy below its mount point. */
const placeOf = ({ path, diskPath }: TapeFile): string => diskPath ?? path;

/** Whether copies are in place. Records those that are missing. */
const isThere = createBatch(async (ctx, keys: (LocatedCopy & { fileId: bigint })[]) => {
  const ids = (await ctx.copies.findMissing(keys)).map(({ fileId }) => fileId);
  const missing = await recordMissingFiles(ctx, ids);
  return new Map(keys.map((key) => [key, !missing.has(key.fileId)]));
});

/** Finds the copy of a file. Whether it can be read is unknown if its disk fails. */
async function findCopy(ctx: Context, file: TapeFile): Promise<{ place: string; isReachable: boolean } | null> {
  const disk = await findDisk(ctx, file);
  if (!disk) return null;
  const copy = { fileId: file.id, diskId: disk.id, mountpoint: disk.mountpoint, path: placeOf(file) };
  // a disk that fails, as one that is not mounted, may return with its copies
  const isReachable = disk.retryAt === null;
  return (await isThere(ctx, copy)) ? { place: disk.mountpoint + copy.path, isReachable } : null;
}

/** The restore disk that has a copy of a file, if the caller may read it; path rules may hide where copies are. */
async function findDisk(ctx: Context, file: TapeFile): Promise<RestoreDisk | null> {
  const diskId = (await fetchable(ctx, file.id)) ? diskOfCopy(file) : null;
  return diskId === null ? null : ((await diskOf(ctx, diskId)) ?? null);
}

const fetchable = createBatch((ctx, ids: bigint[]) => readAllowed(ctx, 'FETCH', ids));

/** As `/webdav` has it (rest/v1/paths.ts), which GraphQL does not know. */
const bytesPathOf = (path: string): string => `/webdav${path.split('/').map(encodeURIComponent).join('/')}`;

export const TapeFileType = builder.prismaNode('TapeFile', {
  id: { field: 'id' },
  nullable: true,
  description: 'One file of the catalogue.',
  fields: (t) => ({
    path: t.exposeString('path', { description: 'Logical path.' }),
    size: t.expose('size', bigInt('Bytes.')),
    stage: t.expose('stage', { type: StageType, description: 'Where it is now.' }),
    verified: t.expose('verified', timeOrNull('When the tape copy was last confirmed; null: never.')),
    checksum: t.exposeString('checksum', {
      nullable: true,
      description:
        'Of the tape copy: `sha256:`, `adler32:` or `md5:` and lower-case hex digits; null where none is known.',
    }),
    checksumOrigin: t.field({
      type: ChecksumOriginType,
      nullable: true,
      description: 'Who says what the checksum is; null where none is known.',
      resolve: originOf,
    }),
    adler32: t.string({
      ...nullable('Adler-32 of the same bytes, which FTS and Rucio compare: 8 hex digits; null where none is known.'),
      resolve: ({ checksum, adler32 }) => adler32 ?? /^adler32:(.*)$/.exec(checksum ?? '')?.[1] ?? null,
    }),
    spotName: t.exposeString('spotName', nullable('The storage spot it came from; null where none is known.')),
    volume: t.field({
      type: VolumeType,
      nullable: true,
      description: 'The volume that has it; null: none is known.',
      resolve: ({ volumeId }, _args, ctx) => findVolume(ctx, volumeId),
    }),
    position: t.expose(
      'position',
      bigIntOrNull('Its place on the volume: file sequence number or block; null: not known.'),
    ),
    disk: t.field({
      type: RestoreDiskType,
      nullable: true,
      description: 'The restore disk that has a copy, also one that was changed by hand since; null: none.',
      resolve: (file, _args, ctx) => findDisk(ctx, file),
    }),
    restoredPath: t.string({
      ...nullable(
        'Path of the restored copy, which may have been changed outside Tapegate. Null if there is none, or while its disk fails, for example because it is not mounted.',
      ),
      resolve: async (file, _args, ctx) => {
        const copy = await findCopy(ctx, file);
        return copy?.isReachable ? copy.place : null;
      },
    }),
    isAtPrimaryPlace: t.boolean({
      description: 'It is on disk where it was archived from, and has no copy in the restore area.',
      resolve: ({ stage, changedDiskId }) => stage === 'ONDISK' || (stage === 'UNVERIFIED' && changedDiskId === null),
    }),
  }),
});

builder.prismaObjectFields(TapeFileType, (t) => ({
  bytesPath: t.string({
    ...nullable(
      'Where the restored copy is read by GET, as a path of the gateway; whether it may be read is seen then. Null: there is none, or the site serves no bytes.',
    ),
    resolve: async (file, _args, ctx) => {
      if (ctx.config.door.webdav === 'off' || file.stage !== 'RESTORED') return null;
      return (await findCopy(ctx, file)) === null ? null : bytesPathOf(file.path);
    },
  }),
  withdrawnAt: t.expose(
    'withdrawnAt',
    timeOrNull('Time since which it cannot be requested; null: it is not withdrawn.'),
  ),
  withdrawnWhy: t.exposeString('withdrawnWhy', nullable('Why it is withdrawn; null if no reason was given.')),
  tapePath: t.string({
    nullable: true,
    description:
      'By which its library finds it, where that is another name than its path: it was renamed here, and not there. For operators and viewers.',
    // it may be of a folder that is kept from others
    resolve: ({ tapePath }, _args, ctx) => (hasRole(ctx.caller, 'operator', 'viewer') ? tapePath : null),
  }),
  copyVolume: t.field({
    type: VolumeType,
    nullable: true,
    description: 'The volume that has the same bytes once more; null: none is known.',
    resolve: ({ copyVolumeId }, _args, ctx) => findVolume(ctx, copyVolumeId),
  }),
  copyPosition: t.expose('copyPosition', bigIntOrNull('Their place on `copyVolume`; null: not known.')),
  copyError: t.exposeString(
    'copyError',
    nullable('Why they could not be read there, if that was tried: the file is read at its other place since then.'),
  ),
}));

const CountPrecisionType = builder.enumType('CountPrecision', {
  description: 'How exactly a list is counted.',
  values: describeValues({
    EXACT: 'Each is counted, however many there are.',
    ESTIMATED:
      'Exact up to 10,000 files if the database counts them in time; otherwise an estimate, flagged as one and never below the counted files.',
  }),
});

interface CountedFiles extends ListFilesInput {
  count?: 'EXACT' | 'ESTIMATED' | null | undefined;
}

interface FilesPage {
  isEstimate: boolean;
  /** Counts at the first call. */
  counted: () => Promise<RowCount>;
}

/** @param found files on the page: an estimate is not below them */
function countOf(ctx: Context, args: CountedFiles, found: number): FilesPage {
  const isEstimate = args.count === 'ESTIMATED';
  let counted: Promise<RowCount> | undefined;
  return {
    isEstimate,
    counted: () => {
      const { count, estimate } = listFiles(ctx, args, ctx.reader);
      counted ??= isEstimate
        ? estimate().then((rows) => (rows.isEstimated ? { ...rows, count: Math.max(rows.count, found) } : rows))
        : count().then((exact) => ({ count: exact, isEstimated: false }));
      return counted;
    },
  };
}

/** The files of a page; none if only their number is wanted. */
function resolveFiles(ctx: Context, info: GraphQLResolveInfo, args: ListFilesInput & DefaultConnectionArguments) {
  const key = { name: 'path', isKey: isText };
  return resolveRootPage(args, key, async (at) =>
    selectedNames(info).every((name) => COUNTS.has(name))
      ? []
      : await listFiles(ctx, args, ctx.reader).page(at, selectsCommon(info, 'edges', 'node')),
  );
}

const COUNTS = new Set(['totalCount', 'isCountEstimated', '__typename']);

const common = new Set([...Object.keys(commonFileFields), '__typename']);

/** By place in the query, which many parents share. */
const decided = new WeakMap<GraphQLResolveInfo['fieldNodes'], boolean>();

/** Whether a query selects only the `commonFileFields` of the files at the end of a path of fields. */
export function selectsCommon(info: GraphQLResolveInfo, ...path: string[]): boolean {
  const isCommon = decided.get(info.fieldNodes) ?? selectedNames(info, ...path).every((name) => common.has(name));
  decided.set(info.fieldNodes, isCommon);
  return isCommon;
}

const StageChangeType = builder.objectRef<StageChange>('StageChange').implement({
  description: 'A file has moved from one stage to another; or, without `from`, is at a stage now.',
  fields: (t) => ({
    path: t.exposeString('path', { description: 'Logical path of the file.' }),
    from: t.expose('from', { type: StageType, nullable: true, description: 'Null: it is at `to` now.' }),
    to: t.expose('to', { type: StageType, description: 'The stage that it is at since then.' }),
    at: t.expose('at', time('When it moved; without `from`, when that was looked at.')),
    eventId: t.expose('eventId', bigInt('Give it as `after` to go on from here.')),
  }),
});

const isChange = ({ from }: StageChange) => from !== null;

builder.subscriptionFields((t) => ({
  stageChanges: t.field({
    type: StageChangeType,
    description:
      'The present stages of the files of a request, or of those whose path contains `match`, then every change. ' +
      'With neither, the changes of all files. With `after`, the changes since that event, without the present stages; ' +
      'who broke off before all of those had come begins anew instead.',
    args: {
      requestId: t.arg.int({ description: 'Only files of this request; the id that REST knows.' }),
      match: t.arg.string({ description: 'Only files whose path contains it: a plain, case-sensitive substring.' }),
      after: t.arg(bigInt('The `eventId` of the last message that was seen.')),
    },
    subscribe: (_root, args, ctx) =>
      // a reader that resumes among the present stages would miss the others
      watchFromPlace(ctx, args.after, (after, signal) => watchStages(ctx, { ...args, after }, signal), isChange),
    resolve: (change) => change,
  }),
}));

const PATH = 'Of a file; or of a folder, with a slash at its end, for all files below it.';
const DRY_RUN = 'Only say what would be done.';
const errors = [InvalidInputError, NotFoundError, ForbiddenError];
const renameErrors = [...errors, InUseError];

const WithdrawFilesInput = builder.inputType('WithdrawFilesInput', {
  description: 'The files to withdraw.',
  fields: (t) => ({
    path: t.string({ required: true, description: PATH }),
    why: t.string({
      description: 'For people: those who wait for one of the files are told. At most 2,000 characters.',
    }),
    dryRun: t.boolean({ description: DRY_RUN }),
  }),
});

const ReinstateFilesInput = builder.inputType('ReinstateFilesInput', {
  description: 'The files to restore to the catalogue.',
  fields: (t) => ({
    path: t.string({ required: true, description: PATH }),
    dryRun: t.boolean({ description: DRY_RUN }),
  }),
});

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

const PurgeFilesInput = builder.inputType('PurgeFilesInput', {
  description: 'The files to purge.',
  fields: (t) => ({
    path: t.string({ required: true, description: PATH }),
    dryRun: t.boolean({ description: DRY_RUN }),
  }),
});

const PurgedFilesType = builder.objectRef<PurgedFiles>('PurgedFiles').implement({
  description: 'The files that `purgeFiles` was about.',
  fields: (t) => ({
    files: t.exposeInt('files', { description: 'Purged files.' }),
    bytes: t.expose('bytes', bigInt('Bytes of all of them together.')),
    kept: t.exposeInt('kept', {
      description:
        'Withdrawn ones that are not forgotten yet: something of them is on disk, or a live request has them or waits for them.',
    }),
  }),
});

builder.mutationFields((t) => ({
  withdrawFiles: t.field({
    type: ChosenFilesType,
    description:
      'Withdraws files from the catalogue: no list contains them, and they cannot be requested. Requests that wait for one report it; copies on disk stay as long as requests contain them.',
    errors: { types: errors },
    args: { input: t.arg({ type: WithdrawFilesInput, required: true, description: 'What is withdrawn.' }) },
    resolve: (_root, { input: { dryRun, ...input } }, ctx) => withdrawFiles(ctx, { ...input, isDryRun: dryRun }),
  }),
  reinstateFiles: t.field({
    type: ChosenFilesType,
    description: 'Brings withdrawn files back. Requests that wait for them take them in.',
    errors: { types: errors },
    args: { input: t.arg({ type: ReinstateFilesInput, required: true, description: 'What comes back.' }) },
    resolve: (_root, { input: { dryRun, ...input } }, ctx) => reinstateFiles(ctx, { ...input, isDryRun: dryRun }),
  }),
  renameFiles: t.field({
    type: ChosenFilesType,
    description:
      'Gives files other paths. Requests keep them, copies on disk stay where they are, and requests that wait for the new paths take them in.',
    errors: { types: renameErrors },
    args: { input: t.arg({ type: RenameFilesInput, required: true, description: 'What is renamed.' }) },
    resolve: (_root, { input: { dryRun, inLibrary, ...input } }, ctx) =>
      renameFiles(ctx, { ...input, isInLibrary: inLibrary, isDryRun: dryRun }),
  }),
  purgeFiles: t.field({
    type: PurgedFilesType,
    description:
      'Forgets withdrawn files for good: their paths are free for others. What requests tell of them stays, under a name that no file of the catalogue has.',
    errors: { types: renameErrors },
    args: { input: t.arg({ type: PurgeFilesInput, required: true, description: 'The files to purge.' }) },
    resolve: (_root, { input: { dryRun, ...input } }, ctx) => purgeFiles(ctx, { ...input, isDryRun: dryRun }),
  }),
}));

/** As many entries as there may be. */
const FOLDER_COMPLEXITY = 50;

const FolderEntryType = builder.objectRef<Entry>('FolderEntry').implement({
  description: 'What is directly in a folder of the catalogue: a file, or a folder.',
  fields: (t) => ({
    path: t.exposeString('path', { description: 'Absolute.' }),
    isFolder: t.exposeBoolean('isFolder', { description: 'There are files below it.' }),
    size: t.expose('size', bigIntOrNull('Bytes; null for a folder.')),
  }),
});

const FolderType = builder.objectRef<Folder>('Folder').implement({
  description: 'A folder of the catalogue. Folders are made of the paths of files.',
  fields: (t) => ({
    path: t.exposeString('path', { description: 'Without a slash at its end; `/` is everything.' }),
    entries: t.expose('entries', { type: [FolderEntryType], description: 'The first 1,000 by name.' }),
    hasMore: t.exposeBoolean('hasMore', { description: 'There are more than these.' }),
  }),
});

builder.queryFields((t) => ({
  tapeFile: t.field({
    type: TapeFileType,
    nullable: true,
    description: 'A file by its path; null when the catalogue does not know it.',
    args: { path: t.arg.string({ required: true, description: 'Logical path.' }) },
    resolve: (_root, { path }, ctx) => getFile(ctx, path),
  }),
  tapeFiles: t.connection(
    {
      type: TapeFileType,
      description: 'Tape files in order of their paths.',
      complexity: pageComplexity,
      args: {
        match: t.arg.string({ description: 'A plain, case-sensitive substring of the path.' }),
        stages: t.arg({ type: [StageType], description: 'Only files at one of these; at any unless given.' }),
        withdrawn: t.arg.boolean({
          description: 'Those that are withdrawn, and no others; without it, they are left out.',
        }),
        count: t.arg({
          type: CountPrecisionType,
          defaultValue: 'EXACT',
          description: 'What is wanted of `totalCount`; to count millions of files takes seconds.',
        }),
      },
      resolve: async (_root, args, ctx, info) => {
        const page = await resolveFiles(ctx, info, args);
        return { ...page, ...countOf(ctx, args, page.edges.length) };
      },
    },
    {
      fields: (f) => ({
        totalCount: f.int({ resolve: async (page) => (await (page as FilesPage).counted()).count }),
        isCountEstimated: f.boolean({
          description: 'Is `totalCount` an estimate? Counted only where it is asked for.',
          resolve: async (connection) => {
            const { isEstimate, counted } = connection as FilesPage;
            return isEstimate && (await counted()).isEstimated;
          },
        }),
      }),
    },
  ),
  folder: t.field({
    type: FolderType,
    complexity: FOLDER_COMPLEXITY,
    description:
      'What is directly in a folder, of what the caller may list; it takes no longer for all that is below. Empty where there is none.',
    args: { path: t.arg.string({ required: true, description: 'Absolute; `/` is everything.' }) },
    resolve: (_root, { path }, ctx) => showFolder(ctx, path),
  }),
}));
