/** Defines the GraphQL types for tape files, and the subscription to their stage changes. */
import type { DefaultConnectionArguments } from '@pothos/plugin-relay';
import type { GraphQLResolveInfo } from 'graphql';
import { hasRole } from '../../src/core/caller.js';
import type { Stage } from '../../src/core/stages.js';
import { readAllowed } from '../../src/domain/access/paths.js';
import { type FileOrderField, isKeyOf, MAX_SORTED, type OrderedKey } from '../../src/domain/catalogue/ordered-files.js';
import { type FileOrder, getFile, type ListFilesInput, listFiles } from '../../src/domain/catalogue/tape-files.js';
import type { Context, LocatedCopy } from '../../src/domain/context.js';
import { readDisks } from '../../src/domain/disks/disks.js';
import { recordMissingFiles } from '../../src/domain/disks/missing.js';
import type { RowCount } from '../../src/domain/page-keys.js';
import { commonFileFields } from '../../src/domain/row-columns.js';
import { type StageChange, watchStages } from '../../src/domain/watching/request-watch.js';
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
import { watchFromCursor } from './event-cursor.js';
import { OrderDirectionType } from './orders.js';
import { createBatch, createCursors, isText, resolveCursorPage, resolveRootPage, selectedNames } from './pages.js';
import { findVolume, VolumeType } from './tapes.js';

const StageType = builder.enumType('Stage', {
  description: 'The stage of a tape file.',
  values: describeValues<Stage>({
    UNVERIFIED:
      'On disk. The tape copy has not been confirmed, or the file on disk has changed since the last confirmation.',
    ONDISK: 'On disk and on tape.',
    ONTAPE: 'Only on tape.',
    RESTORING: 'On tape, and a drive or a staging library is restoring the file.',
    RESTORED: 'On tape, with a copy on a restore disk.',
  }),
});

const ChecksumOriginType = builder.enumType('ChecksumOrigin', {
  description: "The origin of a tape file's checksum.",
  values: describeValues({
    ARCHIVE: 'The checksum was registered together with the file.',
    FIRST_RESTORE:
      "No checksum was registered, so Tapegate computed one at the first restore from the file's current position on tape.",
  }),
});

type ChecksumOrigin = 'ARCHIVE' | 'FIRST_RESTORE';

function originOf(file: { checksum: string | null; checksumTaken: boolean }): ChecksumOrigin | null {
  if (file.checksum === null) return null;
  return file.checksumTaken ? 'FIRST_RESTORE' : 'ARCHIVE';
}

/**
 * Returns the id of the disk that contains the file's copy. Returns null if the file has no copy, or if an engine will
 * soon remove the copy.
 */
function diskOfCopy({ stage, diskId, changedDiskId }: TapeFile): number | null {
  return stage === 'UNVERIFIED' ? changedDiskId : stage === 'RESTORED' ? diskId : null;
}

const diskOf = createBatch(readDisks);

const placeOf = ({ path, diskPath }: TapeFile): string => diskPath ?? path;

/** Returns whether each copy is on its disk. If a copy is missing, records this in the database. */
const isThere = createBatch(async (ctx, keys: (LocatedCopy & { fileId: bigint })[]) => {
  const ids = (await ctx.copies.findMissing(keys)).map(({ fileId }) => fileId);
  const missing = await recordMissingFiles(ctx, ids);
  return new Map(keys.map((key) => [key, !missing.has(key.fileId)]));
});

async function findCopy(ctx: Context, file: TapeFile): Promise<{ path: string; isReachable: boolean } | null> {
  const disk = await findDisk(ctx, file);
  if (!disk) return null;
  const copy = { fileId: file.id, diskId: disk.id, mountpoint: disk.mountpoint, path: placeOf(file) };
  // return the copy's path even if the disk has failed, because the disk might become available again
  const isReachable = disk.retryAt === null;
  return (await isThere(ctx, copy)) ? { path: disk.mountpoint + copy.path, isReachable } : null;
}

export async function findRestoredPath(ctx: Context, file: TapeFile): Promise<string | null> {
  const copy = await findCopy(ctx, file);
  return copy?.isReachable ? copy.path : null;
}

export const isAtPrimaryPath = ({ stage, changedDiskId }: TapeFile): boolean =>
  stage === 'ONDISK' || (stage === 'UNVERIFIED' && changedDiskId === null);

/**
 * Returns the disk that contains the file's copy. Returns null if there is no copy, or if path rules forbid the caller
 * to fetch the file.
 */
async function findDisk(ctx: Context, file: TapeFile): Promise<RestoreDisk | null> {
  const diskId = (await fetchable(ctx, file.id)) ? diskOfCopy(file) : null;
  return diskId === null ? null : ((await diskOf(ctx, diskId)) ?? null);
}

const fetchable = createBatch((ctx, ids: bigint[]) => readAllowed(ctx, 'FETCH', ids));

/**
 * Returns a file's URL path in the WebDAV API. The same function is in rest/v1/paths.ts, but GraphQL code must not
 * import REST code.
 */
const bytesPathOf = (path: string): string => `/webdav${path.split('/').map(encodeURIComponent).join('/')}`;

export const TapeFileType = builder.prismaNode('TapeFile', {
  id: { field: 'id' },
  nullable: true,
  description: 'A file in the catalogue.',
  fields: (t) => ({
    path: t.exposeString('path', { description: 'The logical path.' }),
    size: t.expose('size', bigInt('The size of the file in bytes.')),
    stage: t.expose('stage', { type: StageType, description: 'The current stage.' }),
    verifiedAt: t.expose(
      'verified',
      timeOrNull('When the tape copy was last confirmed. Null if it was never confirmed.'),
    ),
    checksum: t.exposeString('checksum', {
      nullable: true,
      description:
        'The checksum of the tape copy: the prefix `sha256:`, `adler32:` or `md5:`, followed by lower-case hex digits. Null if unknown.',
    }),
    checksumOrigin: t.field({
      type: ChecksumOriginType,
      nullable: true,
      description: 'The origin of the checksum. Null if there is no checksum.',
      resolve: originOf,
    }),
    adler32: t.string({
      ...nullable('The Adler-32 checksum of the tape copy as 8 hex digits, for FTS and Rucio. Null if unknown.'),
      resolve: ({ checksum, adler32 }) => adler32 ?? /^adler32:(.*)$/.exec(checksum ?? '')?.[1] ?? null,
    }),
    spotName: t.exposeString(
      'spotName',
      nullable('The storage spot from which the file was archived. Null if unknown.'),
    ),
    volume: t.field({
      type: VolumeType,
      nullable: true,
      description: 'The volume that contains the file. Null if unknown.',
      resolve: ({ volumeId }, _args, ctx) => findVolume(ctx, volumeId),
    }),
    position: t.expose(
      'position',
      bigIntOrNull('The position on the volume: a file sequence number or a block number. Null if unknown.'),
    ),
    disk: t.field({
      type: RestoreDiskType,
      nullable: true,
      description:
        'The restore disk that contains the restored copy, even if the copy was changed outside Tapegate. Null if there is no restored copy.',
      resolve: (file, _args, ctx) => findDisk(ctx, file),
    }),
    restoredPath: t.string({
      ...nullable(
        'The path of the restored copy, even if the copy was changed outside Tapegate. Null if there is no copy, or if its disk is failing or not mounted.',
      ),
      resolve: (file, _args, ctx) => findRestoredPath(ctx, file),
    }),
    isAtPrimaryPath: t.boolean({
      description:
        'Whether the file is on disk at its primary path, the path from which it was archived. Such a file has no copy on a restore disk.',
      resolve: isAtPrimaryPath,
    }),
  }),
});

builder.prismaObjectFields(TapeFileType, (t) => ({
  downloadPath: t.string({
    ...nullable(
      'The URL path from which the gateway serves the restored copy. The gateway checks access on each `GET`. Null if there is no copy, or if WebDAV is disabled at this site.',
    ),
    resolve: async (file, _args, ctx) => {
      if (ctx.config.transfer.webdav === 'off' || file.stage !== 'RESTORED') return null;
      return (await findCopy(ctx, file)) === null ? null : bytesPathOf(file.path);
    },
  }),
  withdrawnAt: t.expose(
    'withdrawnAt',
    timeOrNull('When the file was withdrawn. A withdrawn file cannot be requested. Null if it is not withdrawn.'),
  ),
  withdrawnReason: t.exposeString(
    'withdrawnReason',
    nullable('Why the file was withdrawn. Null if no reason was given.'),
  ),
  tapePath: t.string({
    nullable: true,
    description:
      'The path at which the library finds the file, if the file was renamed only in Tapegate. Null if the library finds the file at `path`. For operators and viewers.',
    // only operators and viewers may see a tape path, because a tape path might contain directory names that path rules
    // hide
    resolve: ({ tapePath }, _args, ctx) => (hasRole(ctx.caller, 'operator', 'viewer') ? tapePath : null),
  }),
  copyVolume: t.field({
    type: VolumeType,
    nullable: true,
    description: 'The volume with a second copy of the file. Null if there is no second copy.',
    resolve: ({ copyVolumeId }, _args, ctx) => findVolume(ctx, copyVolumeId),
  }),
  copyPosition: t.expose(
    'copyPosition',
    bigIntOrNull('The position of the second copy on `copyVolume`. Null if unknown.'),
  ),
  modifiedAt: t.expose('mtime', timeOrNull('When the content of the file was last modified. Null if unknown.')),
  copyError: t.exposeString(
    'copyError',
    nullable(
      'Why Tapegate could not read the copy on `copyVolume`. After such an error, Tapegate reads the file from `volume`. Null if no read of the copy has failed.',
    ),
  ),
}));

const CountPrecisionType = builder.enumType('CountPrecision', {
  description: 'How the items of a list are counted.',
  values: describeValues({
    EXACT: 'Counts every item.',
    ESTIMATED:
      'Counts up to 10,000 files exactly. If there are more files, or if the database does not finish counting in time, Tapegate returns an estimate and sets `isCountEstimated` to true. The estimate is never lower than the number of files already counted.',
  }),
});

interface CountedFiles extends ListFilesInput {
  count?: 'EXACT' | 'ESTIMATED' | null | undefined;
}

interface FilesPage {
  isEstimate: boolean;
  counted: () => Promise<RowCount>;
}

/**
 * @param found the number of files on the page; if the estimated total is lower, the result contains this number
 * instead
 * @param hasBytes whether the query selects the total size
 */
function countOf(ctx: Context, args: CountedFiles, found: number, hasBytes: boolean): FilesPage {
  const isEstimate = args.count === 'ESTIMATED';
  let counted: Promise<RowCount> | undefined;
  const run = (): Promise<RowCount> => {
    const { count, measure, estimate } = listFiles(ctx, args, ctx.reader);
    if (isEstimate) {
      return estimate(hasBytes).then((rows) =>
        rows.isEstimated ? { ...rows, count: Math.max(rows.count, found) } : rows,
      );
    }
    return hasBytes ? measure() : count().then((exact) => ({ count: exact, isEstimated: false, bytes: null }));
  };
  return {
    isEstimate,
    counted: () => {
      counted ??= run();
      return counted;
    },
  };
}

function resolveFiles(
  ctx: Context,
  info: GraphQLResolveInfo,
  args: ListFilesInput & DefaultConnectionArguments & { orderBy?: FileOrder | null | undefined },
) {
  const { field, direction } = args.orderBy ?? { field: 'PATH', direction: 'ASC' };
  const isCounted = selectedNames(info).every((name) => COUNTS.has(name));
  const files = listFiles(ctx, args, ctx.reader);
  const isCommon = selectsCommon(info, 'edges', 'node');
  if (field === 'PATH' && args.parent == null) {
    const descending = direction === 'DESC';
    return resolveRootPage(args, { name: 'path', isKey: isText }, async (at) =>
      isCounted ? [] : await files.page({ ...at, descending }, isCommon),
    );
  }
  return resolveCursorPage(args, orderedCursors[field], {
    keyOf: ({ key, path }: TapeFile & OrderedKey) => ({ key, path }),
    find: async (at) => (isCounted ? [] : await files.orderedPage({ field, direction }, at, isCommon)),
  });
}

const createOrderedCursors = (field: FileOrderField) =>
  createCursors<OrderedKey>(`files-by-${field}`, {
    format: ({ key, path }) => `${key}\0${path}`,
    parse: (text) => {
      const [key = '', path = '', ...rest] = text.split('\0');
      return rest.length === 0 && isKeyOf(field, { key, path }) ? { key, path } : undefined;
    },
  });

const orderedCursors = {
  PATH: createOrderedCursors('PATH'),
  SIZE: createOrderedCursors('SIZE'),
  STAGE: createOrderedCursors('STAGE'),
  MODIFIED: createOrderedCursors('MODIFIED'),
  VOLUME: createOrderedCursors('VOLUME'),
};

const COUNTS = new Set(['totalCount', 'isCountEstimated', 'totalBytes', '__typename']);

const common = new Set([...Object.keys(commonFileFields), '__typename']);

const decided = new WeakMap<GraphQLResolveInfo['fieldNodes'], boolean>();

/** @param path the names of the fields between the resolver's field and the files, such as `edges` and `node` */
export function selectsCommon(info: GraphQLResolveInfo, ...path: string[]): boolean {
  const isCommon = decided.get(info.fieldNodes) ?? selectedNames(info, ...path).every((name) => common.has(name));
  decided.set(info.fieldNodes, isCommon);
  return isCommon;
}

const StageChangeType = builder.objectRef<StageChange>('StageChange').implement({
  description: "A change of a file's stage. If `from` is null, the event reports the file's current stage.",
  fields: (t) => ({
    path: t.exposeString('path', { description: 'The logical path.' }),
    file: t.field({
      type: TapeFileType,
      nullable: true,
      description: 'The file. Its fields can be newer than the other fields of the event.',
      resolve: ({ path }, _args, ctx) => getFile(ctx, path),
    }),
    from: t.expose('from', {
      type: StageType,
      nullable: true,
      description: 'The previous stage. Null if the event reports the current stage.',
    }),
    to: t.expose('to', { type: StageType, description: 'The new stage.' }),
    at: t.expose(
      'at',
      time(
        'The time at which the stage changed. If `from` is null, the time at which Tapegate read the current stage.',
      ),
    ),
    eventId: t.expose('eventId', bigInt('The cursor of the event. Pass it as `after` to receive later events.')),
  }),
});

const isChange = ({ from }: StageChange) => from !== null;

builder.subscriptionFields((t) => ({
  stageChanges: t.field({
    type: StageChangeType,
    description:
      'First sends the current stage of each file in a request, or of each file whose path contains `match`. Then sends every stage change of these files. Without arguments, sends the stage changes of all files, but no current stages. With `after`, sends only the changes that follow the given event. A client that disconnects before all current stages have arrived must start again without `after`.',
    args: {
      requestId: t.arg.int({
        description: 'The `requestId` of a request. Limits the stream to the files in this request.',
      }),
      match: t.arg.string({
        description: 'Limits the stream to files whose path contains this plain, case-sensitive substring.',
      }),
      after: t.arg(bigInt('The `eventId` of the last received event.')),
    },
    subscribe: (_root, args, ctx) =>
      // do not let a client resume after an event that reports a current stage, because the client would miss the
      // remaining stages
      watchFromCursor(ctx, args.after, (after, signal) => watchStages(ctx, { ...args, after }, signal), isChange),
    resolve: (change) => change,
  }),
}));

export const TapeFileConnection = builder.connectionObject(
  {
    type: TapeFileType,
    name: 'TapeFileConnection',
    fields: (t) => ({
      totalCount: t.int({
        // a count can read all files, for example if path rules hide some of them from the caller
        complexity: 50,
        nullable: true,
        description: 'The total number of files, on all pages.',
        resolve: async (page) => (await (page as object as FilesPage).counted()).count,
      }),
      isCountEstimated: t.boolean({
        description: 'Whether `totalCount` is an estimate.',
        resolve: async (page) => {
          const { isEstimate, counted } = page as object as FilesPage;
          return isEstimate && (await counted()).isEstimated;
        },
      }),
      totalBytes: t.field({
        ...bigIntOrNull(
          'The total size of the files in bytes, on all pages. Null if `totalCount` is an estimate, or if the list belongs to a volume or a restore disk.',
        ),
        resolve: async (page) => (await (page as object as FilesPage).counted()).bytes,
      }),
    }),
  },
  { name: 'TapeFileEdge' },
);

/** Adds an exact count to a page of files. */
export const withExactCount = <Page extends { totalCount: () => Promise<number> }>(page: Page): Page & FilesPage => ({
  ...page,
  isEstimate: false,
  counted: async () => ({ count: await page.totalCount(), isEstimated: false, bytes: null }),
});

const FileOrderFieldType = builder.enumType('TapeFileOrderField', {
  description: 'A field by which files can be ordered. Files with the same value are ordered by path.',
  values: describeValues<FileOrderField>({
    PATH: 'The logical path.',
    SIZE: 'The size.',
    STAGE: 'The stage, in the order of the enum `Stage`.',
    MODIFIED: 'The modification time. In ascending order, files without a known time come first.',
    VOLUME: 'The name of the volume with the first copy. In ascending order, files without a known volume come first.',
  }),
});

const FileOrderType = builder.inputType('TapeFileOrder', {
  description: 'An order of files.',
  fields: (t) => ({
    field: t.field({ type: FileOrderFieldType, required: true, description: 'The field to order by.' }),
    direction: t.field({ type: OrderDirectionType, required: true, description: 'The direction.' }),
  }),
});

const SEARCH =
  'Returns only files whose path matches all words of this text, in any order. A word is a substring of the path, and ignores case. A word in double quotes may contain spaces, and matches exactly. A word with `*`, `?` or a set such as `[0-9]` or `[!a]` is a glob: without a slash, it matches a whole component of the path, such as `*.nc` or `2024-0?`; with a leading slash, the whole path, such as `/demo/*/2024/**`; with another slash, the last components. `*` and `?` do not match a slash, `**` does.';

builder.queryFields((t) => ({
  tapeFile: t.field({
    type: TapeFileType,
    nullable: true,
    description: 'Returns the file with the given path, or null if the catalogue does not contain the file.',
    args: { path: t.arg.string({ required: true, description: 'The logical path.' }) },
    resolve: (_root, { path }, ctx) => getFile(ctx, path),
  }),
  tapeFiles: t.connection(
    {
      type: TapeFileType,
      nullable: true,
      description: 'Returns tape files, by default in path order.',
      complexity: pageComplexity,
      args: {
        match: t.arg.string({ description: 'A plain, case-sensitive substring of the path.' }),
        stages: t.arg({ type: [StageType], description: 'Filters by stage. Default: all stages.' }),
        directory: t.arg.string({ description: 'Returns only files below this directory, at any depth.' }),
        volume: t.arg.string({ description: 'Returns only files whose first copy is on the volume with this name.' }),
        minSize: t.arg(bigInt('Returns only files of at least this size in bytes.')),
        maxSize: t.arg(bigInt('Returns only files of at most this size in bytes.')),
        search: t.arg.string({ description: SEARCH }),
        parent: t.arg.string({
          description:
            'Returns only files directly in this directory. `/` is the root. The order of paths is by bytes.',
        }),
        modifiedSince: t.arg({ type: 'DateTime', description: 'Returns only files modified at this time or later.' }),
        modifiedUntil: t.arg({ type: 'DateTime', description: 'Returns only files modified at this time or earlier.' }),
        orderBy: t.arg({
          type: FileOrderType,
          description: `The order. Default: by path, ascending. The query fails if more than ${MAX_SORTED.toLocaleString('en-US')} files match, unless the order is by path, and ascending or without \`parent\`.`,
        }),
        onlyWithdrawn: t.arg.boolean({
          description: 'Whether to return only withdrawn files. By default, the list excludes withdrawn files.',
        }),
        count: t.arg({
          type: CountPrecisionType,
          defaultValue: 'EXACT',
          description: 'How to compute `totalCount`. An exact count of millions of files takes seconds.',
        }),
      },
      resolve: async (_root, { onlyWithdrawn: withdrawn, ...given }, ctx, info) => {
        const args = { ...given, withdrawn };
        const page = await resolveFiles(ctx, info, args);
        const hasBytes = selectedNames(info).includes('totalBytes');
        return { ...page, ...countOf(ctx, args, page.edges.length, hasBytes) };
      },
    },
    TapeFileConnection,
  ),
}));
