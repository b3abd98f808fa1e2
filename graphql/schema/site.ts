/** Defines the GraphQL types for dashboards of the whole site: changes, history and processes. */
import { cancellable } from '../../src/core/cancellable.js';
import { readFence } from '../../src/domain/ownership.js';
import { getRequest } from '../../src/domain/requests/rows.js';
import { type CurvePoint, type QuotaPoint, readHistory, readQuotaHistory } from '../../src/domain/site/curves.js';
import { listProcesses, type RunningProcess } from '../../src/domain/site/processes.js';
import {
  type RequestChange,
  type RequestChanges,
  type SiteChange,
  siteParts,
  watchRequests,
  watchSite,
} from '../../src/domain/site/site-watch.js';
import { bigInt, builder, describeValues, nullable, time } from './builder.js';
import { orNull } from './errors.js';
import { RequestStateType, RequestType } from './requests.js';

const SitePartType = builder.enumType('SitePart', {
  description: 'A part of the site that may have changed.',
  values: describeValues<keyof typeof siteParts>(siteParts),
});

const SiteChangeType = builder.objectRef<SiteChange>('SiteChange').implement({
  description: 'A notification that parts of the site have changed.',
  fields: (t) => ({
    at: t.expose('at', time('When the notification was sent.')),
    parts: t.expose('parts', {
      type: [SitePartType],
      description:
        'The parts that have changed since the last notification. The first notification contains all parts.',
    }),
  }),
});

const RequestChangeType = builder.objectRef<RequestChange>('RequestChange').implement({
  description: 'A request that was created, changed or ended.',
  fields: (t) => ({
    requestId: t.exposeInt('requestId', { description: "The request's id." }),
    request: t.field({
      type: RequestType,
      nullable: true,
      description: 'The request. Its fields can be newer than the other fields of the event.',
      resolve: ({ requestId }, _args, ctx) => orNull(getRequest(ctx, requestId)),
    }),
    user: t.exposeString('quota', { description: "The quota's user." }),
    state: t.expose('state', { type: RequestStateType, description: 'The current state.' }),
  }),
});

const RequestChangesType = builder.objectRef<RequestChanges>('RequestChanges').implement({
  description: 'A notification of changed requests.',
  fields: (t) => ({
    at: t.expose('at', time('When the notification was sent.')),
    requests: t.expose('items', {
      type: [RequestChangeType],
      description: 'The changed requests in no particular order. At most 1,000.',
    }),
    hasMore: t.exposeBoolean('hasMore', {
      description:
        'Whether other requests may have changed too. If true, the client should reload its lists of requests. Always true in the first notification.',
    }),
  }),
});

builder.subscriptionFields((t) => ({
  siteChanges: t.field({
    type: SiteChangeType,
    description:
      'Reports which parts of the site have changed, at most about once per second. Does not complete. For viewers and operators.',
    subscribe: (_root, _args, ctx) => cancellable((signal) => watchSite(ctx, signal)),
    resolve: (change) => change,
  }),
  requestChanges: t.field({
    type: RequestChangesType,
    description:
      'Reports which requests were created, changed or ended, at most about once per second. Includes only requests that the caller may see. Does not complete. To follow the files of one request, use `requestProgress`.',
    subscribe: (_root, _args, ctx) => cancellable((signal) => watchRequests(ctx, signal)),
    resolve: (changes) => changes,
  }),
}));

const HISTORY_COMPLEXITY = 100;

const CurvePointType = builder.objectRef<CurvePoint>('CurvePoint').implement({
  description: "The site's activity in a period of five minutes or an hour.",
  fields: (t) => ({
    at: t.expose('at', time('The start of the period.')),
    seconds: t.exposeInt('seconds', { description: 'The length of the period in seconds.' }),
    filesRestored: t.exposeInt('filesRestored', { description: 'The number of files restored to a restore disk.' }),
    bytesRestored: t.expose('bytesRestored', bigInt('The total size of the restored files in bytes.')),
    filesFailed: t.exposeInt('filesFailed', {
      description:
        'The number of files that could not be restored. A file counts once for each request that waited for the file.',
    }),
    filesWaiting: t.exposeInt(
      'filesWaiting',
      nullable(
        'The number of waiting files, measured once in each period of five minutes. If the period is an hour, this is the mean of the numbers measured in that hour. Null if unknown.',
      ),
    ),
    oldestSeconds: t.exposeFloat(
      'oldestSeconds',
      nullable(
        'The longest time in seconds that a file has waited, measured once in each period of five minutes. For a period of an hour, the maximum of the measured times. Null if unknown.',
      ),
    ),
    drivesInUse: t.exposeFloat(
      'drivesInUse',
      nullable(
        'The number of drives with a mounted volume, measured once in each period of five minutes. If the period is an hour, this is the mean of the numbers measured in that hour. Null if unknown.',
      ),
    ),
    driveCount: t.exposeInt('drives', nullable('The number of drives. Null if unknown.')),
  }),
});

const QuotaPointType = builder.objectRef<QuotaPoint>('QuotaPoint').implement({
  description: "A quota's usage at a point in time.",
  fields: (t) => ({
    at: t.expose('at', time('The time to which the figures apply.')),
    used: t.expose('used', bigInt('The number of bytes charged for live requests.')),
    size: t.expose('size', bigInt("The quota's size in bytes.")),
  }),
});

builder.prismaObjectField('Quota', 'history', (t) =>
  t.field({
    type: [QuotaPointType],
    description:
      "The quota's usage over time: at `since`, after each hour in which the usage changed, and now. Goes back at most 90 days.",
    complexity: { field: HISTORY_COMPLEXITY },
    args: { since: t.arg({ type: 'DateTime', required: true, description: 'The start of the period.' }) },
    resolve: async ({ id }, { since }, ctx) => (await readQuotaHistory(ctx, [id], since)).get(id) ?? [],
  }),
);

const ProcessKindType = builder.enumType('ProcessKind', {
  description: 'The type of a process.',
  values: describeValues({
    GATEWAY: 'A gateway, which answers HTTP requests.',
    ENGINE: 'An engine, which restores files from tape to restore disks.',
  }),
});

const RunningProcessType = builder.objectRef<RunningProcess>('RunningProcess').implement({
  description: 'A gateway or an engine. A process that runs both appears twice.',
  fields: (t) => ({
    kind: t.expose('kind', { type: ProcessKindType, description: 'The type of the process.' }),
    host: t.exposeString('host', { description: 'The host of the process.' }),
    pid: t.exposeInt('pid', { description: 'The process id.' }),
    version: t.exposeString('version', { description: 'The Tapegate version.' }),
    startedAt: t.expose('startedAt', time('When the process started.')),
    seenAt: t.expose('seenAt', time('When the process last sent a heartbeat.')),
    isAlive: t.exposeBoolean('isAlive', {
      description: 'Whether the process is running, judged by the age of its last heartbeat.',
    }),
    lagSeconds: t.exposeFloat('lagSeconds', {
      description: 'The number of seconds by which the process lagged behind the event feed at its last heartbeat.',
    }),
  }),
});

const FenceType = builder.objectRef<{ reason: string }>('Fence').implement({
  description: 'A state in which a Tapegate must not use the restore disks and libraries.',
  fields: (t) => ({ reason: t.exposeString('reason', { description: 'Why this Tapegate is fenced.' }) }),
});

builder.queryFields((t) => ({
  fence: t.field({
    type: FenceType,
    nullable: true,
    description:
      'Returns the fence of this Tapegate. Tapegate is fenced if its database is a copy, or another Tapegate has taken over the restore disks. A fenced Tapegate accepts requests, but does not restore files, remove files or send messages until an operator runs `tapegate takeover`. Null if this Tapegate is not fenced.',
    resolve: async (_root, _args, ctx) => {
      const reason = await readFence(ctx);
      return reason === null ? null : { reason };
    },
  }),
  history: t.field({
    type: [CurvePointType],
    nullable: true,
    complexity: HISTORY_COMPLEXITY,
    description:
      "Returns the site's activity in time order, in five-minute periods for the last two days, and in one-hour periods for the 90 days before that. At most 3,000 periods. For viewers and operators.",
    args: {
      since: t.arg({
        type: 'DateTime',
        required: true,
        description: 'Returns only periods that start at or after this time.',
      }),
      until: t.arg(time('Returns only periods that start before this time. Default: now.')),
    },
    resolve: (_root, args, ctx) => readHistory(ctx, args),
  }),
  processes: t.field({
    type: [RunningProcessType],
    nullable: true,
    description:
      'Returns the gateways and engines, ordered by host. Includes a process that died in the last day, unless a new process of the same type has replaced it on the host. At most 1,000. For viewers and operators.',
    resolve: (_root, _args, ctx) => listProcesses(ctx),
  }),
}));
