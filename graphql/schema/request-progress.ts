/** Defines the GraphQL subscriptions to the progress of requests. */
import { cancellable } from '../../src/core/cancellable.js';
import { readEnds } from '../../src/domain/plan/ends.js';
import { readWaiting } from '../../src/domain/plan/waiting.js';
import { getRequest, readRequestFiles } from '../../src/domain/requests/rows.js';
import { MAX_WATCHED, watchRequestList } from '../../src/domain/watching/list-watch.js';
import { FINISHED, type RequestProgress, watchRequest } from '../../src/domain/watching/request-watch.js';
import { bigInt, builder, nullable, time } from './builder.js';
import { orNull } from './errors.js';
import { watchFromCursor } from './event-cursor.js';
import { createBatch } from './pages.js';
import { EndRangeType, PLAN_COMPLEXITY, WaitingType } from './plan.js';
import { RequestFileType, RequestStateType, RequestType } from './requests.js';

const waiting = createBatch(readWaiting);
const ends = createBatch(readEnds);

/** Query cost of an estimated end. The cost is low, because all clients share recent estimates. */
const END_COMPLEXITY = 5;

const FAILURES = 3;

const failures = createBatch(async (ctx, ids: number[]) => {
  const pages = await readRequestFiles(ctx, ids, { descending: true, limit: FAILURES, states: ['FAILED'] });
  return new Map([...pages].map(([id, items]) => [id, items.flatMap(({ row }) => row ?? []).reverse()]));
});

const RequestProgressType = builder.objectRef<RequestProgress>('RequestProgress').implement({
  description: 'The progress of a request after a change.',
  fields: (t) => ({
    requestId: t.exposeInt('requestId', { description: "The request's id." }),
    request: t.field({
      type: RequestType,
      nullable: true,
      description: 'The request. Its fields can be newer than the other fields of the event.',
      resolve: ({ requestId }, _args, ctx) => orNull(getRequest(ctx, requestId)),
    }),
    state: t.expose('state', { type: RequestStateType, description: 'The current state.' }),
    filesTotal: t.exposeInt('filesTotal', { description: 'The number of files in the request.' }),
    filesOnDisk: t.exposeInt('filesOnDisk', { description: 'The number of files in the request that are on disk.' }),
    filesFailed: t.exposeInt('filesFailed', { description: 'The number of files in the request that failed.' }),
    bytesTotal: t.expose('bytesTotal', bigInt('The total size in bytes of the files in the request.')),
    bytesOnDisk: t.expose('bytesOnDisk', bigInt("The total size in bytes of the request's files on disk.")),
    bytesPerSecond: t.exposeFloat(
      'bytesPerSecond',
      nullable('The mean rate since the first recall began, in bytes per second. Null if no recall has begun.'),
    ),
    elapsedSeconds: t.exposeFloat(
      'elapsedSeconds',
      nullable('The seconds since the first recall began. Null if no recall has begun.'),
    ),
    end: t.field({
      type: EndRangeType,
      nullable: true,
      complexity: END_COMPLEXITY,
      description:
        'An estimate of when the request will finish, up to ten seconds old. Null if unknown, or if recalls are suspended.',
      resolve: async ({ requestId, state }, _args, ctx) =>
        FINISHED.includes(state) ? null : ((await ends(ctx, requestId)) ?? null),
    }),
    waiting: t.field({
      type: WaitingType,
      nullable: true,
      complexity: PLAN_COMPLEXITY,
      description:
        'The position of the request in the plan, and why its files are waiting. Null if no file is waiting.',
      resolve: async ({ requestId }, _args, ctx) => (await waiting(ctx, requestId)) ?? null,
    }),
    lastFailures: t.field({
      type: [RequestFileType],
      nullable: true,
      complexity: FAILURES,
      description: `The files of the request that failed, the last ${FAILURES} of them in the order of the request.`,
      resolve: async ({ requestId, filesFailed }, _args, ctx) =>
        filesFailed === 0 ? [] : ((await failures(ctx, requestId)) ?? []),
    }),
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
      requestId: t.arg.int({ required: true, description: "The request's id." }),
      after: t.arg(bigInt('The `eventId` of the last received event.')),
    },
    subscribe: (_root, { requestId: id, after }, ctx) =>
      watchFromCursor(ctx, after, (cursor, signal) => watchRequest(ctx, { id, after: cursor }, signal)),
    resolve: (progress) => progress,
  }),
  requestsProgress: t.field({
    type: RequestProgressType,
    description:
      'Sends the current progress of each request in a list, then every change. Without `requestIds`, the list contains the newest live requests, and requests that are created later. Does not complete.',
    args: {
      quota: t.arg.string({ description: "Limits the list to requests of this quota's user." }),
      requestIds: t.arg.intList({ description: `The requests to watch. At most ${MAX_WATCHED}.` }),
      first: t.arg.int({
        description: `The number of requests to watch from the beginning. Default 20, maximum ${MAX_WATCHED}.`,
      }),
    },
    subscribe: (_root, args, ctx) => cancellable((signal) => watchRequestList(ctx, args, signal)),
    resolve: (progress) => progress,
  }),
}));
