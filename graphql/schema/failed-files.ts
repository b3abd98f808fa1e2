/** Defines the GraphQL query for the files that failed permanently in live requests. */
import { type FailedFileKey, listFailedFiles } from '../../src/domain/requests/failed-files.js';
import { type RequestFileWithFile, readRequestsById } from '../../src/domain/requests/rows.js';
import { builder, nullable, pageComplexity } from './builder.js';
import { createBatch, createCursors, MAX_INT, resolveCursorPage } from './pages.js';
import { RequestFileConnection, RequestFileType, RequestType } from './requests.js';

const requests = createBatch(readRequestsById);

builder.prismaObjectField(RequestFileType, 'request', (t) =>
  t.field({
    type: RequestType,
    ...nullable('The request that contains the file.'),
    resolve: async ({ requestId }, _args, ctx) => (await requests(ctx, requestId)) ?? null,
  }),
);

const cursors = createCursors<FailedFileKey>('failed-file', {
  format: ({ requestId, fileId }) => `${requestId}/${fileId}`,
  parse: (text) => {
    const [, requestId, fileId = ''] = /^(\d{1,10})\/(\d{1,18})$/.exec(text) ?? [];
    return Number(requestId) <= MAX_INT ? { requestId: Number(requestId), fileId: BigInt(fileId) } : undefined;
  },
});

builder.queryFields((t) => ({
  failedFiles: t.connection(
    {
      type: RequestFileType,
      nullable: true,
      description:
        'Returns the files that failed permanently in the requests of all users that have not ended, those of the newest requests first. A file appears once for each of these requests. For viewers and operators.',
      complexity: pageComplexity,
      args: {
        volume: t.arg.string({ description: 'Returns only files whose first copy is on the volume with this name.' }),
      },
      resolve: async (_root, args, ctx) => {
        const { page, count } = listFailedFiles(ctx, args, ctx.reader);
        const keyOf = ({ requestId, fileId }: RequestFileWithFile) => ({ requestId, fileId });
        return { ...(await resolveCursorPage(args, cursors, { keyOf, find: page })), totalCount: count };
      },
    },
    RequestFileConnection,
  ),
}));
