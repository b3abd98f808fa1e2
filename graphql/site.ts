/** The site as a whole, and what of it has changed: for those who show it. */
import { cancellable } from '../src/cancellable.js';
import { type SiteChange, siteParts, watchSite } from '../src/operations/site/watch.js';
import { type RequestChange, type RequestChanges, watchRequests } from '../src/operations/site/watch-requests.js';
import { builder, describeValues } from './builder.js';
import { RequestStateType } from './requests.js';

const SitePartType = builder.enumType('SitePart', {
  description: 'A part of the site.',
  values: describeValues<keyof typeof siteParts>(siteParts, '.'),
});

const SiteChangeType = builder.objectRef<SiteChange>('SiteChange').implement({
  description: 'That something of the site has changed.',
  fields: (t) => ({
    at: t.expose('at', { type: 'DateTime', description: 'When this was told.' }),
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
    at: t.expose('at', { type: 'DateTime', description: 'When this was told.' }),
    requests: t.field({
      type: [RequestChangeType],
      description: 'In no particular order, at most 1,000.',
      resolve: ({ items }) => items,
    }),
    hasMore: t.exposeBoolean('hasMore', {
      description: 'Others may have changed as well, so that lists are to be read anew; so it is at first.',
    }),
  }),
});

builder.subscriptionFields((t) => ({
  siteChanges: t.field({
    authScopes: { operation: 'watchSite' },
    type: SiteChangeType,
    description:
      'Which parts of the site have changed, about once a second at most, without end: what is to be read again. For viewers and operators.',
    subscribe: (_root, _args, ctx) => cancellable((signal) => watchSite(ctx, signal)),
    resolve: (change) => change,
  }),
  requestChanges: t.field({
    authScopes: { operation: 'watchRequests' },
    type: RequestChangesType,
    description:
      'Which of the requests that the caller may see were made, changed or have ended, about once a second at most, without end. ' +
      'That more of their files are there is told by `requestProgress`.',
    subscribe: (_root, _args, ctx) => cancellable((signal) => watchRequests(ctx, signal)),
    resolve: (changes) => changes,
  }),
}));
