/** The site as a whole, and what of it has changed: for those who show it. */
import { cancellable } from '../../src/core/cancellable.js';
import { readFence } from '../../src/domain/ownership.js';
import { type CurvePoint, type QuotaPoint, readHistory, readQuotaHistory } from '../../src/domain/site/curves.js';
import { listProcesses, type RunningProcess } from '../../src/domain/site/processes.js';
import {
  type RequestChange,
  type RequestChanges,
  type SiteChange,
  siteParts,
  watchRequests,
  watchSite,
} from '../../src/domain/site/watch.js';
import { bigInt, builder, describeValues, nullable, time } from './builder.js';
import { RequestStateType } from './requests.js';

const SitePartType = builder.enumType('SitePart', {
  description: 'A part of the site.',
  values: describeValues<keyof typeof siteParts>(siteParts, '.'),
});

const SiteChangeType = builder.objectRef<SiteChange>('SiteChange').implement({
  description: 'That something of the site has changed.',
  fields: (t) => ({
    at: t.expose('at', time('When this was told.')),
    parts: t.expose('parts', {
      type: [SitePartType],
      description: 'What has changed since the message before; all parts at first.',
    }),
  }),
});

const RequestChangeType = builder.objectRef<RequestChange>('RequestChange').implement({
  description: 'A request that was made, was changed, or has ended.',
  fields: (t) => ({
    requestId: t.exposeInt('requestId', { description: 'The id that REST knows.' }),
    quota: t.exposeString('quota', { description: 'The user whose quota it is charged to.' }),
    state: t.expose('state', { type: RequestStateType, description: 'As it is now.' }),
  }),
});

const RequestChangesType = builder.objectRef<RequestChanges>('RequestChanges').implement({
  description: 'Which requests have changed since the message before.',
  fields: (t) => ({
    at: t.expose('at', time('When this was told.')),
    requests: t.expose('items', {
      type: [RequestChangeType],
      description: 'In no particular order, at most 1,000.',
    }),
    hasMore: t.exposeBoolean('hasMore', {
      description: 'Others may have changed as well, so that lists are to be read anew; so it is at first.',
    }),
  }),
});

builder.subscriptionFields((t) => ({
  siteChanges: t.field({
    type: SiteChangeType,
    description:
      'Which parts of the site have changed, about once a second at most, without end: what is to be read again. For viewers and operators.',
    subscribe: (_root, _args, ctx) => cancellable((signal) => watchSite(ctx, signal)),
    resolve: (change) => change,
  }),
  requestChanges: t.field({
    type: RequestChangesType,
    description:
      'Which of the requests that the caller may see were made, changed or have ended, about once a second at most, without end. ' +
      'That more of their files are there is told by `requestProgress`.',
    subscribe: (_root, _args, ctx) => cancellable((signal) => watchRequests(ctx, signal)),
    resolve: (changes) => changes,
  }),
}));

/** As many points as there may be. */
const HISTORY_COMPLEXITY = 100;

const CurvePointType = builder.objectRef<CurvePoint>('CurvePoint').implement({
  description: 'What the site did in some minutes; of days before, in an hour.',
  fields: (t) => ({
    at: t.expose('at', time('When it began.')),
    seconds: t.exposeInt('seconds', { description: 'How long it is.' }),
    filesRestored: t.exposeInt('filesRestored', { description: 'Files that were put on a restore disk.' }),
    bytesRestored: t.expose('bytesRestored', bigInt('Bytes of these.')),
    filesFailed: t.exposeInt('filesFailed', {
      description: 'Files of requests that were given up; one that two requests wait for is two.',
    }),
    filesWaiting: t.exposeInt(
      'filesWaiting',
      nullable('Files in the queue at one moment; the mean of an hour. Null: unknown.'),
    ),
    oldestSeconds: t.exposeFloat(
      'oldestSeconds',
      nullable('How long the first of these had waited, in seconds; of an hour the most. Null as above.'),
    ),
    drivesInUse: t.exposeFloat(
      'drivesInUse',
      nullable('Drives that had a volume mounted; of an hour the mean. Null as above.'),
    ),
    drives: t.exposeInt('drives', nullable('All drives. Null as above.')),
  }),
});

const QuotaPointType = builder.objectRef<QuotaPoint>('QuotaPoint').implement({
  description: 'What was used of a quota at some time.',
  fields: (t) => ({
    at: t.expose('at', time('When it was so.')),
    used: t.expose('used', bigInt('Bytes that live requests held.')),
    size: t.expose('size', bigInt('Bytes that the quota had.')),
  }),
});

builder.prismaObjectField('Quota', 'history', (t) =>
  t.field({
    type: [QuotaPointType],
    description:
      'What was used of it, in order of time: as it was at the begin, at each hour in which it had changed, and as it is now. Of 90 days at most.',
    complexity: { field: HISTORY_COMPLEXITY },
    args: { since: t.arg({ type: 'DateTime', required: true, description: 'The begin.' }) },
    resolve: async ({ id }, { since }, ctx) => (await readQuotaHistory(ctx, [id], since)).get(id) ?? [],
  }),
);

const ProcessKindType = builder.enumType('ProcessKind', {
  description: 'What a process does.',
  values: describeValues({
    GATEWAY: 'It answers requests.',
    ENGINE: 'It works with the drives and the disks.',
  }),
});

const RunningProcessType = builder.objectRef<RunningProcess>('RunningProcess').implement({
  description: 'A gateway or an engine. One that does both is two.',
  fields: (t) => ({
    kind: t.expose('kind', { type: ProcessKindType, description: 'What it does.' }),
    host: t.exposeString('host', { description: 'Where it runs.' }),
    pid: t.exposeInt('pid', { description: 'Its number there.' }),
    version: t.exposeString('version', { description: 'Of the program.' }),
    startedAt: t.expose('startedAt', time('When it began.')),
    seenAt: t.expose('seenAt', time('When it last said that it lives.')),
    isAlive: t.exposeBoolean('isAlive', {
      description: 'It has said so of late; it ends without a word where it is killed.',
    }),
    lagSeconds: t.exposeFloat('lagSeconds', {
      description: 'For how long there was something of the events that it had not read then, in seconds.',
    }),
  }),
});

builder.queryFields((t) => ({
  fence: t.string({
    nullable: true,
    description:
      'Why this Tapegate is fenced: it is a copy, or another one has taken over its restore disks. It answers and takes requests, and restores, removes and sends nothing until `tapegate takeover`. Null: it is not fenced.',
    resolve: (_root, _args, ctx) => readFence(ctx),
  }),
  history: t.field({
    type: [CurvePointType],
    complexity: HISTORY_COMPLEXITY,
    description:
      'What the site did, in order of time, at most 3,000 points: each five minutes of the last two days, each hour of the 90 days before. For viewers and operators.',
    args: {
      since: t.arg({ type: 'DateTime', required: true, description: 'Points that begin then or later.' }),
      until: t.arg(time('Points that begin before; now unless given.')),
    },
    resolve: (_root, args, ctx) => readHistory(ctx, args),
  }),
  processes: t.field({
    type: [RunningProcessType],
    description:
      'The gateways and engines that run, and those that died within a day and were not replaced on their host, by host, the first 1,000. For viewers and operators.',
    resolve: (_root, _args, ctx) => listProcesses(ctx),
  }),
}));
