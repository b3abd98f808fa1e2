/** Defines the GraphQL types for recalls, which read files from tape. */
import { listRecalls } from '../../src/domain/recalls/list.js';
import { bigInt, builder, connectionOf, nullable, pageComplexity, time, timeOrNull } from './builder.js';
import { isBigInt, readListPage } from './pages.js';
import { ErrorClassType, RecallStateType } from './requests.js';

builder.prismaNode('Recall', {
  id: { field: 'fileId' },
  nullable: true,
  description: 'A file that waits to be read from tape, or that a drive is reading.',
  fields: (t) => ({
    file: t.relation('file', { description: 'The file.' }),
    size: t.expose('size', bigInt('The size of the file in bytes.')),
    state: t.expose('state', { type: RecallStateType, description: 'The state.' }),
    volume: t.relation('volume', nullable('The volume from which the file is read. Null if unknown.')),
    drive: t.relation('drive', nullable('The drive that is reading the file. Null while the recall waits.')),
    attempts: t.int({
      description: 'The number of failed attempts.',
      resolve: ({ attempts, earlierTries }) => attempts + earlierTries,
    }),
    lastErrorClass: t.expose('errorClass', {
      type: ErrorClassType,
      nullable: true,
      description: 'The class of the last error. Null if there was no error.',
    }),
    lastError: t.exposeString(
      'error',
      nullable(
        'The last error, or the reason for which the next attempt is delayed. Null if there is neither an error nor a delay.',
      ),
    ),
    createdAt: t.expose('createdAt', time('When the recall was created.')),
    startedAt: t.expose('startedAt', timeOrNull('When the running attempt began. Null while the recall waits.')),
    nextTryAt: t.field({
      ...timeOrNull(
        'The earliest time of the next attempt. Null if the attempt need not wait, or if the recall waits for room on a restore disk.',
      ),
      // a recall that waits for room has the time `infinity`
      resolve: ({ notBefore }) => (notBefore?.startsWith('infinity') ? null : notBefore),
    }),
  }),
});

builder.queryFields((t) => ({
  recalls: t.prismaConnection(
    {
      type: 'Recall',
      nullable: true,
      cursor: 'fileId',
      description:
        'Returns the recalls of all users, in the order in which their files were registered. For viewers and operators.',
      complexity: pageComplexity,
      args: {
        volume: t.arg.string({ description: 'Returns only files that are read from the volume with this name.' }),
        onlyWithErrors: t.arg.boolean({ description: 'Whether to return only recalls whose `lastError` is not null.' }),
      },
      totalCount: (_root, args, ctx) => listRecalls(ctx, args, ctx.reader).count(),
      resolve: (query, _root, args, ctx) =>
        readListPage(query, { name: 'fileId', isKey: isBigInt }, listRecalls(ctx, args, ctx.reader).page),
    },
    ...connectionOf('Recall'),
  ),
}));
