/** Defines the GraphQL field with the past changes of a request. */
import { countRequestEvents, type RequestEvent, readRequestEvents } from '../../src/domain/requests/history.js';
import { bigInt, builder, countedConnection, pageComplexity, time } from './builder.js';
import { resolveInnerPage } from './pages.js';
import { RequestStateType } from './requests.js';

const RequestEventType = builder.objectRef<RequestEvent>('RequestEvent').implement({
  description: 'The state and the counts of a request after a change.',
  fields: (t) => ({
    at: t.expose('at', time('When the change was made.')),
    state: t.expose('state', { type: RequestStateType, description: 'The state.' }),
    filesTotal: t.exposeInt('filesTotal', { description: 'The number of files in the request.' }),
    filesOnDisk: t.exposeInt('filesOnDisk', { description: 'The number of files in the request that were on disk.' }),
    filesFailed: t.exposeInt('filesFailed', { description: 'The number of files in the request that had failed.' }),
    bytesTotal: t.expose('bytesTotal', bigInt('The total size in bytes of the files in the request.')),
    bytesOnDisk: t.expose('bytesOnDisk', bigInt("The total size in bytes of the request's files on disk.")),
  }),
});

builder.prismaObjectFields('Request', (t) => ({
  events: t.connection(
    {
      type: RequestEventType,
      description:
        "The changes of the request's state and counts, newest first. Tapegate deletes old changes after the period that the operators have set.",
      complexity: pageComplexity,
      resolve: ({ id }, args, ctx, info) =>
        resolveInnerPage(
          { ctx, info, parentId: id },
          { read: readRequestEvents, count: countRequestEvents, descending: true, hasLargeKeys: true },
          args,
        ),
    },
    countedConnection(RequestEventType, 'RequestEvent'),
  ),
}));
