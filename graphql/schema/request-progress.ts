/** Defines the GraphQL subscription to the progress of a request. */
import { type RequestProgress, watchRequest } from '../../src/domain/requests/request-watch.js';
import { bigInt, builder, time, timeOrNull } from './builder.js';
import { watchFromCursor } from './event-cursor.js';
import { RequestStateType } from './requests.js';

const RequestProgressType = builder.objectRef<RequestProgress>('RequestProgress').implement({
  description: 'The progress of a request after a change.',
  fields: (t) => ({
    requestId: t.exposeInt('requestId', { description: "The request's id." }),
    state: t.expose('state', { type: RequestStateType, description: 'The current state.' }),
    filesTotal: t.exposeInt('filesTotal', { description: 'The number of files in the request.' }),
    filesOnDisk: t.exposeInt('filesOnDisk', { description: 'The number of files in the request that are on disk.' }),
    filesFailed: t.exposeInt('filesFailed', { description: 'The number of files in the request that failed.' }),
    bytesTotal: t.expose('bytesTotal', bigInt('The total size in bytes of the files in the request.')),
    bytesOnDisk: t.expose('bytesOnDisk', bigInt("The total size in bytes of the request's files on disk.")),
    eta: t.expose(
      'eta',
      timeOrNull(
        'The estimated time at which the request will finish, based on the rate so far. Null if unknown, or if recalls are suspended.',
      ),
    ),
    at: t.expose('at', time('When the progress changed.')),
    eventId: t.expose('eventId', bigInt('The cursor of the event. Pass it as `after` to receive later events.')),
  }),
});

builder.subscriptionFields((t) => ({
  requestProgress: t.field({
    type: RequestProgressType,
    description:
      'Sends the current progress of a request, then every change. With `after`, sends only the changes that follow the given event. Completes when the request has finished.',
    args: {
      id: t.arg.int({ required: true, description: "The request's `requestId`." }),
      after: t.arg(bigInt('The `eventId` of the last received event.')),
    },
    subscribe: (_root, { id, after }, ctx) =>
      watchFromCursor(ctx, after, (cursor, signal) => watchRequest(ctx, { id, after: cursor }, signal)),
    resolve: (progress) => progress,
  }),
}));
