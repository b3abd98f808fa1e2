/** What a request would take, and cost, before it is made. */
import { ForbiddenError, InvalidInputError, UnknownUserError } from '../src/errors.js';
import { type Estimate, estimateRequest, type LibraryPrice, type Price } from '../src/operations/plan/estimate.js';
import { builder } from './builder.js';
import { END_UNKNOWN, EndRangeType, PLAN_COMPLEXITY } from './plan.js';
import { CreateRequestInput } from './requests.js';

const AMOUNT = 'A decimal number with two to six digits after the point, such as `12.50`: exact, and rounded up.';
const CURRENCY = 'As the settings of the library have it, such as `EUR`.';

const PriceType = builder.objectRef<Price>('Price').implement({
  description: 'An amount of money.',
  fields: (t) => ({
    amount: t.exposeString('amount', { description: AMOUNT }),
    currency: t.exposeString('currency', { description: CURRENCY }),
  }),
});

const LibraryPriceType = builder.objectRef<LibraryPrice>('LibraryPrice').implement({
  description:
    'What a library would charge for a request, by its settings. What is there already, or on its way for others, costs nothing.',
  fields: (t) => ({
    library: t.exposeString('library', { description: 'Its name.' }),
    files: t.exposeInt('files', { description: 'Files that it would be asked for.' }),
    bytes: t.expose('bytes', { type: 'BigInt', description: 'Bytes of these.' }),
    amount: t.exposeString('amount', { description: AMOUNT }),
    currency: t.exposeString('currency', { description: CURRENCY }),
    note: t.exposeString('note', { description: 'For people: what it is made of.' }),
  }),
});

const EstimateType = builder.objectRef<Estimate>('Estimate').implement({
  description: 'What a request would take.',
  fields: (t) => ({
    files: t.exposeInt('files', { description: 'Files that the catalogue knows.' }),
    bytes: t.expose('bytes', { type: 'BigInt', description: 'Bytes of these.' }),
    filesUnknown: t.exposeInt('filesUnknown', { description: 'Paths that the catalogue does not know (yet).' }),
    unknownPaths: t.exposeStringList('unknownPaths', { description: 'The first twenty of these.' }),
    filesOnDisk: t.exposeInt('filesOnDisk', { description: 'Files that are there already.' }),
    bytesOnDisk: t.expose('bytesOnDisk', { type: 'BigInt', description: 'Bytes of these.' }),
    filesAtPrimaryPlace: t.exposeInt('filesAtPrimaryPlace', {
      description: 'Of the files on disk, the ones at their primary place: no restore disk has them.',
    }),
    bytesAtPrimaryPlace: t.expose('bytesAtPrimaryPlace', { type: 'BigInt', description: 'Bytes of these.' }),
    filesOnTheirWay: t.exposeInt('filesOnTheirWay', { description: 'Files that others have asked for already.' }),
    filesToRecall: t.exposeInt('filesToRecall', {
      description: 'Files to come from tape, those on their way included.',
    }),
    bytesToRecall: t.expose('bytesToRecall', { type: 'BigInt', description: 'Bytes of these.' }),
    filesWithoutPlace: t.exposeInt('filesWithoutPlace', {
      description: 'Files on no volume that is known: they would fail.',
    }),
    volumes: t.exposeInt('volumes', { description: 'Volumes that hold the files to be recalled.' }),
    mounts: t.exposeInt('mounts', { description: 'Of these, the ones that no drive has mounted.' }),
    volumesSuspended: t.exposeInt('volumesSuspended', { description: 'Of these, the ones out of service.' }),
    user: t.string({ description: 'Whose quota would be charged.', resolve: ({ quota }) => quota.user }),
    quotaSize: t.field({ type: 'BigInt', description: 'Bytes of the quota.', resolve: ({ quota }) => quota.size }),
    quotaUsed: t.field({
      type: 'BigInt',
      description: 'Bytes in use before the request.',
      resolve: ({ quota }) => quota.used,
    }),
    quotaUsedAfter: t.field({
      type: 'BigInt',
      description: 'Bytes in use after it, were it made.',
      resolve: ({ quota }) => quota.usedAfter,
    }),
    isEnough: t.exposeBoolean('isEnough', { description: 'The files fit into the quota.' }),
    hasRoom: t.exposeBoolean('hasRoom', {
      description: 'The allocations of the restore disks in service have room for what is to be recalled.',
    }),
    prices: t.expose('prices', {
      type: [LibraryPriceType],
      description: 'What libraries would charge for it; those that charge for nothing are left out.',
    }),
    price: t.field({
      type: PriceType,
      nullable: true,
      description: 'All of these together; null: nobody charges for it, or not all in one currency.',
      resolve: ({ price }) => price ?? null,
    }),
    end: t.field({
      type: EndRangeType,
      nullable: true,
      description:
        'Null when it cannot be told: something is out of service, no restore disk has room, no engine works, or nobody knows how long a library takes that stages files.',
      resolve: (estimate) => estimate.end ?? null,
    }),
    endUnknown: t.exposeString('endUnknown', { nullable: true, description: END_UNKNOWN }),
  }),
});

builder.queryFields((t) => ({
  estimateRequest: t.field({
    authScopes: { operation: 'estimateRequest' },
    type: EstimateType,
    description: 'What `createRequest` would take with the same input; nothing is stored.',
    complexity: PLAN_COMPLEXITY,
    errors: { types: [InvalidInputError, UnknownUserError, ForbiddenError], union: { name: 'EstimateRequestResult' } },
    args: { input: t.arg({ type: CreateRequestInput, required: true, description: 'As for `createRequest`.' }) },
    resolve: (_root, { input }, ctx) => estimateRequest(ctx, input, ctx.reader),
  }),
}));
