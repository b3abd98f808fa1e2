/** Defines the lists of related objects, such as the files on a volume or the drives of a library. */
import {
  countFilesOnDisks,
  countFilesOnVolumes,
  readFilesOnDisks,
  readFilesOnVolumes,
} from '../../src/domain/catalogue/files-of.js';
import { countDrivesIn, countVolumesIn, readDrivesIn, readVolumesIn } from '../../src/domain/libraries/contents.js';
import { listQuotasByPage } from '../../src/domain/quotas/quotas.js';
import { countRequestsWithFiles, readRequestsWithFiles } from '../../src/domain/requests/rows.js';
import { builder, pageComplexity } from './builder.js';
import { CallerType } from './callers.js';
import { TapeFileConnection, TapeFileType, withExactCount } from './files.js';
import { isText, resolveInnerPage, resolveRootPage } from './pages.js';
import { QuotaConnection, QuotaType } from './quotas.js';
import { RequestConnection, RequestType } from './requests.js';
import { DriveConnection, DriveType, VolumeConnection, VolumeType } from './tapes.js';

const filesOnVolume = { hasLargeKeys: true, read: readFilesOnVolumes, count: countFilesOnVolumes };
const filesOnDisk = { hasLargeKeys: true, read: readFilesOnDisks, count: countFilesOnDisks };
const volumesInLibrary = { read: readVolumesIn, count: countVolumesIn };
const drivesInLibrary = { read: readDrivesIn, count: countDrivesIn };
const requestsWithFile = { descending: true, read: readRequestsWithFiles, count: countRequestsWithFiles };

builder.prismaObjectField('Volume', 'files', (t) =>
  t.connection(
    {
      type: TapeFileType,
      nullable: true,
      description: 'The files whose first copy is on the volume, in the order in which they were registered.',
      complexity: pageComplexity,
      resolve: async ({ id }, args, ctx, info) =>
        withExactCount(await resolveInnerPage({ ctx, info, parentId: id }, filesOnVolume, args)),
    },
    TapeFileConnection,
  ),
);

builder.prismaObjectField('RestoreDisk', 'files', (t) =>
  t.connection(
    {
      type: TapeFileType,
      nullable: true,
      description: 'The files with a restored copy on the disk, in the order in which they were registered.',
      complexity: pageComplexity,
      resolve: async ({ id }, args, ctx, info) =>
        withExactCount(await resolveInnerPage({ ctx, info, parentId: id }, filesOnDisk, args)),
    },
    TapeFileConnection,
  ),
);

builder.prismaObjectField('Library', 'volumes', (t) =>
  t.connection(
    {
      type: VolumeType,
      nullable: true,
      description: "The library's volumes in the order in which they were added, excluding retired volumes.",
      complexity: pageComplexity,
      resolve: ({ id }, args, ctx, info) => resolveInnerPage({ ctx, info, parentId: id }, volumesInLibrary, args),
    },
    VolumeConnection,
  ),
);

builder.prismaObjectField('Library', 'drives', (t) =>
  t.connection(
    {
      type: DriveType,
      nullable: true,
      description: "The library's drives in the order in which they were added.",
      complexity: pageComplexity,
      resolve: ({ id }, args, ctx, info) => resolveInnerPage({ ctx, info, parentId: id }, drivesInLibrary, args),
    },
    DriveConnection,
  ),
);

builder.prismaObjectField('TapeFile', 'requests', (t) =>
  t.connection(
    {
      type: RequestType,
      nullable: true,
      description: 'The live requests that contain the file, newest first.',
      complexity: pageComplexity,
      resolve: ({ id }, args, ctx, info) => resolveInnerPage({ ctx, info, parentId: id }, requestsWithFile, args),
    },
    RequestConnection,
  ),
);

builder.objectField(CallerType, 'quotas', (t) =>
  t.connection(
    {
      type: QuotaType,
      nullable: true,
      description: 'The quotas that the caller may see, ordered by user.',
      complexity: pageComplexity,
      resolve: async (_caller, args, ctx) => {
        const { page, count } = listQuotasByPage(ctx);
        return { ...(await resolveRootPage(args, { name: 'user', isKey: isText }, page)), totalCount: count };
      },
    },
    QuotaConnection,
  ),
);
